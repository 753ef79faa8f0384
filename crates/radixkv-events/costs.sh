#!/usr/bin/env bash
# What KV events cost a replay: instructions of the thread that replays, by callgrind, and times of
# runs that alternate.
#
#     crates/radixkv-events/costs.sh TRACE.jsonl.zst [ROUNDS] [FUNCTIONS]      9 rounds, 0 for instructions alone
#
# `verbs` are match, reserve, insert and release; `stats`, which the replay calls after each
# request, takes most stores in. `unread` is a subscriber that never reads. With FUNCTIONS, so many
# of each run's functions, by their own instructions.
set -euo pipefail
cd "$(dirname "$0")/../.."
trace=$1 rounds=${2:-9} functions=${3:-0}
schemes=(off unread xxh3 sha256-cbor)

cargo build --quiet --release --locked -p radixkv-replay --features follow --bin radixkv
target=${CARGO_TARGET_DIR:-target}
program=$target/release/radixkv out=$target/costs
mkdir -p "$out"
# Callgrind counts each byte of a `rep movsb` as one instruction.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x7fffffff:glibc.cpu.x86_rep_stosb_threshold=0x7fffffff

# replay SCHEME [COMMAND...]: a replay under a command.
replay() {
    local events=()
    [ "$1" = off ] || events=(--events "$1")
    "${@:2}" "$program" replay "$trace" --unit 512 --json "${events[@]}"
}

# inclusive FILE FUNCTION: millions of instructions in a function and what it calls; in all of the
# thread without a function.
inclusive() {
    callgrind_annotate --inclusive=yes --auto=no --threshold=100 "$1" |
        awk -v name="${2:-PROGRAM TOTALS}" '!found && index($0, name) { gsub(",", "", $1); printf "%.1f", $1 / 1e6; found = 1 }'
}

printf '| events | verbs, million | match | reserve | insert | `stats` | the thread in all | all threads |\n|---|---:|---:|---:|---:|---:|---:|---:|\n'
for scheme in "${schemes[@]}"; do
    file=$out/$scheme.callgrind
    rm -f "$file"*
    replay "$scheme" valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$file" >"$out/$scheme.json" 2>"$out/$scheme.log"
    all=$(sed -nE 's/.*Collected : ([0-9]+)$/\1/p' "$out/$scheme.log" | awk '{ printf "%.1f", $1 / 1e6 }')
    columns=()
    for name in Worker::attempt Worker::look_up Worker::reserve Worker::insert PrefixCache::stats ''; do
        columns+=("$(inclusive "$file-01" "$name")")
    done
    printf '| %s |' "$scheme"
    printf ' %s |' "${columns[@]}" "$all"
    echo
done
[ "$(grep -ho '"match_digest":"[^"]*"' "$out"/*.json | sort -u | wc -l)" = 1 ] || { echo 'the digests of the matches differ'; exit 1; }

if [ "$functions" -gt 0 ]; then
    for thread in "$out"/*.callgrind-0*; do
        printf '\n%s\n' "$(basename "$thread")"
        callgrind_annotate --auto=no --threshold=100 "$thread" | grep -E '^ *[0-9,]+ ' | sed -n "2,$((functions + 1))p" | sed 's/ \[.*//' | cut -c1-150
    done
fi

[ "$rounds" -gt 0 ] || exit 0
rm -f "$out"/*.times
TIMEFORMAT='%R %U %S'
for ((round = 0; round < rounds; round++)); do
    for scheme in "${schemes[@]}"; do
        { time replay "$scheme" >/dev/null; } 2>>"$out/$scheme.times"
    done
done
# middle: the median, the least and the most of a column of numbers.
middle() { sort -n | awk '{ n[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", n[int((NR + 1) / 2)], n[1], n[NR] }'; }
printf '\n| events | wall time, s | processor time, s |\n|---|---:|---:|\n'
for scheme in "${schemes[@]}"; do
    printf '| %s | %s | %s |\n' "$scheme" "$(awk '{ print $1 }' "$out/$scheme.times" | middle)" "$(awk '{ print $2 + $3 }' "$out/$scheme.times" | middle)"
done
