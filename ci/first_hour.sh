#!/usr/bin/env bash
# The README's first two commands with an empty target folder: the user time of each, in seconds,
# and an error if it is above the limit (3 and 10 minutes). Needs 2 GB in the folder for temporary
# files.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(mktemp -d)
trap 'rm -rf "$target"' EXIT
broken=0

# within SECONDS COMMAND...
within() {
    local limit=$1 TIMEFORMAT=%U user
    shift
    user=$({ time CARGO_TARGET_DIR="$target" "$@" >"$target.log" 2>&1; } 2>&1) || { tail -n 40 "$target.log"; broken=1; }
    printf '%8.1f s of at most %d  %s\n' "$user" "$limit" "$*"
    [ "${user%.*}" -lt "$limit" ] || broken=1
    rm -rf "${target:?}"/* "$target.log"
}

within 180 cargo run --release -- replay
within 600 cargo test
exit "$broken"
