//! Several threads share one cache: in every interleaving the replay ends, the blocks of hits hold
//! the matched tokens, and no block is lost.

use radixkv::PolicyKind;
use radixkv_replay::{
    ReplayConfig, Report, replay,
    replay::Capacity,
    workload::{CLASSES, Class},
};

fn class(name: &str) -> Class {
    *CLASSES.iter().find(|class| class.name == name).expect("a class")
}

fn shared_by_four(class: Class, config: ReplayConfig) -> Report {
    let trace = class.trace(1);
    let config = config.threads(4).verify(true);
    let replayed = replay(&trace, &config, &|| {}).unwrap_or_else(|error| panic!("{}: {error}", class.name));
    let report = replayed.report;
    assert_eq!(report.verify_errors, Some(0), "{}: {:?}", class.name, replayed.mismatches);
    assert_eq!(report.requests, trace.requests().len());
    assert_eq!(report.inserted_blocks - report.evicted_blocks, report.final_blocks as u64, "{}", class.name);
    assert!(replayed.outcomes.iter().map(|outcome| outcome.row).eq(trace.requests().iter().map(|r| r.row())));
    report
}

// Holds: LE1.
#[test]
fn every_check_passes_under_every_policy() {
    for policy in PolicyKind::ALL.iter().copied() {
        let config = ReplayConfig::default().policy(policy).capacity(Capacity::Percent(20.0)).checks(100);
        shared_by_four(class("tree-of-thought"), config);
    }
}

/// The largest request takes nearly all blocks, so leases of one thread prevent the reservations of
/// another.
#[test]
fn a_cache_that_is_too_small_for_its_threads_still_serves_all() {
    let adversarial = class("adversarial");
    let largest = adversarial.trace(1).requests().iter().map(|r| r.key_tokens(true)).max().expect("requests");
    let capacity = Capacity::Blocks(largest / 16 + 1);
    let config = ReplayConfig::default().capacity(capacity).outputs(true).checks(10);
    assert_eq!(shared_by_four(adversarial, config).bypassed_requests, 0);
}

/// If two threads miss the same prefix, one inserts it; the blocks of the other are duplicates.
#[test]
fn a_cache_that_never_evicts_holds_the_working_set_in_any_interleaving() {
    for name in ["shared-system", "multi-turn", "adversarial"] {
        let config = ReplayConfig::default().capacity(Capacity::Percent(150.0));
        let report = shared_by_four(class(name), config);
        assert_eq!(report.evicted_blocks, 0, "{name}");
        assert_eq!(report.final_blocks, class(name).trace(1).working_set_blocks(16), "{name}");
    }
}
