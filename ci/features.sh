#!/usr/bin/env bash
# Each package without features, and with each of them alone; and the core for newer processors.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/packages.py --features | while read -r package features; do
    for feature in $features; do
        echo "$package: ${feature/#-/no feature}"
        # The library as users build it, and then with what its tests add to it.
        for targets in --lib --all-targets; do
            cargo check --locked --package "$package" "$targets" --no-default-features --features "${feature#-}"
        done
    done
done
bash ci/processors.sh
