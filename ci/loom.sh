#!/usr/bin/env bash
# The models of the protocols. `ci/loom.sh [FILE [TEST...]]`; LOOM_MAX_PREEMPTIONS (default 3) says how deep.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_BACKTRACE="${RUST_BACKTRACE:-0}"
unset RUSTFLAGS
files=()
if [ $# -gt 0 ]; then files=(--test "$1"); shift; fi
cargo loom "${files[@]}" -- --nocapture --test-threads="${MODEL_THREADS:-1}" "$@"
