#!/usr/bin/env bash
# The public interface of the packages is what docs/api.txt lists. `ci/api.sh --write` lists it
# again. Rustdoc's JSON is an unstable output of the stable compiler: only rustdoc itself is told to
# allow it, so that what else is built can be shared with other steps.
set -euo pipefail
cd "$(dirname "$0")/.."

listed=docs/api.txt
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
list=$(python3 ci/packages.py)
mapfile -t packages <<<"$list"

jsons=()
for package in "${packages[@]}"; do jsons+=("$target/doc/${package//-/_}.json"); done
# All at once, as ci/docs.sh documents them: dependencies have the same features.
RUSTDOC="$PWD/ci/api/rustdoc" RUSTDOCFLAGS='-Z unstable-options --output-format json --cap-lints allow' \
    cargo doc -q "${packages[@]/#/-p}" --locked --all-features --no-deps --lib
cargo run -q --locked --manifest-path ci/api/Cargo.toml --target-dir "$target/api" -- "${jsons[@]}" >"$target/api.txt"

if [ "${1:-}" = --write ]; then
    cp "$target/api.txt" "$listed"
elif diff -u "$listed" "$target/api.txt"; then
    echo 'holds:  docs/api.txt lists the public interface'
else
    echo 'broken: docs/api.txt lists the public interface (- listed, + in the code); ci/api.sh --write'
    exit 1
fi
