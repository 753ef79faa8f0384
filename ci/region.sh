#!/usr/bin/env bash
# Models of the region that processes share, and of blocks on their way to a host tier.
set -euo pipefail
cd "$(dirname "$0")/.."
# To optimise more would take longer than the models do.
for package in radixkv radixkv-host radixkv-region; do levels+=(--config "profile.loom.package.$package.opt-level=1"); done
cargo --config loom_tests/.cargo/config.toml "${levels[@]}" test --locked -p radixkv-region -p radixkv-host --profile loom --test models -- \
    --test-threads=1
