#!/usr/bin/env bash
# The CUDA kernels without a GPU: every shape in the simulator, with sanitizers and as PTX too, and
# planted bugs.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v "${CXX:-c++}" > /dev/null; then
    echo 'skipped: no C++ compiler'
    exit 0
fi
CXXFLAGS='-fsanitize=address,undefined -fno-sanitize-recover=all' ASAN_OPTIONS=detect_stack_use_after_return=0 \
    kernels/sim/test.sh quick
kernels/sim/test.sh full
kernels/sim/test.sh ptx
python3 kernels/mutate.py
