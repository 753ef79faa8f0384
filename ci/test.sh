#!/usr/bin/env bash
# The README's test command. Its output stays in target/ci/test.log; .ci/run lists from there what was set aside.
set -euo pipefail
cd "$(dirname "$0")/.."

log="${CARGO_TARGET_DIR:-target}/ci/test.log"
mkdir -p "$(dirname "$log")"
# Without capture, so that a test that finds its data missing can be heard saying so.
RUST_TEST_NOCAPTURE=1 cargo test 2>&1 | tee "$log"
