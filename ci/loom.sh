#!/usr/bin/env bash
# The models of the protocols. `ci/loom.sh [FILE[,FILE...] [TEST...]]`; LOOM_MAX_PREEMPTIONS
# (default 3) says how deep, RADIXKV_UNBOUNDED=1 without a bound, LOOM_MAX_DURATION after how many
# seconds a model ends in any case.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_BACKTRACE="${RUST_BACKTRACE:-0}"
unset RUSTFLAGS
files=()
if [ $# -gt 0 ]; then
    for file in ${1//,/ }; do files+=(--test "$file"); done
    shift
fi
cargo loom "${files[@]}" -- --nocapture --test-threads="${MODEL_THREADS:-1}" "$@"
