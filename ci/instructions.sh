#!/usr/bin/env bash
# Instructions of the cache's operations, counted by valgrind, against the ceilings of benches/instructions/ceilings.txt.
# They do not depend on how busy the machine is; they do on the compiler, the C library and the kernels of the processor.
#
#     ci/instructions.sh [NAME...]      fails if an operation exceeds its ceiling; all operations if none is named
#     ci/instructions.sh --write        measures all of them and writes the table anew: 3 % above what was measured
set -euo pipefail
cd "$(dirname "$0")/.."
table=benches/instructions/ceilings.txt
headroom=3

if ! command -v valgrind >/dev/null; then
    echo 'skipped: instructions are not counted without valgrind'
    exit 0
fi
if [ "$(uname -m)" != x86_64 ] || ! grep -qw avx2 /proc/cpuinfo; then
    echo 'skipped: the ceilings are those of x86-64 with AVX2'
    exit 0
fi

# Without cargo's benches, whose dependencies would take minutes.
out="${CARGO_TARGET_DIR:-target}/instructions"
cargo build --locked --quiet -p radixkv --lib --no-default-features --release --target-dir "$out"
rustc --edition 2024 -C opt-level=3 benches/instructions.rs -o "$out/count" \
    --extern "radixkv=$out/release/libradixkv.rlib" -L "$out/release/deps"

# Instructions of a whole run of so many calls.
whole() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$out/count" "$1" "$2" 2>&1 |
        sed -nE 's/.*Collected : ([0-9]+)$/\1/p'
}

# Instructions of one call: what is prepared is the same for any number of them.
each() {
    local few=200 many=2000 less more
    less=$(whole "$1" $few)
    more=$(whole "$1" $many)
    echo $(((more - less) / (many - few)))
}

if [ "${1:-}" = --write ]; then
    {
        echo '# Instructions of one call: the most that may be counted, and what was. Written by `ci/instructions.sh --write`'
        echo "# with $(rustc --version | cut -d' ' -f1,2), $(ldd --version | sed -nE '1s/.* ([0-9.]+)$/C library \1/p'), AVX2."
        for name in $("$out/count"); do
            counted=$(each "$name")
            printf '%-20s %8d %8d\n' "$name" $((counted * (100 + headroom) / 100)) "$counted"
        done
    } >"$out/ceilings.txt"
    mv "$out/ceilings.txt" "$table"
    cat "$table"
    exit 0
fi

failed=0
for name in ${*:-$("$out/count")}; do
    ceiling=$(awk -v name="$name" '$1 == name { print $2 }' "$table")
    counted=$(each "$name")
    if [ -z "$ceiling" ]; then
        verdict='has no ceiling in the table'
        failed=1
    elif [ "$counted" -gt "$ceiling" ]; then
        verdict="exceeds its ceiling by $((counted - ceiling)), $((100 * (counted - ceiling) / ceiling)) %"
        failed=1
    else
        verdict='holds'
    fi
    printf '%-20s %8d of %8s: %s\n' "$name" "$counted" "${ceiling:--}" "$verdict"
done
exit "$failed"
