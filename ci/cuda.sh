#!/usr/bin/env bash
# radixkv-cuda without a GPU: the kernels' own sources behind a stand-in driver, if there is a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

RUST_TEST_NOCAPTURE=1 cargo test --locked -p radixkv-cuda
