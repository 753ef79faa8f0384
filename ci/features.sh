#!/usr/bin/env bash
# Each package's library without features, and the core for newer processors. `ci/features.sh
# tests`, which the nightly script runs: each package without features and with each of its features
# alone, and what its tests, benches and examples add to that.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/packages.py --features | while read -r package features; do
    [ "${1:-}" = tests ] || features=-
    for feature in $features; do
        echo "$package: ${feature/#-/no feature}"
        cargo check --locked --package "$package" --lib --no-default-features --features "${feature#-}"
        if [ "${1:-}" = tests ]; then
            cargo check --locked --package "$package" --all-targets --no-default-features --features "${feature#-}"
        fi
    done
done
bash ci/processors.sh
