#!/usr/bin/env bash
# Models of the region that processes share (crates/radixkv-region).
set -euo pipefail
cd "$(dirname "$0")/.."
cargo --config loom_tests/.cargo/config.toml test --locked -p radixkv-region --profile loom --test models -- --test-threads=1
