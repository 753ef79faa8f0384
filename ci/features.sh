#!/usr/bin/env bash
# Each package without features, and what its tests add to that; and the core for newer processors. `ci/features.sh tests`, which the
# nightly script runs: each package with each of its features alone, with their tests, benches and examples.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/packages.py --features | while read -r package features; do
    [ "${1:-}" = tests ] || features=-
    for feature in $features; do
        echo "$package: ${feature/#-/no feature}"
        cargo check --locked --package "$package" --lib --no-default-features --features "${feature#-}"
        # And then with what its tests add to it.
        cargo check --locked --package "$package" --all-targets --no-default-features --features "${feature#-}"
    done
done
bash ci/processors.sh
