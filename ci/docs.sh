#!/usr/bin/env bash
# The documentation, private and then public; a warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings"

list=$(python3 ci/packages.py)
mapfile -t packages <<<"$list"
packages=("${packages[@]/#/-p}")
cargo doc "${packages[@]}" --locked --all-features --no-deps --lib --document-private-items
# Without features: no link may lead to what a feature adds.
cargo doc -p radixkv --locked --no-default-features --no-deps --lib
# Last, so that what target/doc shows is what a user sees.
cargo doc "${packages[@]}" --locked --all-features --no-deps --lib
bash ci/api.sh
