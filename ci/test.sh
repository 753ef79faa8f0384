#!/usr/bin/env bash
# The tests of every package but two: ci/cuda.sh runs those of the GPU's package, ci/verify.sh the
# models. Shows what did not pass. All output stays in target/ci/test.log, from which .ci/run lists
# the tests that were set aside.
set -euo pipefail
cd "$(dirname "$0")/.."

log="${CARGO_TARGET_DIR:-target}/ci/test.log"
mkdir -p "$(dirname "$log")"
# With the output of those that pass, so that a test that finds its data missing can be heard saying so.
cargo test --locked --workspace --exclude radixkv-cuda --exclude loom_tests -- --show-output 2>&1 | tee "$log" | awk -f ci/shown.awk
