#!/usr/bin/env bash
# The served engine against the `openai` package of PyPI. Without a package index it says so and
# passes.
set -euo pipefail
cd "$(dirname "$0")/../../.."

target="${CARGO_TARGET_DIR:-target}"
cargo build --release --locked -p radixkv-engine --example engine
if ! [ -x "$target/ci/clients/bin/python" ] || ! "$target/ci/clients/bin/python" -c 'import openai, prometheus_client' 2>/dev/null; then
    python3 -m venv "$target/ci/clients"
    if ! "$target/ci/clients/bin/pip" install --quiet openai prometheus-client; then
        echo 'skipped: openai cannot be installed'
        exit 0
    fi
fi
"$target/ci/clients/bin/python" examples/engine/clients/check.py "$target/release/examples/engine"
