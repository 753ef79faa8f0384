#!/usr/bin/env bash
# What takes longer than a change should wait for, about two hours on two cores. Goes on after a failure, and ends with
# the steps and their times.
set -uo pipefail
cd "$(dirname "$0")/.."

summary=()
failed=0

# step NAME COMMAND...: runs the command and notes its verdict and time.
step() {
    local name=$1 began=$SECONDS verdict=ok
    shift
    printf '\n--- %s\n' "$name"
    "$@" || { verdict=FAILED; failed=1; }
    summary+=("$(printf '%-26s %6d s  %s' "$name" $((SECONDS - began)) "$verdict")")
}

step 'every test, optimised' env RUST_TEST_NOCAPTURE=1 cargo test --release -- --include-ignored
step 'models, 4 preemptions' env LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-4}" bash ci/loom.sh
step 'seeded bugs' bash ci/teeth.sh
step 'random schedules' bash ci/shuttle.sh
step 'faults and limits' bash ci/faults.sh
step 'histories' bash ci/histories.sh 100000
step 'address sanitizer' bash ci/asan.sh 60
step 'thread sanitizer' bash ci/tsan.sh 60
step 'fuzzing' bash ci/fuzz.sh 600
if command -v cargo-mutants >/dev/null; then step 'mutants' bash ci/mutants.sh; fi
if command -v cargo-deny >/dev/null; then step 'licences and bans' cargo deny check bans licenses sources; fi

printf '\n%s\n' '--- steps'
printf '%s\n' "${summary[@]}"
exit "$failed"
