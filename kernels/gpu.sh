#!/usr/bin/env bash
# Everything that needs a GPU, in under eight minutes, with the binaries that `kernels/gpu.sh pack`
# built before; nothing is compiled on that machine except what Triton compiles for itself.
#
#   kernels/gpu.sh pack     builds the kit, target/gpu-kit: the test and the bench of radixkv-cuda
#   kernels/gpu.sh          environment, load table, self-test, tests, sanitizers on small shapes, the
#                           bench, others on the same shapes
#
# git ignores the kit: copy it to the same path of a checkout on the other machine. That needs a C
# library as new as this one's and NVIDIA's driver, Python 3 for the load table, PyTorch and Triton
# for the comparison; a missing one is noted. The output is written to $OUT (target/gpu) at once, so
# that a time limit loses nothing; the tables come last. Without a GPU the script exits with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
kit=target/gpu-kit
out=${OUT:-target/gpu}

# binary COMMAND ARGUMENT...: path of the executable that this cargo command builds; what the
# compiler refuses is shown.
binary() {
    cargo "$@" -q --locked -p radixkv-cuda --no-run --message-format=json-render-diagnostics | tr ',' '\n' |
        sed -nE 's/^"executable":"([^"]+)".*/\1/p' | tail -1
}

if [ "${1:-}" = pack ]; then
    # An older kit is not left in the place of one that does not build.
    rm -rf "$kit"
    mkdir -p "$kit"
    tests=$(binary test --release --test gpu)
    bench=$(binary bench --bench gpu)
    strip -o "$kit/tests-gpu" "$tests"
    strip -o "$kit/bench-gpu" "$bench"
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

# step SECONDS NAME COMMAND...: runs the command and notes its failure; exit code 77 means skipped.
step() {
    local limit=$1 name=$2 code=0 began=$SECONDS
    shift 2
    echo "== $name"
    timeout "$limit" "$@" || code=$?
    if [ $code -eq 124 ]; then echo "$name: not finished after $limit s"; fi
    if [ $code -eq 77 ]; then note "| $name | skipped |"; elif [ $code -ne 0 ]; then failed+=("$name ($code)"); fi
    echo "== $name: $((SECONDS - began)) s"
}

# Before a file and a command: what the command prints is kept in the file too.
keep=(bash -o pipefail -c 'file=$1; shift; "$@" 2>&1 | tee "$file"' keep)

# note TEXT: a line of the table of tools, printed at the end.
notes=()
note() {
    notes+=("$1")
    echo "$1"
}

# sanitize TOOL: the bench on small shapes under a tool. What it finds is a failure; a tool that
# does not run there is a line.
sanitize() {
    local tool=$1 code=0 said
    echo "== compute-sanitizer $tool"
    timeout 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$kit/bench-gpu" --small > "$out/$tool.txt" 2>&1 || code=$?
    tail -2 "$out/$tool.txt"
    case $code in
        0) note "| compute-sanitizer $tool | no errors |" ;;
        9) note "| compute-sanitizer $tool | ERRORS: $out/$tool.txt |" && failed+=("compute-sanitizer $tool") ;;
        124) note "| compute-sanitizer $tool | not finished after 60 s |" ;;
        *)
            said=$(grep -iE 'error|fail|not supported|unable' "$out/$tool.txt" | head -1 | cut -c1-100 || true)
            note "| compute-sanitizer $tool | refused ($code): $said |"
            ;;
    esac
}

# has COMMAND STEP: whether the command exists; if not, the step is a line.
has() {
    command -v "$1" > /dev/null || { note "| $2 | $1: not there |"; return 1; }
}

date -u
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,temperature.gpu --format=csv || true
if has python3 'load table'; then step 60 'load table and self-test' python3 kernels/bench/device.py; fi
if has "$kit/tests-gpu" tests; then
    # The self-test alone first: where the helpers differ, no other figure means anything.
    step 20 'self-test' "$kit/tests-gpu" selftest
    step 90 'tests' "$kit/tests-gpu" --test-threads=1
else
    failed+=('tests: not built, run kernels/gpu.sh pack first')
fi
if has "$kit/bench-gpu" bench; then
    step 150 'bench' "${keep[@]}" "$out/bench.txt" "$kit/bench-gpu"
    if has compute-sanitizer sanitizers; then
        for tool in memcheck racecheck initcheck; do sanitize $tool; done
    fi
else
    failed+=('bench: not built, run kernels/gpu.sh pack first')
fi
if has python3 others; then step 90 'others' "${keep[@]}" "$out/others.txt" python3 kernels/bench/others.py; fi

for file in others bench; do [ ! -e "$out/$file.txt" ] || { echo; cat "$out/$file.txt"; }; done
[ ${#notes[@]} -eq 0 ] || printf '%s\n' '' '| tool | |' '|---|---|' "${notes[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
echo "everything passed in $SECONDS s"
