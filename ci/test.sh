#!/usr/bin/env bash
# The README's test command, and then what it set aside.
# Leaves its output in target/ci/test.log, which .ci/run quotes.
set -euo pipefail
cd "$(dirname "$0")/.."

log="${CARGO_TARGET_DIR:-target}/ci/test.log"
mkdir -p "$(dirname "$log")"

# Without capture, so that a test that finds its data missing can be heard saying so.
RUST_TEST_NOCAPTURE=1 cargo test 2>&1 | tee "$log"

echo
echo 'set aside:'
grep -oE '(test .* \.\.\. ignored.*|skipped: .*)' "$log" | sed -E 's/^/  /' | sort | uniq -c || echo '  nothing'
