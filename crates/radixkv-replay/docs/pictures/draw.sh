#!/usr/bin/env bash
# Draws the pictures of docs/looking.md, and the README's, from the traces in a folder: bash draw.sh
# ../../../../shared/traces
set -euo pipefail
traces=$(realpath "$1")
cd "$(dirname "$0")"
page=$(mktemp)
trap 'rm -f "$page"' EXIT

radixkv() {
    cargo run --quiet --release --package radixkv-replay -- "$@"
}

for pair in conversation:mooncake_conversation documents:mooncake_synthetic agents:taubench_airline_b16; do
    name=${pair%:*} trace="$traces/${pair#*:}.jsonl.zst"
    radixkv inspect "$trace" --at 2000 --service 8000,40,64 --svg "$name.svg"
    radixkv replay "$trace" --report "$page" >/dev/null
    # The first plot of the page, on a ground of its own: the hit rate over the trace.
    awk 'BEGIN { RS = "<svg " }
        NR == 2 {
            sub(/<\/svg>.*/, "</svg>")
            sub(/>/, "><rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>")
            print "<svg " $0
        }' "$page" >"$name-hits.svg"
done
cp agents.svg ../../../../docs/pictures/
