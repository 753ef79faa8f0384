#!/usr/bin/env bash
# A tier in S3, by itself and below a host tier, against moto, a server from PyPI that this script
# installs under the target folder: a minute and a half, most of it the compiler's. Says so and ends
# well where moto cannot be had.
set -euo pipefail
cd "$(dirname "$0")"
target="${CARGO_TARGET_DIR:-$PWD/../../../../target}"
venv="$target/moto"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
if [ ! -x "$venv/bin/moto_server" ] && ! "$venv/bin/pip" install --quiet 'moto[server]>=5,<6'; then
    echo 'skipped: moto cannot be had'
    exit 0
fi
MOTO_SERVER="$venv/bin/moto_server" CARGO_TARGET_DIR="$target/s3" cargo test --locked --tests
