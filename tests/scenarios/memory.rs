//! What the index weighs, and that it gives back what it took.

use radixkv::{Quota, Token};

use crate::{Bench, sequence};

/// Bytes of a token, and of the id of a block.
const TOKEN: usize = size_of::<Token>();

// Holds: NU12.
#[test]
fn many_sequences_on_one_shared_prefix_stay_within_twice_their_payload() {
    let (sequences, shared, tail): (usize, usize, usize) =
        if cfg!(debug_assertions) { (300, 1_000, 64) } else { (10_000, 10_000, 64) };
    let size = 16;
    let blocks = shared.div_ceil(size) + sequences * (tail / size + 1);
    let bench = Bench::new(size, blocks);
    let prefix = sequence(0, shared);
    for key in 1..=sequences as u32 {
        let tail = (0..tail as u32).map(|i| 1 << 31 | key << 8 | i);
        let tokens: Vec<Token> = prefix.iter().copied().chain(tail).collect();
        drop(bench.insert(&tokens));
    }
    let stats = bench.stats();
    let payload = (shared + sequences * tail) * TOKEN + stats.evictable_blocks * TOKEN;
    let bytes = stats.index_bytes;
    assert!(bytes <= 2 * payload, "{bytes} bytes for {payload} of tokens and block ids");
}

#[test]
fn a_shared_prompt_with_three_branches_takes_few_runs_and_points() {
    for block_size in [1, 16] {
        let bench = Bench::new(block_size, 4_000);
        let prompt = sequence(1, 2_500);
        for (key, len) in [(2, 85), (3, 22), (4, 19)] {
            drop(bench.insert(&[prompt.clone(), sequence(key, len)].concat()));
        }
        let stats = bench.stats();
        let objects = stats.runs + stats.points;
        assert!(objects <= 12, "{objects} runs and points at block size {block_size}");
    }
}

// Holds: NU7.
#[test]
fn branches_that_come_and_go_leave_nothing() {
    for block_size in [1, 16] {
        let bench = Bench::new(block_size, 8_000);
        let empty = bench.stats();
        let trunk = sequence(1, 2_000);
        let held = bench.insert(&trunk);
        let before = bench.stats();
        let rounds = [(); 4].map(|()| {
            thousand_branches(&bench, &trunk);
            assert!(bench.cache.evict(usize::MAX) > 0);
            bench.stats()
        });
        // A held run may keep a point for each of its blocks, and garbage waits for its epoch;
        // neither adds up.
        let (first, last) = (rounds[0], rounds[3]);
        assert_eq!((first.runs, last.runs), (before.runs, before.runs));
        assert_eq!(first.points, last.points);
        assert!(last.points <= before.points + trunk.len() / block_size);
        assert!(last.index_bytes <= first.index_bytes + before.index_bytes, "{first:?} {last:?}");
        drop(held);
        assert_eq!(bench.cache.evict(usize::MAX), trunk.len() / block_size);
        let after = bench.stats();
        assert_eq!((after.runs, after.points), (empty.runs, empty.points));
        assert!(after.index_bytes <= empty.index_bytes + first.index_bytes / 2, "{first:?} {after:?}");
    }
}

/// A branch of two blocks at every second token of the trunk.
fn thousand_branches(bench: &Bench, trunk: &[Token]) {
    let tail = 2 * bench.cache.block_size();
    for (at, key) in (1..trunk.len()).step_by(2).zip(2..) {
        drop(bench.insert(&[&trunk[..at], &sequence(key, tail)].concat()));
    }
}

// Holds: NU7.
#[test]
fn the_index_weighs_no_less_than_its_parts_and_gives_all_of_it_back() {
    const SEQUENCES: usize = 2_000;
    let bench = Bench::new(1, 2 * SEQUENCES);
    let empty = bench.stats().index_bytes;
    for key in 0..SEQUENCES as u32 {
        drop(bench.insert(&[key, 7]));
    }
    let stats = bench.stats();
    assert_eq!((stats.runs, stats.points), (SEQUENCES, SEQUENCES));
    // A run and its end each fill a cache line, beside two tokens, two block ids and what leads to
    // the run.
    let least = SEQUENCES * (64 + 64 + 4 * TOKEN + size_of::<usize>());
    assert!(stats.index_bytes - empty >= least, "{} bytes, {least} at least", stats.index_bytes - empty);
    assert_eq!(bench.cache.evict(usize::MAX), 2 * SEQUENCES);
    let left = bench.stats().index_bytes;
    assert!(left.abs_diff(empty) <= 4_096, "{empty} bytes before, {left} after");
}

#[test]
fn a_namespace_weighs_something_until_it_is_forgotten() {
    let bench = Bench::new(1, 4);
    let empty = bench.stats().index_bytes;
    let spaces: Vec<_> = (0..100).map(|i| bench.cache.namespace(&[&i.to_string()])).collect();
    let weighed = bench.stats().index_bytes - empty;
    // Each has a space, a trunk and a root.
    assert!(weighed >= 100 * (32 + 64 + 64), "{weighed} bytes");
    drop(spaces);
    bench.cache.settle();
    bench.cache.settle();
    drop(bench.insert(&[1]));
    assert_eq!(bench.cache.evict(1), 1);
    assert!(bench.stats().index_bytes < empty + weighed / 10);
}

/// A namespace that is kept for its quota weighs what it weighed empty, whatever came and went in
/// it.
// Holds: NU8.
#[test]
fn a_namespace_that_is_kept_for_its_quota_weighs_what_it_weighs_empty() {
    let bench = Bench::new(1, 8);
    let empty = bench.stats().index_bytes;
    let (a, b) = (bench.cache.namespace(&["a"]), bench.cache.namespace(&["b"]));
    let each = (bench.stats().index_bytes - empty) / 2;
    for space in [&a, &b] {
        space.set_quota(Quota::default().cached_blocks(4));
        let start = bench.session.acquire(space, &[1, 2, 3], 0).expect("room");
        drop(bench.session.insert(start.hit.lease(), &[1, 2, 3], start.blocks).expect("fits"));
    }
    drop((a, b));
    assert_eq!(bench.cache.evict(8), 6);
    assert_eq!(bench.stats().index_bytes, empty + 2 * each);
    bench.cache.namespace(&["a"]).set_quota(Quota::default());
    assert_eq!(bench.stats().index_bytes, empty + each);
    bench.cache.namespace(&["b"]).remove();
    assert_eq!(bench.stats().index_bytes, empty);
}

/// Idle sessions keep no memory of what they evicted, even if another caller empties the cache.
// Holds: NU8.
#[test]
fn idle_sessions_keep_nothing_that_they_evicted() {
    const SESSIONS: u32 = 8;
    let bench = Bench::new(1, 64);
    // At time 0 each use may undo a demotion, which hands garbage over.
    bench.cache.set_time(1);
    let empty = bench.stats().index_bytes;
    let idle = Vec::from_iter((0..SESSIONS).map(|_| bench.cache.session()));
    for (key, session) in (0..32 * SESSIONS).zip(idle.iter().cycle()) {
        let start = session.acquire(&bench.space, &sequence(key, 16), 0).expect("nothing is leased");
        drop(session.insert(start.hit.lease(), &sequence(key, 16), start.blocks).expect("fits"));
    }
    assert_eq!(bench.cache.evict(64), 64);
    let stats = bench.stats();
    assert_eq!((stats.index_bytes, stats.garbage_bytes), (empty, 0), "{stats:?}");
    drop(idle);
}

/// What was gathered for listeners, or waits for them in their channels, keeps its tokens as long
/// as they listen.
// Holds: CE6.
#[test]
fn the_last_listener_takes_along_the_tokens_that_were_kept_for_it() {
    let bench = Bench::new(1, 64);
    let empty = bench.stats().index_bytes;
    for told in [false, true] {
        let events = [bench.cache.subscribe(1), bench.cache.subscribe(8)];
        drop(bench.insert(&sequence(1, 64)));
        bench.cache.settle();
        let other = told.then(|| bench.cache.subscribe(1));
        assert_eq!(bench.cache.evict(64), 64);
        assert!(bench.stats().index_bytes >= empty + 64 * TOKEN, "told: {told}");
        let [first, last] = events;
        drop((first, other));
        assert!(bench.stats().index_bytes >= empty + 64 * TOKEN, "told: {told}");
        drop(last);
        assert_eq!(bench.stats().index_bytes, empty, "told: {told}");
    }
}
