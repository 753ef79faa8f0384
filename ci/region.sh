#!/usr/bin/env bash
# Models of the region that processes share, and of blocks on their way to a host tier.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo --config loom_tests/.cargo/config.toml test --locked -p radixkv-region -p radixkv-host --profile loom --test models -- \
    --test-threads=1
