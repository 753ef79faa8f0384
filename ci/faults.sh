#!/usr/bin/env bash
# Fault tests: threads that stop or break between two steps of a protocol, counts that are full or
# wrap, a reader that never unpins. `ci/faults.sh release` runs them optimised, with ten times the
# operations and a million retired runs.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=()
[ "${1:-}" != release ] || profile=(--release)
export RUST_BACKTRACE=0

RUSTFLAGS="--cfg radixkv_failpoints" \
    cargo test -p radixkv "${profile[@]}" --no-default-features --test faults --target-dir target/failpoints
cargo test -p radixkv "${profile[@]}" --no-default-features --lib -- stalled_reader
RUSTFLAGS="--cfg radixkv_tiny" \
    cargo test -p radixkv "${profile[@]}" --no-default-features --features async --test limits --target-dir target/tiny
