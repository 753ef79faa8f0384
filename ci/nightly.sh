#!/usr/bin/env bash
# What takes longer than a change should wait for: every ignored test optimised, the golden sets in full (where the
# traces lie beside the repository), the models with one more preemption.
set -euo pipefail
cd "$(dirname "$0")/.."

RUST_TEST_NOCAPTURE=1 cargo test --release -- --include-ignored
for model in teeth shuttle; do
    if [ -f "ci/$model.sh" ]; then
        bash "ci/$model.sh"
    fi
done
if [ -f ci/loom.sh ]; then
    LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}" bash ci/loom.sh
fi
if command -v cargo-deny >/dev/null; then
    cargo deny check bans licenses sources
fi
