#!/usr/bin/env bash
# The parsers of PyPI's prometheus_client on the text of the example `serve`, and where `prometheus`
# and `promtool` are in the path, these on its metrics and on the dashboard: about half a minute.
# Says so and ends well where they cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../../.."

target=${CARGO_TARGET_DIR:-target}
python="$target/ci/prometheus/bin/python"
[ -x "$python" ] || python3 -m venv "$target/ci/prometheus"
if ! "$python" -c 'import prometheus_client' 2>/dev/null && ! "$python" -m pip install --quiet prometheus_client; then
    echo 'skipped: prometheus_client cannot be had'
    exit 0
fi
cargo build --quiet --locked -p radixkv-metrics --features host --example serve
"$python" crates/radixkv-metrics/peers/parse.py "$target/debug/examples/serve"

if ! command -v prometheus promtool >/dev/null; then
    echo 'skipped: prometheus is not in the path'
    exit 0
fi
python3 crates/radixkv-metrics/peers/dashboard.py "$(command -v prometheus)" "$target/debug/examples/serve"
"$target/debug/examples/serve" 127.0.0.1:19418 5 >/dev/null &
serve=$!
trap 'kill "$serve" 2>/dev/null || true' EXIT
sleep 1
bash crates/radixkv-metrics/peers/lint.sh "$(command -v promtool)" http://127.0.0.1:19418/metrics
