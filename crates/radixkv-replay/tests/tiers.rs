//! Replays over a host tier: what is found where, which instance serves, what is refused.

use radixkv_host::{TierMode, TieredBuildError, WritePolicy};
use radixkv_replay::{
    Replay, ReplayConfig, ReplayError, Trace, replay,
    replay::{Capacity, Route, Tiers},
    workload::CLASSES,
};

/// Rows of tokens, a second apart.
fn trace(rows: &[&[u32]]) -> Trace {
    let row =
        |(at, tokens): (usize, &&[u32])| format!("{{\"timestamp\": {}, \"input_tok_ids\": {tokens:?}}}\n", at * 1000);
    let rows: String = rows.iter().enumerate().map(row).collect();
    Trace::from_reader(std::io::Cursor::new(rows), "rows", None).expect("a trace")
}

fn config(capacity: usize, tiers: Tiers) -> ReplayConfig {
    ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(capacity)).tiers(tiers)
}

fn run(trace: &Trace, config: &ReplayConfig) -> Replay {
    replay(trace, config, &|| {}).expect("a replay")
}

/// The tokens of each request that were found on the device, and in the host.
fn found(replayed: &Replay, block_size: usize) -> Vec<(usize, usize)> {
    let of = |outcome: &replay::Outcome| (outcome.device_tokens(block_size), outcome.host_tokens as usize);
    replayed.outcomes.iter().map(of).collect()
}

const A: &[u32] = &[1, 2, 3, 4, 5, 6];
const B: &[u32] = &[11, 12, 13, 14, 15, 16];

#[test]
fn what_the_device_evicts_is_found_in_the_host() {
    let replayed = run(&trace(&[A, B, A, B]), &config(3, Tiers::new(Capacity::Blocks(3))));
    assert_eq!(found(&replayed, 2), [(0, 0), (0, 0), (0, 6), (0, 6)]);
    let tiers = replayed.report.tiers.expect("tiers");
    assert_eq!((tiers.host_hit_tokens, tiers.first_hit_tokens, replayed.report.hit_tokens), (12, 0, 12));
    assert_eq!((tiers.onboarded_bytes, tiers.offloaded_bytes), (12 * 131_072, 18 * 131_072));
    assert_eq!(tiers.leftovers[0].blocks, 3);
}

#[test]
fn a_smaller_host_block_is_hit_inside_a_device_block() {
    let tiers = Tiers::new(Capacity::Blocks(6)).host_block_size(1);
    // The third request parts from the first one inside a block of the device.
    let replayed = run(&trace(&[A, B, &[1, 2, 3, 9, 9, 9]]), &config(3, tiers));
    assert_eq!(found(&replayed, 2), [(0, 0), (0, 0), (0, 3)]);
    let last = &replayed.outcomes[2];
    assert_eq!((last.hit_blocks, last.tail_tokens, last.computed_tokens(2)), (Some(1), 1, 3));
}

#[test]
fn a_larger_host_block_is_filled_from_all_of_its_blocks() {
    let shared = Tiers::new(Capacity::Blocks(3)).host_block_size(4).mode(TierMode::Shared);
    let replayed = run(&trace(&[&[1, 2, 3, 4, 5, 6, 7, 8], B, &[1, 2, 3, 4, 5, 6, 7, 8]]), &config(4, shared));
    // B's three blocks took the place of the last three: the device has the first one still.
    assert_eq!(found(&replayed, 2)[2], (2, 6));
}

#[test]
fn instances_find_what_others_left() {
    let shared = Tiers::new(Capacity::Blocks(9)).mode(TierMode::Shared).instances(2);
    let rows: &[&[u32]] = &[A, B, B, A];
    // Round robin: the first instance serves A and B, the second B and A.
    let replayed = run(&trace(rows), &config(3, shared));
    assert_eq!(found(&replayed, 2), [(0, 0), (0, 0), (0, 0), (0, 6)]);
    let through = run(&trace(rows), &config(3, shared.write(WritePolicy::Through)));
    assert_eq!(found(&through, 2), [(0, 0), (0, 0), (0, 6), (0, 6)]);
    let routed = run(&trace(&[A, B, B, A]), &config(3, shared.route(Route::Prefix)));
    assert_eq!(found(&routed, 2), [(0, 0), (0, 0), (6, 0), (6, 0)]);
}

#[test]
fn the_device_finds_what_a_cache_alone_finds() {
    for class in CLASSES {
        let trace = class.trace(1);
        let alone = ReplayConfig::default().capacity(Capacity::Percent(10.0));
        let tiered = alone.clone().tiers(Tiers::new(Capacity::Percent(20.0)));
        let (alone, tiered) = (run(&trace, &alone).report, run(&trace, &tiered).report);
        let tiers = tiered.tiers.expect("tiers");
        assert_eq!(tiers.first_digest, alone.match_digest, "{}", class.name);
        // Two exclusive tiers are one cache that is as large as both, for requests that fit the first one.
        let both = ReplayConfig::default().capacity(Capacity::Blocks(tiered.capacity + tiers.host_capacity));
        let both = run(&trace, &both.longest(tiered.capacity)).report;
        assert_eq!(tiered.match_digest, both.match_digest, "{}", class.name);
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let (trace, tiers) = (trace(&[A]), Tiers::new(Capacity::Blocks(3)));
    let refused = |config: ReplayConfig| replay(&trace, &config, &|| {}).expect_err("refused");
    let sizes = refused(config(3, tiers.host_block_size(3)));
    assert!(matches!(sizes, ReplayError::Tiers(TieredBuildError::BlockSizes { device: 2, host: 3 })), "{sizes}");
    let pieces = refused(config(3, tiers.host_block_size(4)));
    assert!(matches!(pieces, ReplayError::Tiers(TieredBuildError::ExclusiveInPieces { .. })), "{pieces}");
    assert!(matches!(refused(config(3, tiers.instances(0))), ReplayError::ZeroInstances));
    assert!(matches!(refused(config(3, tiers).threads(2)), ReplayError::TiersExclude));
    assert!(matches!(refused(config(3, tiers).hold(true)), ReplayError::TiersExclude));
}
