# Sourced by build.sh and inspect.sh: brings the pinned compiler and disassemblers to
# target/kernel-tools, once. x86-64 Linux with Python 3.
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$repository/target/kernel-tools
if ! cmp -s "$repository/kernels/requirements.txt" "$tools/requirements.txt"; then
    rm -rf "$tools"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes \
        --target "$tools" -r "$repository/kernels/requirements.txt"
    cp "$repository/kernels/requirements.txt" "$tools/"
fi
export LD_LIBRARY_PATH=$tools/nvidia/cuda_nvrtc/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH=$tools/nvidia/cu13/bin:$PATH
