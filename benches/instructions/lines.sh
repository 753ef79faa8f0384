#!/usr/bin/env bash
# Cache lines that a turnover of blocks fetches from other cores, counted in a trace of valgrind's:
# lines.rs explains it. Fails if there are more than lines.txt says.
#
#   lines.sh [--write]   --write writes the table again: 3 % and half a line above what was counted
set -euo pipefail
cd "$(dirname "$0")/../.."
table=benches/instructions/lines.txt

if ! command -v valgrind >/dev/null || [ "$(uname -m)" != x86_64 ]; then
    echo 'skipped: lines are not counted without valgrind on x86-64'
    exit 0
fi
out="${CARGO_TARGET_DIR:-target}/lines"
# A cache for 16 cores, one for each session, whatever this machine has.
RUSTFLAGS='--cfg radixkv_lines' cargo build --locked --quiet -p radixkv --lib --no-default-features --release --target-dir "$out"
# At fixed addresses, so that the half that counts knows where the other one writes its marks.
rustc --edition 2024 -C opt-level=3 -C relocation-model=static -C link-args=-no-pie benches/instructions.rs -o "$out/lines" \
    --extern "radixkv=$out/release/libradixkv.rlib" -L "$out/release/deps"
counted=$(for kind in one shards shared; do
    valgrind --tool=lackey --trace-mem=yes --log-fd=9 "$out/lines" lines "$kind" 9>&1 >/dev/null | "$out/lines" lines count |
        sed "s/^/$kind-/"
done)
if [ "${1:-}" = --write ]; then
    {
        echo '# Of a turnover by one of 16 sessions: the most that may be counted, and what was. Written by `lines.sh --write`.'
        awk '{ printf "%-14s %6.1f %6.1f\n", $1, $2 * 1.03 + 0.5, $2 }' <<<"$counted"
    } >"$table"
    cat "$table"
    exit 0
fi
awk 'NR == FNR { most[$1] = $2; next }
     { verdict = $2 <= most[$1] ? "holds" : "too many"; printf "%-14s %6.1f of %6.1f: %s\n", $1, $2, most[$1], verdict }
     verdict != "holds" { failed = 1 }
     END { exit failed || NR == FNR }' "$table" - <<<"$counted"
