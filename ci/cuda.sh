#!/usr/bin/env bash
# radixkv-cuda without a GPU: on a stand-in driver that runs the kernels' own sources, if there is a C++ compiler; the bench too, with small
# sizes. And it builds with the bindings of whatever CUDA version is found.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --locked -p radixkv-cuda -- --show-output 2>&1 | awk -f ci/shown.awk
cargo check --locked -p radixkv-cuda --no-default-features
python3 kernels/mutate.py --texts
python3 -m py_compile kernels/bench/*.py

bench=$(cargo test --locked -p radixkv-cuda --bench gpu --no-run --message-format=json 2> /dev/null | tr ',' '\n' |
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
