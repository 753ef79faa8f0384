#!/usr/bin/env bash
# The README's test command; shows what did not pass. All of its output stays in target/ci/test.log; .ci/run lists from there what
# was set aside.
set -euo pipefail
cd "$(dirname "$0")/.."

log="${CARGO_TARGET_DIR:-target}/ci/test.log"
mkdir -p "$(dirname "$log")"
# With the output of those that pass, so that a test that finds its data missing can be heard saying so.
cargo test -- --show-output 2>&1 | tee "$log" | awk -f ci/shown.awk
