#!/usr/bin/env bash
# Each package without features, and with each of them alone; and the core for newer processors.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/packages.py --features | while read -r package features; do
    for feature in $features; do
        echo "$package: ${feature/#-/no feature}"
        cargo check --locked --package "$package" --all-targets --no-default-features --features "${feature#-}"
    done
done
bash ci/processors.sh
