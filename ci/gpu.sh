#!/usr/bin/env bash
# Everything that needs a GPU, in under seven minutes, with the binaries that `ci/gpu.sh pack` built before; nothing is compiled on that machine.
#
#   ci/gpu.sh pack     builds the kit, target/gpu-kit: the test and the bench of radixkv-cuda
#   ci/gpu.sh          environment, load table, self-test, tests, sanitizers on small shapes, the bench, others on the same shapes
#
# The whole output is written to $OUT (target/gpu if it is not set); the table comes last. Without a GPU it says so and exits with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
kit=target/gpu-kit
out=${OUT:-target/gpu}

# binary COMMAND ARGUMENT...: path of the executable that this cargo command builds.
binary() {
    cargo "$@" -p radixkv-cuda --no-run --message-format=json 2> /dev/null | tr ',' '\n' | sed -nE 's/^"executable":"([^"]+)".*/\1/p' | tail -1
}

if [ "${1:-}" = pack ]; then
    mkdir -p "$kit"
    cp "$(binary test --release --test gpu)" "$kit/tests-gpu"
    cp "$(binary bench --bench gpu)" "$kit/bench-gpu"
    strip "$kit/tests-gpu" "$kit/bench-gpu"
    ls -l "$kit"
    exit 0
fi

if ! nvidia-smi -L > /dev/null 2>&1 && [ ! -e /dev/nvidia0 ]; then
    echo 'skipped: no GPU'
    exit 0
fi
mkdir -p "$out"
rm -f "$out"/*.txt
exec > >(tee "$out/log.txt") 2>&1
failed=()

# step SECONDS NAME COMMAND...: runs the command; a failure is noted, and the next step follows.
step() {
    local limit=$1 name=$2 code=0 began=$SECONDS
    shift 2
    echo "== $name"
    timeout "$limit" "$@" || code=$?
    if [ $code -eq 124 ]; then echo "$name: not finished after $limit s"; fi
    if [ $code -ne 0 ]; then failed+=("$name ($code)"); fi
    echo "== $name: $((SECONDS - began)) s"
}

date -u
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,temperature.gpu --format=csv || true
step 25 'load table and self-test' python3 kernels/bench/device.py
if [ -x "$kit/tests-gpu" ]; then
    step 90 'tests' "$kit/tests-gpu" --test-threads=1
else
    failed+=('tests: not built, run ci/gpu.sh pack first')
fi
if [ -x "$kit/bench-gpu" ]; then
    if command -v compute-sanitizer > /dev/null; then
        for tool in memcheck racecheck initcheck; do
            step 30 "compute-sanitizer $tool" compute-sanitizer --tool $tool --error-exitcode 9 "$kit/bench-gpu" --small > "$out/$tool.txt" 2>&1
            tail -2 "$out/$tool.txt"
        done
    else
        echo 'skipped: no compute-sanitizer'
    fi
    step 120 'bench' "$kit/bench-gpu" > "$out/bench.txt" 2>&1
else
    failed+=('bench: not built, run ci/gpu.sh pack first')
fi
step 75 'others' python3 kernels/bench/others.py > "$out/others.txt" 2>&1

echo
cat "$out/others.txt"
echo
[ -e "$out/bench.txt" ] && cat "$out/bench.txt"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
echo "everything passed in $SECONDS s"
