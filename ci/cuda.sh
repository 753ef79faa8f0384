#!/usr/bin/env bash
# After ci/test.sh, what is left of radixkv-cuda without a GPU: the seeded bugs' texts, and the
# bench, with small sizes, on the stand-in driver that the tests have built if there is a C++
# compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 kernels/mutate.py --texts
python3 -m py_compile kernels/bench/*.py

bench=$(cargo test --locked --workspace --exclude loom_tests --bench gpu --no-run --message-format=json 2> /dev/null | tr ',' '\n' |
    sed -nE 's/^"executable":"([^"]+)".*/\1/p' | tail -1)
# The stand-in that the tests have built.
driver=$(ls -t "${CARGO_TARGET_DIR:-target}"/tmp/sim-*/libcuda.so.1 2> /dev/null | head -1 || true)
if [ -n "$driver" ]; then
    LD_LIBRARY_PATH=$(cd "$(dirname "$driver")" && pwd) timeout 300 "$bench" --small
else
    echo 'skipped: no C++ compiler for the driver that the bench runs on'
fi
if CUDA_VISIBLE_DEVICES='' "$bench" --small > /dev/null 2>&1; then
    echo 'broken: the bench ends well without a device'
    exit 1
fi
