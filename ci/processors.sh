#!/usr/bin/env bash
# What users get when they build for newer processors, as far as this one can run it: the key tests,
# and callers that keep vectors in registers. Built without cargo's tests, whose dependencies would
# take minutes for each processor.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${CARGO_TARGET_DIR:-target}/processors"
if [ "$(uname -m)" != x86_64 ]; then
    echo 'skipped: not x86-64'
    exit 0
fi

for cpu in x86-64-v3 native; do
    if [ "$cpu" = x86-64-v3 ] && ! grep -qw avx2 /proc/cpuinfo; then
        echo 'skipped: x86-64-v3 needs AVX2'
        continue
    fi
    echo "processor: $cpu"
    built="$out/$cpu"
    RUSTFLAGS="-C target-cpu=$cpu" cargo build --locked -p radixkv --lib --no-default-features --release --target-dir "$built"
    test=(rustc --edition 2024 -O -C "target-cpu=$cpu" --test)
    "${test[@]}" src/key/mod.rs -o "$built/key"
    "${test[@]}" tests/registers.rs -o "$built/registers" --extern "radixkv=$built/release/libradixkv.rlib" -L "$built/release/deps"
    "$built/key"
    "$built/registers"
done
