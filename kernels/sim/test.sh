#!/usr/bin/env bash
# The kernels against 64-bit references, in the simulator: test.sh [quick | full | ptx] [SCHEDULES];
# ptx runs the compiled PTX in place of the sources, and checks for races. CXX and CXXFLAGS may be
# set, for instance CXXFLAGS='-fsanitize=address,undefined' (with
# ASAN_OPTIONS=detect_stack_use_after_return=0).
set -euo pipefail
cd "$(dirname "$0")"
cxx=${CXX:-c++}
if ! command -v "$cxx" > /dev/null; then
    echo "skipped: no C++ compiler"
    exit 0
fi
out=$(cd ../.. && pwd)/target/kernel-sim
mkdir -p "$out"
flags="-std=c++17 -O1 -g -fno-strict-aliasing -Wall -Wextra -Wno-unknown-pragmas -DRK_HOST_SIM -I.. -I. -Itest ${CXXFLAGS:-}"
objects=()
for source in fiber guard simt kernels queue ptx isa races test/attention test/movement test/queues test/programs test/main; do
    objects+=("$out/$(basename $source).o")
    # shellcheck disable=SC2086
    $cxx $flags -c $source.cpp -o "${objects[-1]}"
done
# shellcheck disable=SC2086
$cxx $flags "${objects[@]}" -o "$out/test"
if [ "${1:-}" = ptx ]; then
    exec "$out/test" quick "${2:-4}" ../prebuilt/*.ptx
fi
exec "$out/test" "$@"
