#!/usr/bin/env bash
# The proofs of a change: models at two preemptions, each for a minute at most (none takes as long on two cores), 10,000 random and
# 10,000 PCT schedules of each scenario, a quarter of the seeded bugs, which the commit draws, stress for two seconds under
# AddressSanitizer with yields in the atomics, and what operations cost, in instructions and in cache lines of other cores. The
# nightly script explores each model at three and four preemptions and to its end, and has every seeded bug.
#
# In two lanes beside each other, about as long as one another: two cores are enough for it. Each step's output is shown
# whole when the step ends; the last lines are a summary.
set -uo pipefail
cd "$(dirname "$0")/.."
export SHUTTLE_ITERS="${SHUTTLE_ITERS:-10000}"

logs="${CARGO_TARGET_DIR:-target}/ci/verify"
rm -rf "$logs"
mkdir -p "$logs"

# step NAME SCRIPT [ARGUMENT...]: runs a script; its failure does not stop the lane.
step() {
    local name=$1 script=$2 began=$SECONDS verdict=ok
    shift 2
    bash "ci/$script.sh" "$@" >"$logs/$name.log" 2>&1 || verdict=FAILED
    printf '\n--- %s\n%s\n' "$name" "$(cat "$logs/$name.log")"
    printf '%-14s %6d s  %s\n' "$name" $((SECONDS - began)) "$verdict" >"$logs/$name.verdict"
}

# With these models the first lane takes about as long as the second.
long=creation_trim,death,hot_points,insert,invalidation,map,namespaces,retention,together,waiting
others=$(find loom_tests/tests -name '*.rs' -not -path '*/common/*' -not -name 'shuttle_*' -printf '%f\n' | sort)
others=$(grep -vxE "(${long//,/|})\.rs" <<<"$others" | sed 's/\.rs$//' | paste -sd, -)

# The most preemptions of a model, and the longest that it is explored.
preemptions=${LOOM_MAX_PREEMPTIONS:-2} cap=60
# Which quarter of the seeded bugs, by the commit.
part=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % 4))/4

first() {
    LOOM_MAX_PREEMPTIONS=$preemptions LOOM_MAX_DURATION=$cap step 'long models' loom "$long"
    step schedules shuttle
    step stress asan
    step 'region' region
    step instructions instructions
    step 'far lines' lines
}

second() {
    step 'seeded bugs' seeded_bugs --part "$part"
    LOOM_MAX_PREEMPTIONS=$preemptions LOOM_MAX_DURATION=$cap step 'other models' loom "$others"
}

first &
second &
wait

grep -l FAILED "$logs"/*.verdict | while read -r verdict; do
    printf '\n--- %s failed; its last lines:\n' "$(basename "$verdict" .verdict)"
    tail -n 40 "${verdict%.verdict}.log"
done
printf '\n--- verified in %d s\n' "$SECONDS"
cat "$logs"/*.verdict
! grep -q FAILED "$logs"/*.verdict
