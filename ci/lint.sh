#!/usr/bin/env bash
# Formatting and clippy; a warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all -- --check
cargo fmt --all --manifest-path ci/api/Cargo.toml -- --check
cargo clippy --locked --workspace --all-targets -- -D warnings
