//! Replays equal those of the oracle, an independent program: the same hits, evictions and digest
//! for every policy and capacity that it was run with.
//!
//! The traces and the oracle's results are in `../shared`, beside the repository; without that
//! folder these tests print that they are skipped. A debug build replays the small traces; the
//! ignored tests replay the others in release builds:
//! `cargo test --release --test replay_golden -- --include-ignored`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use radixkv_replay::{ReplayConfig, Trace, replay, replay::Capacity};
use serde_json::Value;

/// Policies and capacities at which a debug build also replays Mooncake's synthetic trace.
const MOONCAKE_QUICK: &[(&str, u64)] = &[("lru", 13_321), ("slru", 133_211)];

fn shared() -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if shared.join("oracle/golden.json").exists() {
        return Some(shared);
    }
    println!("skipped: {} has no traces and no oracle", shared.display());
    None
}

fn golden(shared: &Path, name: &str) -> Value {
    let text = fs::read(shared.join("oracle").join(name)).expect("the oracle's results");
    serde_json::from_slice(&text).expect("valid results")
}

fn open(shared: &Path, name: &str) -> Trace {
    Trace::open(shared.join(format!("traces/{name}.jsonl.zst")), None).expect("a readable trace")
}

fn number(run: &Value, key: &str) -> usize {
    run[key].as_u64().unwrap_or_else(|| panic!("{key} of {run}")) as usize
}

fn config(run: &Value) -> ReplayConfig {
    ReplayConfig::default()
        .block_size(number(run, "block_size"))
        .capacity(Capacity::Blocks(number(run, "capacity")))
        .policy(run["policy"].as_str().expect("a policy").parse().expect("a policy of this cache"))
        .outputs(run["outputs"].as_bool().expect("outputs"))
}

/// Repeats a replay of the oracle and compares everything that the oracle reported.
fn check(trace: &Trace, run: &Value) {
    let replayed = replay(trace, &config(run), &|| {}).unwrap_or_else(|error| panic!("{run}: {error}"));
    let report = serde_json::to_value(&replayed.report).expect("a report");
    let extra = ["trace", "unit", "fraction"];
    for (key, expected) in run.as_object().expect("a run").iter().filter(|(key, _)| !extra.contains(&key.as_str())) {
        assert_eq!(&report[key], expected, "{key} of {run}");
    }
}

/// The runs of golden.json that follow the rules of this cache: whole blocks, strict statistics,
/// one of its policies.
fn comparable(trace: &Value) -> impl Iterator<Item = &Value> {
    let runs = trace["runs"].as_array().expect("runs");
    runs.iter().filter(|run| {
        let policy = run["policy"].as_str().expect("a policy");
        run["granularity"] == "block" && run["flavor"] == "strict" && !["belady", "infinite"].contains(&policy)
    })
}

/// Replays the comparable runs of a trace that `wanted` selects, and returns their number.
fn check_golden(shared: &Path, name: &str, wanted: impl Fn(&Value) -> bool) -> usize {
    let golden = golden(shared, "golden.json");
    let trace = open(shared, name);
    comparable(&golden["traces"][name]).filter(|run| wanted(run)).map(|run| check(&trace, run)).count()
}

fn check_adversarial(name: &str) {
    let Some(shared) = shared() else { return };
    let golden = golden(&shared, "golden_adversarial.json");
    let trace = open(&shared, name);
    let runs: Vec<&Value> = golden.as_array().expect("runs").iter().filter(|run| run["trace"] == name).collect();
    assert_eq!(runs.len(), 216);
    assert_eq!(trace.unit(), Some(number(runs[0], "unit")));
    for run in runs {
        check(&trace, run);
    }
}

// Holds: EV1, RP1.
#[test]
fn adversarial_0_equals_the_oracle() {
    check_adversarial("adversarial_0");
}

// Holds: AG3.
#[test]
fn adversarial_1_equals_the_oracle() {
    check_adversarial("adversarial_1");
}

// Holds: RP1.
#[test]
fn taubench_equals_the_oracle() {
    let Some(shared) = shared() else { return };
    assert_eq!(check_golden(&shared, "taubench_airline_b16", |_| true), 42);
}

#[test]
fn mooncake_equals_the_oracle_where_that_is_quick() {
    let Some(shared) = shared() else { return };
    let quick = |run: &Value| {
        let wanted = |(policy, capacity): &(&str, u64)| run["policy"] == *policy && run["capacity"] == *capacity;
        run["outputs"] == false && MOONCAKE_QUICK.iter().any(wanted)
    };
    assert_eq!(check_golden(&shared, "mooncake_synthetic", quick), MOONCAKE_QUICK.len());
}

#[test]
#[ignore = "replays 145 million tokens 42 times: for release builds; run by ci/nightly.sh"]
fn mooncake_conversation_equals_the_oracle() {
    let Some(shared) = shared() else { return };
    assert_eq!(check_golden(&shared, "mooncake_conversation", |_| true), 42);
}

#[test]
#[ignore = "replays 61 million tokens 42 times: for release builds; run by ci/nightly.sh"]
fn mooncake_synthetic_equals_the_oracle() {
    let Some(shared) = shared() else { return };
    assert_eq!(check_golden(&shared, "mooncake_synthetic", |_| true), 42);
}

#[test]
fn units_and_working_sets_are_known() {
    let Some(shared) = shared() else { return };
    let golden = golden(&shared, "golden.json");
    for (name, entry) in golden["traces"].as_object().expect("traces") {
        let (trace, stats) = (open(&shared, name), &entry["stats"]);
        assert_eq!(trace.unit(), Some(number(stats, "hash_unit_tokens")), "unit of {name}");
        assert_eq!(trace.requests().len(), number(stats, "requests"), "requests of {name}");
        assert_eq!(trace.prompt_tokens(), number(stats, "prompt_tokens") as u64, "prompt tokens of {name}");
        assert_eq!(trace.working_set_blocks(16), number(stats, "working_set_blocks"), "working set of {name}");
    }
}

#[test]
fn threads_share_one_cache_and_lose_nothing() {
    let Some(shared) = shared() else { return };
    for (name, capacity, checks) in [("adversarial_0", 300, 100), ("adversarial_1", 150, 20)] {
        let config = ReplayConfig::default().capacity(Capacity::Blocks(capacity)).threads(4);
        let config = config.outputs(true).verify(true).checks(checks);
        let replayed = replay(&open(&shared, name), &config, &|| {}).expect("every check passes");
        assert_eq!(replayed.report.verify_errors, Some(0), "{name}: {:?}", replayed.mismatches);
        assert_eq!(replayed.report.requests, 2000);
        let report = replayed.report;
        assert_eq!(report.inserted_blocks - report.evicted_blocks, report.final_blocks as u64);
        let rows: Vec<usize> = replayed.outcomes.iter().map(|outcome| outcome.row).collect();
        assert!(rows.is_sorted(), "outcomes are in trace order");
    }
}
