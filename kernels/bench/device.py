"""The GPU of a machine, and whether the kernels load and agree with the simulator there: name and driver, milliseconds to load each prebuilt
image, the self-test of the helpers, the time of an empty launch. Needs libcuda alone (LIBCUDA names another one). Exits 77 without a GPU."""
import ctypes
import math
import os
import pathlib
import statistics
import struct
import sys
import time

KERNELS = pathlib.Path(__file__).parent.parent
PREBUILT = KERNELS / "prebuilt"
EXACT, APPROXIMATE = 44 * 32, 3 * 32        # words of rk_selftest, as abi.cuh counts them
CC_MAJOR, CC_MINOR, MULTIPROCESSORS, L2 = 75, 76, 16, 38
u64, pointer = ctypes.c_uint64, ctypes.c_void_p


def open_driver():
    name = "libcuda.so.1"
    # Containers mount it where the loader does not look.
    mounted = [f"{folder}/{name}" for folder in ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib")]
    for path in [os.environ["LIBCUDA"]] if "LIBCUDA" in os.environ else [name, *mounted]:
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
    print("skipped: no GPU (there is no driver)")
    sys.exit(77)


cuda = open_driver()


def check(code, what):
    if code:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(name))
        sys.exit(f"{what}: error {code} {(name.value or b'').decode()}")


def attribute(which):
    value = ctypes.c_int()
    check(cuda.cuDeviceGetAttribute(ctypes.byref(value), which, 0), "cuDeviceGetAttribute")
    return value.value


def load(path):
    image, module = path.read_bytes() + b"\0", pointer()
    began = time.perf_counter()
    code = cuda.cuModuleLoadData(ctypes.byref(module), image)
    return code, module, (time.perf_counter() - began) * 1e3


def function(module, name):
    f = pointer()
    check(cuda.cuModuleGetFunction(ctypes.byref(f), module, name), name.decode())
    return f


def launch(f, threads, arguments):
    params = (pointer * 1)(ctypes.cast(ctypes.pointer(arguments), pointer))
    check(cuda.cuLaunchKernel(f, 1, 1, 1, threads, 1, 1, 0, None, params, None), "cuLaunchKernel")


def environment():
    name, version, total = ctypes.create_string_buffer(100), ctypes.c_int(), ctypes.c_size_t()
    cuda.cuDeviceGetName(name, 100, 0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    print(f"device: {name.value.decode()}, {total.value / 1e9:.0f} GB, capability {attribute(CC_MAJOR)}.{attribute(CC_MINOR)}, "
          f"{attribute(MULTIPROCESSORS)} multiprocessors, L2 {attribute(L2) >> 20} MiB, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}")


def load_table(target):
    """Loads every image for this device; gives the modules of `target`'s cubins."""
    modules, refused = {}, 0
    print(f"{'module':14} {target + ' cubin':>14} {'PTX':>14}")
    for path in sorted(PREBUILT.glob(f"*.{target}.cubin")):
        stem = path.name.split(".")[0]
        code, modules[stem], cubin = load(path)
        check(code, path.name)
        code, ptx_module, ptx = load(PREBUILT / f"{stem}.compute_80.ptx")
        refused += code != 0
        print(f"{stem:14} {cubin:11.2f} ms " + (f"{ptx:11.2f} ms" if code == 0 else f"    error {code}"))
        if code == 0:
            cuda.cuModuleUnload(ptx_module)
    return modules, refused


def selftest(module):
    expected = struct.unpack(f"<{EXACT + APPROXIMATE}I", (KERNELS / "bench/selftest.expected").read_bytes())
    memory, size = u64(), 4 * (EXACT + APPROXIMATE)
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)), "cuMemAlloc")
    check(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0xFF), ctypes.c_size_t(size)), "cuMemset")
    launch(function(module, b"rk_selftest"), 32, memory)
    check(cuda.cuCtxSynchronize(), "rk_selftest")
    got = (ctypes.c_uint32 * (EXACT + APPROXIMATE))()
    check(cuda.cuMemcpyDtoH_v2(got, memory, ctypes.c_size_t(size)), "cuMemcpyDtoH")
    real = lambda word: struct.unpack("<f", struct.pack("<I", word))[0]
    wrong = [i for i in range(EXACT) if got[i] != expected[i]]
    wrong += [i for i in range(EXACT, EXACT + APPROXIMATE) if not math.isclose(real(got[i]), real(expected[i]), rel_tol=1e-5, abs_tol=1e-6)]
    for i in wrong[:8]:
        print(f"  word {i // 32} of lane {i % 32}: {got[i]:08x}, not {expected[i]:08x}")
    print(f"self-test of the helpers: {'all words right' if not wrong else f'{len(wrong)} words wrong'}")
    return len(wrong)


def empty_launch(module):
    f, arguments, times = function(module, b"rk_empty"), (u64 * 3)(0, 0, 0), []
    for _ in range(60):
        began = time.perf_counter()
        launch(f, 32, arguments)
        check(cuda.cuCtxSynchronize(), "rk_empty")
        times.append((time.perf_counter() - began) * 1e6)
    print(f"empty launch and wait, host clock: {statistics.median(times):.1f} us")


def main():
    count, context = ctypes.c_int(), pointer()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        print("skipped: no GPU (the driver has no device)")
        sys.exit(77)
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    environment()
    modules, refused = load_table("sm_90" if attribute(CC_MAJOR) == 9 else "sm_80")
    wrong = selftest(modules["selftest"])
    empty_launch(modules["bandwidth"])
    sys.exit(1 if wrong or refused else 0)


main()
