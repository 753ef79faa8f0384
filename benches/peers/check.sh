#!/usr/bin/env bash
# The table of peers: builds, is free of warnings, every contender answers, and a tenth of it is
# measured, as is what the cache must show.
set -euo pipefail
cd "$(dirname "$0")"

cargo fmt -- --check
cargo clippy --locked --release --all-targets -- -D warnings
cargo test --locked --release
cargo run --locked --release -- --quick --rounds 1
cargo run --locked --release -- must --quick --rounds 1
