#!/usr/bin/env bash
# Runs every fuzz target for SECONDS each (default 20; nightly 600) on the stable compiler, without
# cargo-fuzz. Fails on a finding, whose input lies in fuzz/artifacts/<target> then.
#
#   fuzz/run.sh [SECONDS] [TARGET...]
#
# SANITIZER=address adds AddressSanitizer. Keep what a fixed finding needed: copy it to
# fuzz/corpus/<target>.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-20}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(verbs trace key model)

triple=$(rustc -vV | sed -n 's/^host: //p')
build=fuzz/target/plain
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions"
if [ -n "${SANITIZER:-}" ]; then
  export RUSTC_BOOTSTRAP=1
  flags="$flags -Zsanitizer=$SANITIZER"
  build=fuzz/target/$SANITIZER
fi
RUSTFLAGS=$(tr -s '[:space:]' ' ' <<<"$flags") \
  cargo build --release --locked --manifest-path fuzz/Cargo.toml --target "$triple" --target-dir "$build"

for target in "${targets[@]}"; do
  # What a run finds stays beside the build; the kept corpus is only read.
  found=fuzz/target/corpus/$target
  artifacts=fuzz/artifacts/$target
  mkdir -p "$found" "$artifacts"
  echo "== $target: $seconds s"
  "$build/$triple/release/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -len_control=20 -print_final_stats=1 \
    -verbosity="${VERBOSITY:-0}" -artifact_prefix="$artifacts/" "$found" "fuzz/corpus/$target"
done
