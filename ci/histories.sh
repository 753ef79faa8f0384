#!/usr/bin/env bash
# Checks $1 histories (2000) for linearizability, with yields and spins in the atomics. SEED as in
# tests/histories.rs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUSTFLAGS="--cfg radixkv_chaos"
export HISTORIES="${1:-2000}"
exec cargo test -p radixkv --release --no-default-features --target-dir target/chaos --test histories -- --nocapture --test-threads=1
