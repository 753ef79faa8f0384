#!/usr/bin/env bash
# The documentation, private and then public; a warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings"

packages=(-p radixkv -p radixkv-attention -p radixkv-cuda -p radixkv-replay)
cargo doc "${packages[@]}" --locked --all-features --no-deps --lib --document-private-items
# Last, so that what target/doc shows is what a user sees.
cargo doc "${packages[@]}" --locked --all-features --no-deps --lib
