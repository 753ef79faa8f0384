//! The points of a sweep equal the oracle's runs, and those of replays: hits, evictions, digest.
//!
//! The traces and the oracle's results are in `../shared`, beside the repository; without that
//! folder the tests that need them print that they are skipped. The ignored test sweeps over all
//! policies of the large traces: for release builds.

use std::{
    fs,
    path::{Path, PathBuf},
};

use radixkv::PolicyKind;
use radixkv_replay::{
    ReplayConfig, Trace, replay,
    replay::Capacity,
    sweep::{Line, Sweep, SweepConfig, SweepPlan},
    workload::CLASSES,
};
use serde_json::Value;

const SIX: [PolicyKind; 6] =
    [PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Fifo, PolicyKind::Mru, PolicyKind::Filo, PolicyKind::Slru];

fn shared() -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if shared.join("oracle/golden.json").exists() {
        return Some(shared);
    }
    println!("skipped: {} has no traces and no oracle", shared.display());
    None
}

fn golden(shared: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(shared.join("oracle").join(name)).expect("the oracle's results")).expect("results")
}

fn open(shared: &Path, name: &str) -> Trace {
    Trace::open(shared.join(format!("traces/{name}.jsonl.zst")), None).expect("a readable trace")
}

fn number(run: &Value, key: &str) -> usize {
    run[key].as_u64().unwrap_or_else(|| panic!("{key} of {run}")) as usize
}

fn sweep(trace: &Trace, config: &SweepConfig) -> Sweep {
    SweepPlan::new(trace, config).expect("a plan").run(&|| {}).expect("a sweep")
}

/// Compares every run under these rules with the point of its line and capacity; returns the number
/// of runs.
fn check(runs: &[&Value], trace: &Trace, policies: &[PolicyKind], block_size: usize, outputs: bool) -> usize {
    let lines = policies.iter().map(|policy| policy.name()).chain(["apc", "apc-vllm", "belady"]);
    let lines: Vec<&str> = lines.collect();
    let is_comparable = |run: &&&Value| {
        let is =
            |key: &str, wanted: &[&str]| run.get(key).is_none_or(|value| wanted.iter().any(|wanted| value == wanted));
        is("granularity", &["block"])
            && is("flavor", &["strict", "flat"])
            && run["outputs"] == outputs
            && number(run, "block_size") == block_size
            && lines.contains(&run["policy"].as_str().expect("a policy"))
    };
    let runs: Vec<&Value> = runs.iter().filter(is_comparable).copied().collect();
    let mut capacities: Vec<usize> = runs.iter().map(|run| number(run, "capacity")).collect();
    capacities.sort_unstable();
    capacities.dedup();
    let config = SweepConfig {
        capacities: capacities.into_iter().map(Capacity::Blocks).collect(),
        policies: policies.to_vec(),
        block_sizes: vec![block_size],
        outputs,
        ..SweepConfig::default()
    };
    let sweep = sweep(trace, &config);
    for run in &runs {
        let is_of_run = |line: Line, capacity| run["policy"] == line.name() && number(run, "capacity") == capacity;
        let point = sweep.points.iter().find(|point| is_of_run(point.line, point.capacity)).expect("a point");
        let point = serde_json::to_value(point).expect("figures");
        for key in point.as_object().expect("figures").keys() {
            assert!(run.get(key).is_none_or(|expected| expected == &point[key]), "{key}: {} of {run}", point[key]);
        }
    }
    runs.len()
}

fn check_golden(name: &str, policies: &[PolicyKind]) -> usize {
    let Some(shared) = shared() else { return 0 };
    let golden = golden(&shared, "golden.json");
    let (trace, entry) = (open(&shared, name), &golden["traces"][name]);
    let runs: Vec<&Value> = entry["runs"].as_array().expect("runs").iter().collect();
    let prompts = check(&runs, &trace, policies, 16, false);
    let outputs = check(&runs, &trace, &[PolicyKind::Lru], 16, true);
    let infinite = sweep(&trace, &SweepConfig { capacities: vec![], policies: vec![], ..SweepConfig::default() });
    let [point] = &infinite.points[..] else { panic!("{infinite:?}") };
    let stats = &entry["stats"];
    assert_eq!((point.line, &stats["infinite_hit_rate"]), (Line::Infinite, &point.hit_rate.into()));
    assert_eq!(stats["infinite_match_digest"], point.match_digest);
    assert_eq!(number(stats, "working_set_blocks"), point.capacity);
    assert_eq!((prompts, outputs), (6 * (policies.len() + 3), 6), "points that were compared");
    prompts + outputs
}

// Holds: RP11.
#[test]
fn lines_equal_the_oracle_on_the_conversation() {
    check_golden("mooncake_conversation", &[PolicyKind::Lru]);
}

#[test]
fn lines_equal_the_oracle_on_the_synthetic_trace() {
    check_golden("mooncake_synthetic", &[PolicyKind::Lru]);
}

// Holds: RP11.
#[test]
fn lines_and_policies_equal_the_oracle_on_taubench() {
    check_golden("taubench_airline_b16", &SIX);
}

#[test]
#[ignore = "replays two large traces 30 times each: for release builds; run by ci/nightly.sh"]
fn policies_equal_the_oracle_on_the_large_traces() {
    check_golden("mooncake_conversation", &SIX);
    check_golden("mooncake_synthetic", &SIX);
}

fn check_adversarial(name: &str) {
    let Some(shared) = shared() else { return };
    let (golden, trace) = (golden(&shared, "golden_adversarial.json"), open(&shared, name));
    let runs: Vec<&Value> = golden.as_array().expect("runs").iter().filter(|run| run["trace"] == name).collect();
    let mut sizes: Vec<usize> = runs.iter().map(|run| number(run, "block_size")).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let both = |&size: &usize| [false, true].map(|outputs| check(&runs, &trace, &SIX, size, outputs));
    let compared: usize = sizes.iter().flat_map(both).sum();
    assert_eq!(compared, runs.len(), "points of {name} that were compared");
}

// Holds: RP11.
#[test]
fn lines_equal_the_oracle_on_adversarial_0() {
    check_adversarial("adversarial_0");
}

#[test]
fn lines_equal_the_oracle_on_adversarial_1() {
    check_adversarial("adversarial_1");
}

/// One pass has the same results as replays, at any block size, even if small caches bypass some
/// requests.
// Holds: RP11.
#[test]
fn one_pass_equals_a_replay_at_every_capacity() {
    for class in [&CLASSES[0], &CLASSES[3], &CLASSES[7], &CLASSES[10]] {
        let trace = class.trace(3);
        for (block_size, outputs) in [(16, false), (7, true), (64, false)] {
            let blocks = [1, 3, 20, 77, 150, 400, 900, 2500, 10_000, 1_000_000];
            let config = SweepConfig {
                capacities: blocks.map(Capacity::Blocks).to_vec(),
                policies: vec![PolicyKind::Lru],
                block_sizes: vec![block_size],
                outputs,
                ..SweepConfig::default()
            };
            for point in sweep(&trace, &config).points.iter().filter(|point| point.line.name() == "lru") {
                let capacity = Capacity::Blocks(point.capacity);
                let config = ReplayConfig::default().block_size(block_size).capacity(capacity).outputs(outputs);
                let report = replay(&trace, &config, &|| {}).expect("a replay").report;
                let what = format!("{} {block_size} {outputs} {}", class.name, point.capacity);
                assert_eq!(point.match_digest, report.match_digest, "{what}");
                assert_eq!((point.hit_tokens, point.hit_tokens_capped), (report.hit_tokens, report.hit_tokens_capped));
                assert_eq!(
                    (point.inserted_blocks, point.evicted_blocks),
                    (report.inserted_blocks, report.evicted_blocks)
                );
                assert_eq!(
                    (point.bypassed_requests, point.bypassed_tokens),
                    (report.bypassed_requests, report.bypassed_tokens)
                );
            }
        }
    }
}

/// Policies are replayed with one token per block, which changes no figure; only `level` depends on
/// where sequences diverge inside a block.
// Holds: RP11.
#[test]
fn every_policy_equals_a_replay_of_all_tokens() {
    let policies = [SIX.as_slice(), &[PolicyKind::Level, PolicyKind::Priority]].concat();
    for class in [&CLASSES[3], &CLASSES[7], &CLASSES[10]] {
        let trace = class.trace(5);
        for (block_size, outputs) in [(16, false), (7, true), (1, false)] {
            let config = SweepConfig {
                capacities: [40, 600, 5000].map(Capacity::Blocks).to_vec(),
                policies: policies.clone(),
                block_sizes: vec![block_size],
                outputs,
                ..SweepConfig::default()
            };
            for point in sweep(&trace, &config).points {
                let Line::Policy(policy) = point.line else { continue };
                let capacity = Capacity::Blocks(point.capacity);
                let config = ReplayConfig::default().block_size(block_size).capacity(capacity).outputs(outputs);
                let report = replay(&trace, &config.policy(policy), &|| {}).expect("a replay").report;
                let what = format!("{} {block_size} {outputs} {} {policy}", class.name, point.capacity);
                let of = |value: serde_json::Value| {
                    let keys = ["hit_tokens", "hit_rate", "hit_tokens_capped", "hit_rate_capped", "inserted_blocks"];
                    let more = ["evicted_blocks", "bypassed_requests", "bypassed_tokens", "match_digest"];
                    keys.into_iter().chain(more).map(|key| value[key].clone()).collect::<Vec<_>>()
                };
                let [swept, replayed] = [serde_json::to_value(&point), serde_json::to_value(&report)]
                    .map(|value| of(value.expect("figures")));
                assert_eq!(swept, replayed, "{what}");
            }
        }
    }
}

#[test]
fn points_are_in_order_and_steps_are_counted() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let trace = CLASSES[2].trace(0);
    let config = SweepConfig {
        policies: vec![PolicyKind::Slru, PolicyKind::Lru],
        capacities: vec![Capacity::Percent(20.0), Capacity::Percent(5.0)],
        block_sizes: vec![64, 16],
        ..SweepConfig::default()
    };
    let plan = SweepPlan::new(&trace, &config).expect("a plan");
    let served = AtomicUsize::new(0);
    let sweep = plan.run(&|| _ = served.fetch_add(1, Relaxed)).expect("a sweep");
    assert_eq!(served.into_inner(), plan.steps());
    let names: Vec<&str> = sweep.points.iter().take(11).map(|point| point.line.name()).collect();
    let lines = ["slru", "lru", "apc", "apc-vllm", "belady"];
    assert_eq!(names, [&lines[..], &lines, &["infinite"]].concat());
    let sizes: Vec<usize> = sweep.points.iter().map(|point| point.block_size).collect();
    assert_eq!(sizes, [[64; 11], [16; 11]].concat());
    assert!(sweep.points[0].capacity > sweep.points[5].capacity, "as they were asked for");
}
