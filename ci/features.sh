#!/usr/bin/env bash
# Each package without features, and with each of them alone; and the core for newer processors.
set -euo pipefail
cd "$(dirname "$0")/.."

list='
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["name"].startswith("radixkv") and package["publish"] is None:
        print(package["name"], "-", *sorted(set(package["features"]) - {"default"}))
'
cargo metadata --locked --no-deps --format-version 1 | python3 -c "$list" | while read -r package features; do
    for feature in $features; do
        echo "$package: ${feature/#-/no feature}"
        cargo check --locked --package "$package" --all-targets --no-default-features --features "${feature#-}"
    done
done
bash ci/processors.sh
