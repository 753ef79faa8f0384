#!/usr/bin/env bash
# radixkv-cuda without a GPU: on a stand-in driver that runs the kernels' own sources, if there is a C++ compiler. And it builds with the
# bindings of whatever CUDA version is found.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --locked -p radixkv-cuda -- --show-output 2>&1 | awk -f ci/shown.awk
cargo check --locked -p radixkv-cuda --no-default-features
