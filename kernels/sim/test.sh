#!/usr/bin/env bash
# The kernels against 64-bit references, in the simulator: test.sh [quick | full] [SCHEDULES]. CXX and CXXFLAGS may be set, for instance
# CXXFLAGS='-fsanitize=address,undefined' (with ASAN_OPTIONS=detect_stack_use_after_return=0).
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
# shellcheck disable=SC2086
for source in fiber guard simt kernels queue test/attention test/movement test/queues test/main; do
    $cxx $flags -c $source.cpp -o "$out/$(basename $source).o"
done
# shellcheck disable=SC2086
$cxx $flags "$out"/{fiber,guard,simt,kernels,queue,attention,movement,queues,main}.o -o "$out/test"
exec "$out/test" "$@"
