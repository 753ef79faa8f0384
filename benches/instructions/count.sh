#!/usr/bin/env bash
# Instructions of the cache's operations, counted by valgrind, against the ceilings of
# ceilings.txt. They do not depend on the load of the machine; they do on the compiler, the C
# library and the kernels of the processor.
#
#   count.sh [NAME...]   fails if an operation exceeds its ceiling; all operations if none is named
#   count.sh --write     measures all and writes the table again: 3 % above what was measured
set -euo pipefail
cd "$(dirname "$0")/../.."
table=benches/instructions/ceilings.txt

if ! command -v valgrind >/dev/null || [ "$(uname -m)" != x86_64 ] || ! grep -qw avx2 /proc/cpuinfo; then
    echo 'skipped: instructions are counted with valgrind on x86-64 with AVX2'
    exit 0
fi

# Without cargo's benches, whose dependencies would take minutes.
out="${CARGO_TARGET_DIR:-target}/instructions"
cargo build --locked --quiet -p radixkv --lib --no-default-features --release --target-dir "$out"
rustc --edition 2024 -C opt-level=3 benches/instructions.rs -o "$out/count" \
    --extern "radixkv=$out/release/libradixkv.rlib" -L "$out/release/deps"

# whole NAME CALLS: instructions of a whole run of so many calls.
whole() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$out/count" "$1" "$2" 2>&1 |
        sed -nE 's/.*Collected : ([0-9]+)$/\1/p'
}

# each NAME...: instructions of one call of each. What is prepared is the same for any number of
# calls.
each() {
    local few=200 many=2000 name less more
    for name in "$@"; do
        less=$(whole "$name" $few)
        more=$(whole "$name" $many)
        echo "$name $(((more - less) / (many - few)))"
    done
}

# Unquoted: a list of names.
names=$("$out/count")
if [ "${1:-}" = --write ]; then
    each $names >"$out/counted"
    {
        echo '# Instructions of one call: the most that may be counted, and what was. Written by `count.sh --write`'
        echo "# with $(rustc --version | cut -d' ' -f1,2), $(ldd --version | sed -nE '1s/.* ([0-9.]+)$/C library \1/p'), AVX2."
        awk '{ printf "%-20s %8d %8d\n", $1, int($2 * 103 / 100), $2 }' "$out/counted"
    } | tee "$table"
    exit 0
fi
each ${*:-$names} | awk '
    NR == FNR { most[$1] = $2; next }
    { verdict = "holds" }
    !($1 in most) { verdict = "has no ceiling in the table" }
    $1 in most && $2 > most[$1] { verdict = sprintf("exceeds its ceiling by %d, %d %%", $2 - most[$1], 100 * ($2 - most[$1]) / most[$1]) }
    { printf "%-20s %8d of %8s: %s\n", $1, $2, $1 in most ? most[$1] : "-", verdict; fflush() }
    verdict != "holds" { failed = 1 }
    END { exit failed }' "$table" -
