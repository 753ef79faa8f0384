"""Compiles the kernels with NVRTC, found on LD_LIBRARY_PATH, into the directory named; build.sh calls it."""
import ctypes
import hashlib
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
HEADERS = ["plat.cuh", "abi.cuh", "element.cuh", "tile.cuh", "item.cuh", "rows.cuh", "latent.cuh", "wgmma.cuh", "rows_wgmma.cuh"]
MODULES = ["append", "bandwidth", "cascade", "compare_keys", "copy_blocks", "decode", "extend", "latent", "merge", "selftest"]
TARGETS = [("sm_80", "CUBIN", "cubin"), ("sm_90", "CUBIN", "cubin"), ("compute_80", "PTX", "ptx")]
# Modules with instructions that only compute capability 9.0 has.
HOPPER = ["extend_wgmma"]
BUILDS = {**{module: TARGETS for module in MODULES}, **{module: [("sm_90a", "CUBIN", "cubin")] for module in HOPPER}}
OPTIONS = ["-std=c++17"]

nvrtc = ctypes.CDLL("libnvrtc.so.12")


def version():
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    pinned = next(line for line in (HERE / "requirements.txt").read_text().splitlines() if "nvrtc" in line)
    release = pinned.split("==")[1].split()[0]
    if not release.startswith(f"{major.value}.{minor.value}."):
        sys.exit(f"the compiler is NVRTC {major.value}.{minor.value}, requirements.txt names {release}")
    return release


def output(program, what):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, data)
    return data.raw


def compile_module(module, target, what):
    strings = lambda items: (ctypes.c_char_p * len(items))(*items)
    program = ctypes.c_void_p()
    texts, names = [(HERE / h).read_bytes() for h in HEADERS], [h.encode() for h in HEADERS]
    source = (HERE / f"{module}.cu").read_bytes()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, f"{module}.cu".encode(), len(names), strings(texts), strings(names)):
        sys.exit("nvrtcCreateProgram failed")
    options = [f"-arch={target}".encode()] + [o.encode() for o in OPTIONS]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), strings(options))
    log = output(program, "ProgramLog").rstrip(b"\0").decode()
    if log.strip():
        print(f"{module} for {target}:\n{log}")
    if failed:
        sys.exit(1)
    data = output(program, what)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return data.rstrip(b"\0") if what == "PTX" else data


def digest(data):
    return hashlib.sha256(data).hexdigest()


def main(directory):
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"compiler NVRTC {version()} {' '.join(OPTIONS)}"]
    for name in sorted(HEADERS + [f"{m}.cu" for m in BUILDS]):
        lines.append(f"source {digest((HERE / name).read_bytes())} {name}")
    for module in sorted(BUILDS):
        for target, what, ending in BUILDS[module]:
            name, data = f"{module}.{target}.{ending}", compile_module(module, target, what)
            (directory / name).write_bytes(data)
            lines.append(f"built {digest(data)} {name}")
    (directory / "MANIFEST").write_text("\n".join(lines) + "\n")
    print(f"{sum(map(len, BUILDS.values()))} files in {directory}")


main(pathlib.Path(sys.argv[1]))
