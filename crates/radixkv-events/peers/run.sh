#!/usr/bin/env bash
# pyzmq and msgpack, from PyPI, as a subscriber of the example `publish`: about half a minute. Says
# so and ends well where they cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../../.."

target=${CARGO_TARGET_DIR:-target}
python="$target/ci/pyzmq/bin/python"
[ -x "$python" ] || python3 -m venv "$target/ci/pyzmq"
if ! "$python" -c 'import msgpack, zmq' 2>/dev/null && ! "$python" -m pip install --quiet msgpack pyzmq; then
    echo 'skipped: pyzmq and msgpack cannot be had'
    exit 0
fi
cargo build --quiet --locked --release -p radixkv-events --example publish
"$python" crates/radixkv-events/peers/subscribe.py "$target/release/examples/publish" "$@"
