#!/usr/bin/env bash
# Builds the stand-in driver: build.sh DIRECTORY writes DIRECTORY/libcuda.so.1. CXX and CXXFLAGS may
# be set.
set -euo pipefail
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
# The kernels read 16 bytes at a time what was written in smaller pieces.
${CXX:-c++} -std=c++17 -O2 -fno-strict-aliasing -Wall -Wextra -Wno-unknown-pragmas -shared -fPIC -DRK_HOST_SIM -I.. -I. \
    ${CXXFLAGS:-} -Wl,-soname,libcuda.so.1 ./*.cpp -o "$out/libcuda.so.1"
