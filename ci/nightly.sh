#!/usr/bin/env bash
# Everything that is too slow for each change: well over an hour on two cores. A failure stops
# nothing. Ends with a table of the steps in Markdown, which is also in
# target/ci/nightly/summary.md.
#
# HISTORIES, STRESS_SECONDS, STOPS_SECONDS, LOAD_SECONDS, FUZZ_SECONDS (for each target),
# SHUTTLE_ITERS, LOOM_SECONDS (cap for each model at four preemptions) and DEEP_SECONDS (cap for
# each model without a bound, which those of two threads mostly end before) say how much.
set -uo pipefail
cd "$(dirname "$0")/.."

histories=${HISTORIES:-100000} stress=${STRESS_SECONDS:-60} fuzz=${FUZZ_SECONDS:-120} schedules=${SHUTTLE_ITERS:-50000}
loom=${LOOM_SECONDS:-15} deep=${DEEP_SECONDS:-5} stops=${STOPS_SECONDS:-60} requests=${LOAD_SECONDS:-60}

source ci/steps.sh nightly

models() {
    step 'models, 3 preemptions' bash ci/loom.sh
    step "models, 4 preemptions, $loom s each" env LOOM_MAX_PREEMPTIONS=4 LOOM_MAX_DURATION="$loom" bash ci/loom.sh
    step "models, all preemptions, $deep s each" env RADIXKV_UNBOUNDED=1 LOOM_MAX_DURATION="$deep" bash ci/loom.sh
    step "$schedules random and PCT schedules" env SHUTTLE_ITERS="$schedules" bash ci/shuttle.sh
    step 'seeded bugs' python3 loom_tests/seeded_bugs.py
}
kernels() { step 'kernels' bash kernels/check.sh; }

machine() {
    step 'peers' bash benches/peers/check.sh
    step 'events, pyzmq' bash crates/radixkv-events/peers/run.sh
    step 'tiers: lints' cargo clippy --locked -p radixkv-tiers --all-features --all-targets -- -D warnings
    step 'tiers: Redis, object stores' cargo test --locked -p radixkv-tiers --all-features
    step 'tiers: S3' bash crates/radixkv-tiers/peers/s3/run.sh
    step 'host tier: content' env STRESS_SECONDS=60 cargo test --release -p radixkv-host --test content
    step 'host tier: three tiers' env STRESS_SECONDS=60 cargo test --release -p radixkv-host --test three_tiers
    step 'spans' cargo test --locked -p radixkv --features tracing --test spans
    step 'holds' cargo test --locked -p radixkv --features holds --lib lock::
    step 'holds, examples' cargo test --locked -p radixkv --features holds --doc hold
    step 'metrics, two parsers' bash crates/radixkv-metrics/peers/run.sh
    step 'region: seeded bugs' python3 crates/radixkv-region/seeded_bugs.py
    step 'host tier: seeded bugs' python3 crates/radixkv-host/seeded_bugs.py
    step 'region: threads' env STRESS_SECONDS=60 cargo test --release -p radixkv-region --test threads
    step 'radixkv follow' cargo test --locked -p radixkv-replay --features follow --test follow_cli --bin radixkv
    step 'C: installed' make -C bindings/c install PREFIX=/usr DESTDIR="$(realpath "$logs")/c"
    step 'radixkv region' cargo test --locked -p radixkv-replay --features region --test region_cli --bin radixkv
    step 'save: encryption' cargo test --locked -p radixkv-save --features encryption --test encrypted
    step 'region: encryption' cargo test --locked -p radixkv-region --features encryption --lib --test sealed
    step 'clients of the engine' bash examples/engine/clients/check.sh
    step 'Python: torch, two minutes of threads' env RADIXKV_TORCH=real RADIXKV_STRESS_SECONDS=120 RADIXKV_VLLM_KILLS=100 \
        RADIXKV_DEBUG_PYTHON="$(command -v python3.11-dbg || true)" RADIXKV_FEATURES=encryption,object-store,redis \
        RADIXKV_FREE_THREADED_PYTHON="$(command -v python3.14t || true)" \
        bash ci/python.sh
    step 'a crowd of clients' env ENGINE_CROWD_SECONDS=60 ENGINE_TOKENIZERS=20000 \
        cargo test --release -p radixkv-engine --test engine -- crowd random_changes
    step 'every test, optimised' env RUST_TEST_NOCAPTURE=1 cargo test --release --workspace \
        --exclude radixkv-cuda --exclude loom_tests --no-fail-fast -- --include-ignored
    step 'faults and limits' bash ci/faults.sh release
    # Tests that expect no exact order of evictions, with three shards in every cache.
    step 'three shards' env RUSTFLAGS='--cfg radixkv_shards' CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shards" cargo test --release --locked -p radixkv \
        --test acquire --test appending --test histories --test limits --test listening --test load --test storm --test stress \
        --test turns --test waiting --test wake_ups
    # Bash counts in SECONDS itself: only `env` can set it.
    step "threads stopped anywhere, $stops s" env SECONDS="$stops" cargo test --release --test stops -- --nocapture
    step "load beside its ideal, $requests s" env SECONDS="$requests" cargo test --release --test load -- --nocapture
    step "$histories histories of pool and tree each" bash ci/histories.sh "$histories"
    step "address sanitizer, $stress s" bash ci/asan.sh "$stress"
    step "thread sanitizer, $stress s" bash ci/tsan.sh "$stress"
    step "fuzzing, $fuzz s a target" bash fuzz/run.sh "$fuzz"
    step 'tests with each feature alone' bash ci/features.sh tests
    if command -v cargo-deny >/dev/null; then step 'licences and bans' cargo deny check bans licenses sources; fi
}

# Alone: beside other work the same build takes up to a quarter longer.
step 'the first two commands' bash ci/first_hour.sh
lanes models kernels machine
