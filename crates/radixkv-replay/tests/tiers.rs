//! Replays over a host tier: where tokens are found, which instance serves, and which errors occur.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use radixkv::{Eviction, PrefixCache, Watermarks};
use radixkv_host::{HostTier, NoCopies, TierMode, TieredBuildError, TieredCache, WritePolicy};
use radixkv_replay::{
    Replay, ReplayConfig, ReplayError, Trace, replay,
    replay::{Capacity, Route, Tiers},
    workload::CLASSES,
};

/// A trace of requests with these tokens, one second apart.
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

/// For each request, the tokens that were found on the device and in the host.
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
    // The third request diverges from the first inside a block of the device.
    let replayed = run(&trace(&[A, B, &[1, 2, 3, 9, 9, 9]]), &config(3, tiers));
    assert_eq!(found(&replayed, 2), [(0, 0), (0, 0), (0, 3)]);
    let last = &replayed.outcomes[2];
    assert_eq!((last.hit_blocks, last.tail_tokens, last.computed_tokens(2)), (Some(1), 1, 3));
}

#[test]
fn a_larger_host_block_is_filled_from_all_of_its_blocks() {
    let shared = Tiers::new(Capacity::Blocks(3)).host_block_size(4).mode(TierMode::Shared);
    let replayed = run(&trace(&[&[1, 2, 3, 4, 5, 6, 7, 8], B, &[1, 2, 3, 4, 5, 6, 7, 8]]), &config(4, shared));
    // B's three blocks replaced the last three: the device still has the first one.
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

// Holds: HT4.
#[test]
fn the_device_finds_what_a_cache_alone_finds() {
    for class in CLASSES {
        let trace = class.trace(1);
        let alone = ReplayConfig::default().capacity(Capacity::Percent(10.0));
        let tiered = alone.clone().tiers(Tiers::new(Capacity::Percent(20.0)));
        let (alone, tiered) = (run(&trace, &alone).report, run(&trace, &tiered).report);
        let tiers = tiered.tiers.expect("tiers");
        assert_eq!(tiers.first_digest, alone.match_digest, "{}", class.name);
        // Two exclusive tiers equal one cache with their total capacity, for requests that fit the
        // first.
        let both = ReplayConfig::default().capacity(Capacity::Blocks(tiered.capacity + tiers.host_capacity));
        let both = run(&trace, &both.longest(tiered.capacity)).report;
        assert_eq!(tiered.match_digest, both.match_digest, "{}", class.name);
    }
}

/// For each request, the tokens that were found in the remote tier.
fn fetched(replayed: &Replay) -> Vec<u32> {
    replayed.outcomes.iter().map(|outcome| outcome.remote_tokens).collect()
}

const C: &[u32] = &[21, 22, 23, 24, 25, 26];

#[test]
fn what_the_host_evicts_is_found_in_the_remote_tier() {
    for mode in [TierMode::Exclusive, TierMode::Shared] {
        let tiers = Tiers::new(Capacity::Blocks(3)).mode(mode).remote_capacity(Capacity::Blocks(6)).token_bytes(1000);
        let tiers = tiers.latency(1.0).bandwidth(1000.0).remote_latency(2.0).remote_bandwidth(500.0);
        let replayed = run(&trace(&[A, B, C, A]), &config(3, tiers));
        assert_eq!(found(&replayed, 2), [(0, 0); 4], "{mode:?}");
        assert_eq!(fetched(&replayed), [0, 0, 0, 6], "{mode:?}");
        let tiers = replayed.report.tiers.expect("tiers");
        let remote = tiers.remote.as_ref().expect("a remote tier");
        assert_eq!((replayed.report.hit_tokens, remote.remote_hit_tokens, tiers.host_hit_tokens), (6, 6, 0));
        // Serving C evicted A from the host, serving A evicted B, and in the shared mode also C.
        let left = if mode == TierMode::Shared { 9 } else { 6 };
        assert_eq!((remote.remote_put_bytes, remote.remote_fetched_bytes), (left * 2000, 6000), "{mode:?}");
        let blocks = (remote.remote_peak_blocks, remote.remote_final_blocks, remote.remote_evicted_blocks);
        assert_eq!(blocks, (6, 6, left - 6), "{mode:?}");
        // 6 kB are copied to the host, and then to the device.
        assert_eq!((remote.fetch_seconds, tiers.onboard_seconds), (2.0 + 12.0, 14.0 + 1.0 + 6.0));
    }
}

#[test]
fn what_copies_cost_changes_no_hit_however_much_it_is() {
    let tiers = Tiers::new(Capacity::Blocks(3)).remote_capacity(Capacity::Blocks(6));
    let free = run(&trace(&[A, B, C, A, B, A]), &config(3, tiers.token_bytes(0)));
    for slow in [0.0, f64::MIN_POSITIVE, 1.0, f64::INFINITY, f64::NAN, -1.0] {
        let dear = tiers.token_bytes(u64::MAX).bandwidth(slow).remote_bandwidth(slow);
        let dear = run(&trace(&[A, B, C, A, B, A]), &config(3, dear.latency(slow).remote_latency(slow)));
        assert_eq!((fetched(&dear), found(&dear, 2)), (fetched(&free), found(&free, 2)), "{slow}");
        assert_eq!(dear.report.match_digest, free.report.match_digest, "{slow}");
        let tiers = dear.report.tiers.expect("tiers");
        assert_eq!((tiers.offloaded_bytes, tiers.onboarded_bytes), (u64::MAX, u64::MAX), "{slow}");
        let remote = tiers.remote.expect("a remote tier");
        assert_eq!((remote.remote_put_bytes, remote.remote_fetched_bytes), (u64::MAX, u64::MAX), "{slow}");
    }
}

#[test]
fn a_remote_tier_keeps_to_its_capacity() {
    let tiers = Tiers::new(Capacity::Blocks(3)).remote_capacity(Capacity::Blocks(3));
    let replayed = run(&trace(&[A, B, C, A, B, A]), &config(3, tiers));
    // B replaced A in the remote tier, and A was found in the host.
    assert_eq!((fetched(&replayed), found(&replayed, 2)[5]), (vec![0, 0, 0, 6, 6, 0], (0, 6)));
    let remote = replayed.report.tiers.and_then(|tiers| tiers.remote).expect("a remote tier");
    assert_eq!((remote.remote_capacity, remote.remote_peak_blocks), (3, 3));
}

// Holds: HT5.
#[test]
fn the_last_of_three_tiers_loses_nothing_where_it_has_room() {
    // Only some classes: without optimization, hashing takes a second for each.
    for class in CLASSES.iter().step_by(6) {
        let trace = class.trace(1);
        let tiers = Tiers::new(Capacity::Percent(20.0)).remote_capacity(Capacity::Percent(1000.0));
        let tiered = ReplayConfig::default().capacity(Capacity::Percent(10.0)).tiers(tiers);
        let first = run(&trace, &tiered).report;
        let infinite = ReplayConfig::default().capacity(Capacity::Percent(1000.0)).longest(first.capacity);
        assert_eq!(first.match_digest, run(&trace, &infinite).report.match_digest, "{}", class.name);
        let again = run(&trace, &tiered).report;
        assert_eq!((first.match_digest, first.tiers), (again.match_digest, again.tiers), "{}", class.name);
    }
}

// Holds: HT5.
#[test]
fn a_small_remote_tier_changes_no_hit_from_run_to_run() {
    for class in CLASSES.iter().skip(2).step_by(6) {
        let trace = class.trace(1);
        let tiers = Tiers::new(Capacity::Percent(5.0)).mode(TierMode::Shared).instances(2);
        let tiers = tiers.remote_capacity(Capacity::Percent(10.0));
        let tiered = ReplayConfig::default().capacity(Capacity::Percent(5.0)).tiers(tiers);
        let [first, again] = [(); 2].map(|()| run(&trace, &tiered));
        assert_eq!(first.outcomes, again.outcomes, "{}", class.name);
        assert_eq!(first.report.tiers, again.report.tiers, "{}", class.name);
    }
}

// Holds: HT6.
#[test]
fn a_tier_smaller_than_a_request_is_said_before_the_replay() {
    let trace = trace(&[A, &[1, 2, 3, 4, 5, 6, 7, 8]]);
    let short = |capacity, tiers| config(capacity, tiers).shortages(&trace).expect("sizes");
    let said = |capacity, tiers| short(capacity, tiers).iter().map(ToString::to_string).collect::<Vec<_>>();
    let large = Tiers::new(Capacity::Blocks(4)).remote_capacity(Capacity::Blocks(4));
    assert!(short(4, large).is_empty());
    let bypassed =
        "the device holds 3 blocks of 2 tokens, the largest request has 4: it is bypassed, as are all larger ones";
    assert_eq!(said(3, large), [bypassed]);
    let small = Tiers::new(Capacity::Blocks(2)).host_block_size(1).remote_capacity(Capacity::Blocks(6));
    let host = "the host tier holds 2 blocks of 1 tokens, the largest request has 6: only a part of its evicted blocks is kept";
    assert_eq!(said(3, small), [bypassed, host]);
    let remote = small.host_block_size(2).remote_capacity(Capacity::Blocks(1));
    assert_eq!(short(4, remote).iter().map(|short| short.needed_blocks).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(ReplayConfig::default().shortages(&trace).expect("no tiers"), []);
}

/// An unfinished block counts on the device, as in the replay, and in no tier below it.
// Holds: HT6.
#[test]
fn a_shortage_is_what_the_replay_bypasses_or_loses() {
    let trace = trace(&[&[1, 2, 3, 4, 5, 6, 7], &[11, 12, 13, 14, 15, 16, 17]]);
    let replayed = |device, host| {
        let config = config(device, Tiers::new(Capacity::Blocks(host)).host_block_size(1));
        let short = config.shortages(&trace).expect("sizes");
        let replayed = run(&trace, &config);
        let kept = replayed.report.tiers.map_or(0, |tiers| tiers.leftovers.iter().map(|left| left.blocks).sum());
        (short.iter().map(|short| short.needed_blocks).collect::<Vec<_>>(), replayed.outcomes[0].hit_blocks, kept)
    };
    assert_eq!(replayed(3, 6), (vec![4], None, 0));
    // The second request evicts the three whole blocks of the first.
    assert_eq!(replayed(4, 6), (vec![], Some(0), 6));
    assert_eq!(replayed(4, 5).0, [6]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let (trace, tiers) = (trace(&[A]), Tiers::new(Capacity::Blocks(3)));
    let refused = |config: ReplayConfig| replay(&trace, &config, &|| {}).expect_err("refused");
    let sizes = refused(config(3, tiers.host_block_size(3)));
    assert!(matches!(sizes, ReplayError::Tiers(TieredBuildError::BlockSizes { device: 2, host: 3 })), "{sizes}");
    let pieces = refused(config(3, tiers.host_block_size(4)));
    assert!(matches!(pieces, ReplayError::Tiers(TieredBuildError::ExclusiveInPieces { .. })), "{pieces}");
    let remote = refused(config(3, tiers.remote_capacity(Capacity::Blocks(0))));
    assert!(matches!(remote, ReplayError::ZeroRemoteCapacity), "{remote}");
    let wide = tiers.mode(TierMode::Shared).host_block_size(1 << 21).remote_capacity(Capacity::Blocks(3));
    let said = "the remote tier cannot be built: the block size is 2097152, it must be from 1 to 1048576";
    assert_eq!(refused(config(3, wide)).to_string(), said);
    assert!(matches!(refused(config(3, tiers.instances(0))), ReplayError::ZeroInstances));
    assert!(matches!(refused(config(3, tiers).threads(2)), ReplayError::TiersExclude));
    assert!(matches!(refused(config(3, tiers).hold(true)), ReplayError::TiersExclude));
}

/// The tokens that a device and a host hit for the first requests of a trace, served one by one,
/// each once the background thread is at rest: a request finds blocks on their way nowhere.
fn hits_over_tiers(trace: &Trace, requests: usize, mode: TierMode, eviction: Eviction) -> usize {
    const BLOCK: usize = 512;
    let marks = if let Eviction::Background(marks) = eviction { marks } else { Watermarks::new(0, 0) };
    let cache = PrefixCache::builder(BLOCK, 1_024).eviction(eviction).build().expect("a cache");
    let host = HostTier::builder(BLOCK, 3_072).build().expect("a tier");
    let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(mode).build().expect("they go together");
    let (session, space) = (tiers.session(), cache.default_namespace());
    let (mut tokens, mut hits) = (Vec::new(), 0);
    for request in &trace.requests()[..requests] {
        tokens.resize(request.prompt_tokens() / BLOCK * BLOCK, 0);
        trace.fill(request, &mut tokens);
        let evicted = tiers.stats().evicted_blocks;
        let start = session.acquire(&space, &tokens, 0).expect("room");
        hits += start.len_tokens();
        drop(session.insert(&space, &start.lease, &tokens, start.blocks).expect("it fits"));
        drop(start.lease);
        let end = Instant::now() + Duration::from_secs(60);
        // A turn has begun if too few are free, or if one has evicted.
        let is_at_work = |free| free < marks.low || tiers.stats().evicted_blocks > evicted;
        while cache.free_blocks() < marks.high && is_at_work(cache.free_blocks()) {
            assert!(Instant::now() < end, "{} blocks are free", cache.free_blocks());
            thread::yield_now();
        }
    }
    assert_eq!(tiers.stats().dropped_blocks, 0);
    hits
}

/// Blocks that the background thread evicts ahead of need are stored in the host like all others.
// Holds: HT11.
#[test]
fn the_background_thread_costs_no_hit_over_a_host_tier() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = shared.join("mooncake_conversation.jsonl.zst");
    if !path.exists() {
        println!("skipped: {} has no traces", shared.display());
        return;
    }
    let trace = Trace::open(path, None).expect("a readable trace");
    for mode in [TierMode::Exclusive, TierMode::Shared] {
        let background = Eviction::Background(Watermarks::for_capacity(1_024));
        let [inline, ahead] =
            [Eviction::Inline, background].map(|eviction| hits_over_tiers(&trace, 3_000, mode, eviction));
        println!("{mode:?}: {inline} tokens inline, {ahead} by the background thread");
        assert!(ahead as f64 > 0.99 * inline as f64, "{mode:?}: {inline} inline, {ahead} by the thread");
    }
}
