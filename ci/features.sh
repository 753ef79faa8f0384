#!/usr/bin/env bash
# Each package without features, and with each of them alone; and the core for newer processors. `ci/features.sh tests`: their tests, benches and
# examples with each feature alone, too.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/packages.py --features | while read -r package features; do
    for feature in $features; do
        echo "$package: ${feature/#-/no feature}"
        cargo check --locked --package "$package" --lib --no-default-features --features "${feature#-}"
        # And then with what its tests add to it.
        if [ "$feature" = - ] || [ "${1:-}" = tests ]; then
            cargo check --locked --package "$package" --all-targets --no-default-features --features "${feature#-}"
        fi
    done
done
bash ci/processors.sh
