#!/usr/bin/env bash
# The whole cache under random schedules. `ci/shuttle.sh [TEST...]`; SHUTTLE_ITERS, SHUTTLE_SEED,
# SHUTTLE_REPLAY.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_BACKTRACE="${RUST_BACKTRACE:-0}"
RUSTFLAGS="--cfg radixkv_shuttle" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle" \
    cargo test -p loom_tests --profile loom --test shuttle_cache -- --nocapture --test-threads="${MODEL_THREADS:-1}" "$@"
