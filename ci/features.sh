#!/usr/bin/env bash
# The library without features, with each of them alone, and for newer processors.
set -euo pipefail
cd "$(dirname "$0")/.."

list='
import json, sys
package = next(p for p in json.load(sys.stdin)["packages"] if p["name"] == "radixkv")
print(*sorted(set(package["features"]) - {"default"}))
'
features=$(cargo metadata --locked --no-deps --format-version 1 | python3 -c "$list")

for feature in '' $features; do
    echo "features: ${feature:-none}"
    cargo check --locked --package radixkv --all-targets --no-default-features --features "$feature"
done
bash ci/processors.sh
