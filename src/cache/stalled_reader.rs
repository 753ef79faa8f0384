//! Tests that a reader that never unpins delays freeing index memory, but no block (reclaim, I2).

use super::{Clock, PrefixCache};
use crate::key::Token;

const BLOCK_SIZE: usize = 4;
const CAPACITY: usize = 1_024;
/// Number of runs that are retired while the reader is pinned.
const RUNS: u32 = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
/// More than the size of a run of one block: run, end point, arrays.
const RUN_BYTES: usize = 512;

/// One block that shares nothing with the block of another `key`.
fn sequence(key: u32) -> [Token; BLOCK_SIZE] {
    [key, 1, 2, 3]
}

/// Inserts a sequence and releases it. Once the free blocks are used up, blocks come from evicting.
fn serve(cache: &PrefixCache, keys: std::ops::Range<u32>) {
    let (session, space) = (cache.session(), cache.default_namespace());
    for key in keys {
        let found = session.match_prefix(&space, &sequence(key));
        let reservation = session.reserve(1).expect("blocks are reused whatever a reader does");
        drop(session.insert(found.lease(), &sequence(key), reservation).expect("it fits"));
    }
}

// Holds: EV17.
#[test]
fn a_stalled_reader_holds_back_index_memory_and_no_block() {
    let cache = PrefixCache::builder(BLOCK_SIZE, CAPACITY).clock(Clock::Logical).build().expect("a sound setting");
    cache.settle();
    let empty = cache.stats().index_bytes;
    serve(&cache, 0..4 * CAPACITY as u32);
    let full = cache.stats().index_bytes;

    let stalled = cache.inner.domain.register();
    let reader = stalled.pin();
    serve(&cache, 0..RUNS / 2);
    let half = cache.stats().index_bytes;
    serve(&cache, RUNS / 2..RUNS);
    let most = cache.stats().index_bytes;
    assert!(half > full && most > half, "what was retired is reported: {full} {half} {most}");
    assert!(most <= full + RUNS as usize * RUN_BYTES, "{most} bytes for {RUNS} retired runs");
    assert_eq!(cache.stats().free_blocks + cache.stats().evictable_blocks, CAPACITY);

    drop(reader);
    cache.evict(usize::MAX);
    cache.settle();
    println!("{empty} bytes empty, {full} full, {most} stalled");
    assert_eq!(cache.stats().index_bytes, empty, "all of it comes back at once");
    drop(stalled);
}

// Holds: EV17.
#[test]
fn a_reader_that_unpins_now_and_then_bounds_what_is_held_back() {
    let cache = PrefixCache::builder(BLOCK_SIZE, CAPACITY).clock(Clock::Logical).build().expect("a sound setting");
    serve(&cache, 0..4 * CAPACITY as u32);
    let full = cache.stats().index_bytes;
    let reader = cache.inner.domain.register();
    let rounds = 20;
    for round in 0..rounds {
        let guard = reader.pin();
        serve(&cache, round * RUNS / rounds..(round + 1) * RUNS / rounds);
        drop(guard);
        let bytes = cache.stats().index_bytes;
        let bound = full + 3 * (RUNS / rounds) as usize * RUN_BYTES;
        assert!(bytes <= bound, "{bytes} bytes in round {round}, more than {bound}");
    }
}
