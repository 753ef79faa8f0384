#!/usr/bin/env bash
# Stress under AddressSanitizer and LeakSanitizer, with yields and spins in the atomics, for $1
# seconds (2). SEED and THREADS as in tests/stress.rs. `radixkv_heap` lets nodes come from the
# allocator that the sanitizer watches.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address --cfg radixkv_chaos --cfg radixkv_heap"
export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
build=(-p loom_tests --test stress --release --target x86_64-unknown-linux-gnu --target-dir target/asan)
cargo test "${build[@]}" --no-run
# Bash counts in SECONDS itself: only `env` can set it.
env SECONDS="${1:-2}" cargo test "${build[@]}" -- --nocapture
