#!/usr/bin/env bash
# The Python package: its formatting and lints, the installation that its README names, its tests and its types. Everything is built and
# installed below target/python.
set -euo pipefail
cd "$(dirname "$0")/.."

package=bindings/python
mkdir -p "${CARGO_TARGET_DIR:-target}/python"
work=$(cd "${CARGO_TARGET_DIR:-target}/python" && pwd)
export CARGO_TARGET_DIR="$work/build" PYTHONDONTWRITEBYTECODE=1

cargo fmt --manifest-path "$package/Cargo.toml" -- --check
python3 -m venv --clear "$work/venv"
export PATH="$work/venv/bin:$PATH" VIRTUAL_ENV="$work/venv"
pip install -q 'maturin>=1.9,<2' numpy pytest mypy
cargo clippy --release --locked --manifest-path "$package/Cargo.toml" -- -D warnings
pip install -q --no-build-isolation "./$package"

cd "$package"
python -m pytest -q -p no:cacheprovider
mypy --strict --cache-dir "$work/mypy" tests/typed.py
