#!/usr/bin/env bash
# Compiles every kernel anew: prebuilt/*.cubin, prebuilt/*.ptx and prebuilt/MANIFEST, with the compiler of requirements.txt. Output is the
# same byte by byte from run to run. build.sh DIRECTORY writes elsewhere.
set -euo pipefail
cd "$(dirname "$0")"
. ./tools.sh
exec python3 build.py "${1:-prebuilt}"
