#!/usr/bin/env bash
# The parsers of PyPI's prometheus_client on the text of the example `serve`: about half a minute. Says so and ends well where
# they cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../../.."

target=${CARGO_TARGET_DIR:-target}
python="$target/ci/prometheus/bin/python"
[ -x "$python" ] || python3 -m venv "$target/ci/prometheus"
if ! "$python" -c 'import prometheus_client' 2>/dev/null && ! "$python" -m pip install --quiet prometheus_client; then
    echo 'skipped: prometheus_client cannot be had'
    exit 0
fi
cargo build --quiet --locked -p radixkv-metrics --example serve
"$python" crates/radixkv-metrics/peers/parse.py "$target/debug/examples/serve"
