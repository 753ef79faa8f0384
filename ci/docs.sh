#!/usr/bin/env bash
# The documentation, public and private; a warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings"

cargo doc --locked --no-deps --lib
cargo doc --locked --no-deps --lib --document-private-items --target-dir "${CARGO_TARGET_DIR:-target}/private-docs"
