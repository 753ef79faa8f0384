#!/usr/bin/env bash
# Stress under ThreadSanitizer, with yields and spins in the atomics, for $1 seconds (30). SEED and
# THREADS as in tests/stress.rs. `radixkv_tsan` is for code with standalone fences, which
# ThreadSanitizer does not see: crossbeam-epoch replaces its own. `radixkv_heap` lets nodes come
# from the allocator that the sanitizer watches.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg radixkv_tsan --cfg radixkv_chaos --cfg radixkv_heap"
export TSAN_OPTIONS="suppressions=$PWD/ci/tsan.supp halt_on_error=1 ${TSAN_OPTIONS:-}"
build=(-p loom_tests --release --target x86_64-unknown-linux-gnu --target-dir target/tsan)
cargo test "${build[@]}" --test stress --test appending --no-run
# Bash counts in SECONDS itself: only `env` can set it.
env SECONDS="${1:-30}" cargo test "${build[@]}" --test stress -- --nocapture
cargo test "${build[@]}" --test appending
# Decoding beside appending, whose storage is read and written by several threads.
cargo test -p radixkv-attention --test beside --release --target x86_64-unknown-linux-gnu --target-dir target/tsan
