#!/usr/bin/env bash
# The proofs of a change: models at two preemptions, each for a minute at most (none takes as long
# on two cores), 5,000 random and 5,000 PCT schedules of each scenario, an eighth of the seeded
# bugs, which the commit draws, stress for two seconds under AddressSanitizer with yields in the
# atomics, and what operations cost, in instructions and in cache lines of other cores. The nightly
# script explores each model at three and four preemptions and to its end, and has every seeded bug.
#
# In two lanes beside each other, about as long as one another: two cores are enough for it.
set -uo pipefail
cd "$(dirname "$0")/.."
export SHUTTLE_ITERS="${SHUTTLE_ITERS:-5000}"

source ci/steps.sh verify

# With these models the first lane takes about as long as the second.
long=creation_trim,death,hot_points,insert,invalidation,map,namespaces,retention,together,waiting
others=$(find loom_tests/tests -name '*.rs' -not -path '*/common/*' -not -name 'shuttle_*' -printf '%f\n' | sort)
others=$(grep -vxE "(${long//,/|})\.rs" <<<"$others" | sed 's/\.rs$//' | paste -sd, -)

# The most preemptions of a model, and the longest that it is explored.
bounds=(LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}" LOOM_MAX_DURATION=60)
# Which eighth of the seeded bugs, by the commit.
part=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % 8))/8

first() {
    step 'long models' env "${bounds[@]}" bash ci/loom.sh "$long"
    step stress bash ci/asan.sh
    step instructions bash benches/instructions/count.sh
    step 'far lines' bash benches/instructions/lines.sh
}

second() {
    step 'seeded bugs' python3 loom_tests/seeded_bugs.py --part "$part"
    step 'other models' env "${bounds[@]}" bash ci/loom.sh "$others"
    step schedules bash ci/shuttle.sh
    step region bash ci/region.sh
}

lanes first second
