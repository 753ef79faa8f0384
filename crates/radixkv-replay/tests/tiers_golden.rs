//! A cache over an exclusive host tier equals the oracle's two tiers: the same hits in both,
//! request by request.
//!
//! The traces and the oracle's results are in `../shared`, beside the repository; without that
//! folder these tests print that they are skipped. A debug build replays the small trace; the
//! ignored tests replay the others in release builds:
//! `cargo test --release -p radixkv-replay --test tiers_golden -- --include-ignored`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use radixkv_host::{TierMode, WritePolicy};
use radixkv_replay::{
    ReplayConfig, Report, Trace, replay,
    replay::{Capacity, TierReport, Tiers},
};
use serde_json::Value;

fn shared() -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if shared.join("oracle/golden.json").exists() {
        return Some(shared);
    }
    println!("skipped: {} has no traces and no oracle", shared.display());
    None
}

fn open(shared: &Path, name: &str) -> Trace {
    Trace::open(shared.join(format!("traces/{name}.jsonl.zst")), None).expect("a readable trace")
}

fn replayed(trace: &Trace, capacity: Capacity, tiers: Tiers) -> (Report, TierReport) {
    let config = ReplayConfig::default().capacity(capacity).tiers(tiers);
    let report = replay(trace, &config, &|| {}).expect("a replay").report;
    let tiers = report.tiers.clone().expect("tiers were asked for");
    (report, tiers)
}

/// Repeats each of the oracle's replays with two tiers and compares everything that it reported.
fn check_two_tiers(name: &str) {
    let Some(shared) = shared() else { return };
    let text = fs::read(shared.join("oracle/golden.json")).expect("the oracle's results");
    let golden: Value = serde_json::from_slice(&text).expect("valid results");
    let trace = open(&shared, name);
    let runs = golden["traces"][name]["two_tiers"].as_array().expect("runs").clone();
    assert_eq!(runs.len(), 4);
    for run in runs {
        let blocks = |key: &str| Capacity::Blocks(run[key].as_u64().expect("blocks") as usize);
        let (report, tiers) = replayed(&trace, blocks("first_blocks"), Tiers::new(blocks("second_blocks")));
        assert_eq!(tiers.first_digest, run["first_digest"], "{run}");
        assert_eq!(report.match_digest, run["digest"], "{run}");
        assert_eq!(tiers.first_hit_tokens, run["first_hit_tokens"], "{run}");
        assert_eq!(report.hit_tokens, run["hit_tokens"], "{run}");
        assert_eq!(report.bypassed_requests, run["bypassed_requests"].as_u64().expect("a number") as usize, "{run}");
        assert!(tiers.host_peak_blocks <= tiers.host_capacity);
    }
}

// Holds: HT4.
#[test]
fn taubench_equals_the_oracle() {
    check_two_tiers("taubench_airline_b16");
}

#[test]
#[ignore = "replays 145 million tokens four times: for release builds; run by ci/nightly.sh"]
fn mooncake_conversation_equals_the_oracle() {
    check_two_tiers("mooncake_conversation");
}

#[test]
#[ignore = "replays 61 million tokens four times: for release builds; run by ci/nightly.sh"]
fn mooncake_synthetic_equals_the_oracle() {
    check_two_tiers("mooncake_synthetic");
}

/// Four caches of 2 % share one host tier of 32 %, in turn, compared with one cache of 40 %. With
/// write-through, a block is in the host once and at once, so the four hit nearly as much as a
/// cache of 32 %: uses on a device do not refresh the host's order. With write-back, only the cache
/// that has a block hits it, until that cache evicts it.
#[test]
#[ignore = "replays 145 million tokens four times: for release builds; run by ci/nightly.sh"]
fn four_caches_over_one_tier_come_near_a_cache_as_large_as_all_of_them() {
    let Some(shared) = shared() else { return };
    let trace = open(&shared, "mooncake_conversation");
    let alone = |percent| {
        let config = ReplayConfig::default().capacity(Capacity::Percent(percent));
        replay(&trace, &config, &|| {}).expect("a replay").report.hit_rate
    };
    let (as_host, as_all) = (alone(32.0), alone(40.0));
    let tiers = Tiers::new(Capacity::Percent(32.0)).mode(TierMode::Shared).instances(4);
    let over = |write| replayed(&trace, Capacity::Percent(2.0), tiers.write(write));
    let ((back, _), (through, in_tiers)) = (over(WritePolicy::Back), over(WritePolicy::Through));
    let (back, through) = (back.hit_rate, through.hit_rate);
    println!("four: written back {back}, through {through}; one: of 32 % {as_host}, of 40 % {as_all}");
    assert!(through >= 0.99 * as_host && through >= 0.97 * as_all && through > back);
    assert!(in_tiers.host_peak_blocks <= in_tiers.host_capacity, "a block is in the host once");
}
