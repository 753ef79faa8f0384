#!/usr/bin/env bash
# Compiles every kernel: prebuilt/*.cubin, prebuilt/*.ptx and prebuilt/MANIFEST, with the compiler
# of requirements.txt. The output has the same bytes in every run. build.sh DIRECTORY writes there
# instead.
set -euo pipefail
cd "$(dirname "$0")"
. ./tools.sh
exec python3 build.py "${1:-prebuilt}"
