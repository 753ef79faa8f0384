#!/usr/bin/env bash
# Mutation testing of the protocol files with the unit, model and scenario tests; nightly, hours on two cores.
#
#   ci/mutants.sh [FILE...]
#
# What is missed is listed in target/mutants/mutants.out/missed.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo mutants --version >/dev/null 2>&1; then
  echo "cargo-mutants is not installed: cargo install cargo-mutants --locked"
  exit 0
fi

files=("$@")
[ ${#files[@]} -gt 0 ] || files=('src/tree/*.rs' 'src/block/*.rs' 'src/cache/evictor/*.rs')
mkdir -p target/mutants
# Mutants that spin are as dead as those that fail.
cargo mutants --no-shuffle --colors never --output target/mutants --timeout "${TIMEOUT:-60}" \
  "${files[@]/#/--file=}" --no-default-features \
  -- --lib --test model --test scenarios -- --skip very_long --skip wrong_order
