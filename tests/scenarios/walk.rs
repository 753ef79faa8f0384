//! What a walk shows of a cache.

use radixkv::{BlockId, Namespace, Token};

use crate::{Bench, sequence};

/// Every cached sequence from the beginning to the end of a run, with its blocks, in the order of
/// the walk.
fn paths(_bench: &Bench, space: &Namespace) -> Vec<(Vec<Token>, Vec<BlockId>)> {
    let mut paths: Vec<(Vec<Token>, Vec<BlockId>)> = Vec::new();
    space.walk(|run| {
        let (mut tokens, mut blocks) = run.parent.map_or_else(Default::default, |parent| paths[parent].clone());
        tokens.truncate(run.start);
        blocks.truncate(run.start / 4);
        tokens.extend(run.tokens);
        blocks.extend(run.blocks);
        assert_eq!(run.id, paths.len());
        paths.push((tokens, blocks));
    });
    paths
}

#[test]
fn every_cached_sequence_is_seen_with_its_blocks() {
    let bench = Bench::new(4, 256);
    let mut dice = fastrand::Rng::with_seed(9);
    for _ in 0..60 {
        // Branches anywhere, inside blocks too.
        let (stem, cut) = (sequence(dice.u32(..4), 24), dice.usize(..24));
        drop(bench.insert(&[&stem[..cut], &sequence(10 + dice.u32(..40), dice.usize(1..20))].concat()));
        if dice.u8(..6) == 0 {
            bench.cache.evict(dice.usize(..10));
        }
    }
    let space = bench.cache.default_namespace();
    let paths = paths(&bench, &space);
    for (tokens, blocks) in &paths {
        let hit = bench.session.match_prefix_untouched(&space, tokens);
        assert_eq!((hit.len_tokens(), hit.blocks()), (tokens.len() / 4 * 4, &blocks[..]));
    }
    let mut own: Vec<BlockId> = Vec::new();
    space.walk(|run| own.extend(run.blocks));
    own.sort_unstable();
    own.dedup();
    let stats = bench.stats();
    assert_eq!((own.len(), paths.len()), (stats.evictable_blocks + stats.protected_blocks, stats.runs));
    bench.cache.namespace(&["empty"]).walk(|run| panic!("{run:?}"));
}

/// The caller's code runs under no lock: it may evict what it is shown, and panic.
#[test]
fn what_is_shown_may_be_evicted_meanwhile() {
    let bench = Bench::new(4, 64);
    (0..8).for_each(|key| drop(bench.insert(&sequence(key, 16))));
    let space = bench.cache.default_namespace();
    let mut seen = 0;
    space.walk(|run| {
        bench.cache.evict(64);
        bench.cache.settle();
        assert_eq!((run.tokens.len(), run.blocks.len()), (16, 4));
        seen += 1;
    });
    assert_eq!((seen, bench.stats().free_blocks), (8, 64));
    drop(bench.insert(&sequence(1, 16)));
    let walk = std::panic::AssertUnwindSafe(|| space.walk(|_| std::panic::resume_unwind(Box::new(()))));
    assert!(std::panic::catch_unwind(walk).is_err());
    assert_eq!(bench.cache.evict(64), 4);
}

#[test]
fn leases_uses_and_times_are_those_of_the_run() {
    let bench = Bench::new(4, 64);
    let space = bench.cache.default_namespace();
    bench.cache.set_time(5);
    let tokens = sequence(1, 16);
    drop(bench.insert(&tokens));
    bench.cache.set_time(7);
    let (whole, half) = (bench.matched(&tokens), bench.matched(&tokens[..8]));
    let branch = [&tokens[..8], &sequence(2, 4)].concat();
    bench.cache.set_time(9);
    let branched = bench.insert(&branch);
    let seen = || {
        let mut seen = Vec::new();
        space.walk(|run| seen.push((run.parent, run.start, run.tokens.len(), run.leases, run.uses)));
        seen
    };
    assert_eq!(seen().iter().map(|run| (run.0, run.1, run.2)).collect::<Vec<_>>(), [(None, 0, 16), (Some(0), 8, 4)]);
    let leases: Vec<u64> = seen().iter().map(|run| run.3).collect();
    assert_eq!((leases[0] >= 2, leases[1]), (true, 1));
    drop((whole, half, branched));
    assert_eq!(seen().iter().map(|run| run.3).sum::<u64>(), 0);
    let mut times = Vec::new();
    space.walk(|run| times.push(run.last_used));
    assert_eq!(times, [9, 9], "the insert of the branch matched the half first");
    bench.cache.clear();
    assert_eq!(seen(), []);
}
