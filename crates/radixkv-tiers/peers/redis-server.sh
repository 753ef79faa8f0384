#!/usr/bin/env bash
# Says how to start a redis-server: the one that is installed, or one out of Debian's packages,
# unpacked under the target folder without installing it. Fails where there is neither.
set -euo pipefail
cd "$(dirname "$0")/../../.."

if command -v redis-server; then exit; fi
root="${CARGO_TARGET_DIR:-$PWD/target}/redis-server"
if [ ! -x "$root/run" ]; then
    mkdir -p "$root"
    cd "$root"
    download=(apt-get -qq download redis-server redis-tools liblzf1 libjemalloc2)
    "${download[@]}" >&2 2>/dev/null || { apt-get -qq update >&2 && "${download[@]}" >&2; }
    for package in *.deb; do dpkg -x "$package" .; done
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' \
        "$(dirname "$(find "$root/usr/lib" -name 'libjemalloc.so.2' | head -1)")" "$root/usr/bin/redis-server" >run.new
    chmod +x run.new
    ./run.new --version >&2
    mv run.new run
fi
echo "$root/run"
