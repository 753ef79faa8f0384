#!/usr/bin/env bash
# The Python package: its formatting and lints, the installation that its README names, its tests
# and its types. Everything is built and installed below target/python. The sources of SGLang's own
# trees come from its wheel, without what it needs; torch is a stand-in, or the real one with
# RADIXKV_TORCH=real, which also fetches vLLM's wheel (340 MB, of which the sources stay). Without
# it the tests for vLLM run if its sources are there. RADIXKV_SGLANG_TESTS names the folder of
# SGLang's own tests of its prefix cache (test/registered/unit/mem_cache of its repository), which
# run with the real torch. RADIXKV_DEBUG_PYTHON names a debug build of CPython to run the tests in
# as well, RADIXKV_FREE_THREADED_PYTHON a free-threaded one to build and test in, RADIXKV_FEATURES
# features of the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."

package=bindings/python
sglang=0.5.23
vllm=0.33.0
mkdir -p "${CARGO_TARGET_DIR:-target}/python"
sglang_tests=${RADIXKV_SGLANG_TESTS:+$(realpath "$RADIXKV_SGLANG_TESTS")}
work=$(cd "${CARGO_TARGET_DIR:-target}/python" && pwd)
export CARGO_TARGET_DIR="$work/build" PYTHONDONTWRITEBYTECODE=1
# The wheel that users build, nightly; for each change one that is built in half the time.
if [ "${RADIXKV_TORCH:-}" != real ]; then export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16; fi

cargo fmt --manifest-path "$package/Cargo.toml" -- --check
python3 -m venv --clear "$work/venv"
export PATH="$work/venv/bin:$PATH" VIRTUAL_ENV="$work/venv"
pip install -q cbor2 'maturin>=1.9,<2' msgspec mypy numpy pytest typing_extensions
if [ "${RADIXKV_TORCH:-}" = real ]; then pip install -q 'torch==2.14.1'; fi
if [ ! -d "$work/sglang-$sglang" ]; then
    pip download -q --no-deps --python-version 3.11 --only-binary :all: --dest "$work" "sglang==$sglang"
    python -m zipfile -e "$work/sglang-$sglang"-*.whl "$work/sglang-$sglang.part"
    mv "$work/sglang-$sglang.part" "$work/sglang-$sglang"
    rm "$work/sglang-$sglang"-*.whl
fi
if [ ! -d "$work/vllm-$vllm" ] && [ "${RADIXKV_TORCH:-}" = real ]; then
    pip download -q --no-deps --python-version 3.11 --platform manylinux_2_28_x86_64 --only-binary :all: \
        --dest "$work" "vllm==$vllm"
    python - "$work/vllm-$vllm"-*.whl "$work/vllm-$vllm.part" <<'END'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.endswith(".py")])
END
    mv "$work/vllm-$vllm.part" "$work/vllm-$vllm"
    rm "$work/vllm-$vllm"-*.whl
fi
features=${RADIXKV_FEATURES:-}
cargo clippy --release --locked --manifest-path "$package/Cargo.toml" --features "$features" -- -D warnings
rm -rf "$work/wheel"
pip wheel -q --no-build-isolation --no-deps --wheel-dir "$work/wheel" "./$package" \
    ${features:+--config-settings "build-args=--features $features"}
pip install -q "$work"/wheel/radixkv-*.whl

cd "$package"
RADIXKV_SGLANG="$work/sglang-$sglang" RADIXKV_VLLM="$work/vllm-$vllm" python -m pytest -q -p no:cacheprovider
if [ "${RADIXKV_TORCH:-}" = real ]; then
    if [ -n "$sglang_tests" ]; then
        RADIXKV_SGLANG="$work/sglang-$sglang" python tests/sglang/upstream.py "$sglang_tests"
    else
        echo "SGLang's own tests do not run: RADIXKV_SGLANG_TESTS does not name their folder"
    fi
fi
mypy --strict --cache-dir "$work/mypy" tests/typed.py
python -m mypy.stubtest radixkv._radixkv
# The same wheel in an interpreter that checks itself and counts its references, if one is named.
if [ -n "${RADIXKV_DEBUG_PYTHON:-}" ]; then
    "$RADIXKV_DEBUG_PYTHON" -m venv --clear "$work/debug"
    "$work/debug/bin/python" -m pip install -q numpy pytest "$work"/wheel/radixkv-*.whl
    "$work/debug/bin/python" -X dev -m pytest -q -p no:cacheprovider
fi
# A wheel for a free-threaded interpreter, if one is named.
if [ -n "${RADIXKV_FREE_THREADED_PYTHON:-}" ]; then
    "$RADIXKV_FREE_THREADED_PYTHON" -m venv --clear "$work/free-threaded"
    "$work/free-threaded/bin/python" -m pip install -q numpy pytest .
    "$work/free-threaded/bin/python" -m pytest -q -p no:cacheprovider
fi
