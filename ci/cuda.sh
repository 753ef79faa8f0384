#!/usr/bin/env bash
# The `cuda` feature without a GPU: the kernels' own sources behind a stand-in driver, if there is a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --locked --features cuda --lib --test gpu --test gpu_absent --bench gpu -- -D warnings
cargo test --locked --features cuda --lib gpu::
RUST_TEST_NOCAPTURE=1 cargo test --locked --features cuda --test gpu --test gpu_absent
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --locked --no-deps --lib --features cuda --document-private-items
