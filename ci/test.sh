#!/usr/bin/env bash
# The tests of every package but the models (ci/verify.sh). Shows what did not pass. All output
# stays in target/ci/test.log, from which .ci/run lists the tests that were set aside.
set -euo pipefail
cd "$(dirname "$0")/.."

log="${CARGO_TARGET_DIR:-target}/ci/test.log"
mkdir -p "$(dirname "$log")"
all=(--locked --workspace --exclude loom_tests)
# With the output of those that pass, so that a test that finds its data missing can be heard saying
# so. Doctests have no data, and are built all together only without that option. ci/lint.sh checks
# examples.
cargo test "${all[@]}" --tests --no-fail-fast -- --show-output 2>&1 | tee "$log" | awk -f ci/shown.awk
cargo test "${all[@]}" --doc 2>&1 | tee -a "$log" | awk -f ci/shown.awk
