#!/usr/bin/env bash
# Line coverage of the packages' sources by every test that runs without a GPU; fails below $1 per
# cent (90). The report by file is in target/coverage. Needs cargo-tarpaulin.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_LLVM_COV_SETUP=no

mkdir -p target/coverage
list=$(python3 ci/packages.py | grep -vx radixkv-cuda)
mapfile -t packages <<<"$list"
# Models and their plumbing are compiled for checkers alone.
cargo tarpaulin --engine llvm --skip-clean --target-dir target/coverage/build --lib --bins --tests --follow-exec \
    "${packages[@]/#/-p}" --include-files 'src/*' 'crates/*/src/*' --exclude-files 'src/internals.rs' \
    --out Stdout --out Json --output-dir target/coverage --timeout 600 --fail-under "${1:-90}"
