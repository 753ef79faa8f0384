//! A cache whose evictor has several shards.

use std::thread;

use radixkv::{Clock, PrefixCache, Session};

/// Threads, each with a session and a shard of its own.
const THREADS: u32 = 4;
/// Prompts that each of them inserts: many times what the cache holds.
const PROMPTS: u32 = 500;

/// Every insert evicts. Half of the threads' prompts begin with one common block, whose run belongs
/// to one of the shards.
#[test]
fn shards_that_evict_at_the_same_time_lose_no_block() {
    let cache = PrefixCache::builder(2, 64).shards(THREADS as usize).build().expect("valid");
    let space = cache.default_namespace();
    let work = |thread: u32| {
        let session = cache.session();
        for number in 0..PROMPTS {
            let first = if number % 2 == 0 { 0 } else { thread + 1 };
            let prompt = [first, first, thread, number, number, thread, 7, 7];
            let start = session.acquire(&space, &prompt, 0).expect("others hold little");
            let inserted = session.insert(start.hit.lease(), &prompt, start.blocks).expect("nothing is cleared");
            assert_eq!(inserted.lease.len_tokens(), prompt.len());
            drop(start.hit);
            let again = session.match_prefix(&space, &prompt);
            assert_eq!(again.len_tokens(), prompt.len(), "it is leased");
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    cache.settle();
    assert_eq!(cache.validate(), Ok(()));
    let stats = cache.stats();
    assert!(stats.evicted_blocks > u64::from(THREADS * PROMPTS), "{stats:?}");
    assert_eq!(stats.free_blocks + stats.evictable_blocks, 64, "{stats:?}");
    assert_eq!(cache.evict(64), stats.evictable_blocks);
    let stats = cache.stats();
    assert_eq!((stats.free_blocks, stats.runs, stats.points), (64, 0, 0));
}

/// A session that has filled a part of the cache and is idle: its blocks are evicted before any
/// of the others that the other sessions use all the time.
#[test]
fn blocks_of_a_silent_session_are_evicted_before_those_in_use() {
    const BLOCK: usize = 4;
    const SILENT: u32 = 600;
    const LIVE: u32 = 300;
    for shards in [2, 3, 8] {
        let builder = PrefixCache::builder(BLOCK, (SILENT + LIVE) as usize).shards(shards);
        let cache = builder.clock(Clock::Logical).build().expect("valid");
        let space = cache.default_namespace();
        let (silent, active) = (cache.session(), Vec::from_iter((1..shards).map(|_| cache.session())));
        let mut time = 0;
        let mut serve = |session: &Session, number: u32| {
            time += 1;
            cache.set_time(time);
            let prompt = [number; BLOCK];
            let hit = session.match_prefix(&space, &prompt);
            if hit.len_tokens() == 0 {
                let block = session.reserve(1).expect("nothing is leased");
                drop(session.insert(hit.lease(), &prompt, block).expect("nothing is cleared"));
            }
            hit.len_tokens() > 0
        };
        (0..SILENT).for_each(|number| _ = serve(&silent, number));
        let live = || (SILENT..SILENT + LIVE).zip(active.iter().cycle());
        live().chain(live()).for_each(|(number, session)| _ = serve(session, number));
        let (mut used, mut missed) = (live().cycle(), 0);
        // One block is left to the last turn, which may look at the other shards after it.
        for (fresh, session) in (SILENT + LIVE..SILENT + LIVE + SILENT - 1).zip(active.iter().cycle()) {
            assert!(!serve(session, fresh), "it is new");
            for (number, session) in used.by_ref().take(2) {
                missed += u32::from(!serve(session, number));
            }
        }
        assert_eq!(missed, 0, "{shards} shards");
    }
}

/// The counts of more namespaces than a shard keeps changes for.
#[test]
fn a_settled_cache_of_several_shards_counts_the_blocks_of_every_namespace() {
    const NAMES: [&str; 11] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    let cache = PrefixCache::builder(2, 64).shards(2).build().expect("valid");
    let spaces = NAMES.map(|name| cache.namespace(&[name]));
    let sessions = [cache.session(), cache.session()];
    for number in 0..500 {
        let (session, space) = (&sessions[number as usize % 2], &spaces[number as usize * 7 % 11]);
        let prompt = [number, 1, number, 2];
        let blocks = session.reserve(2).expect("nothing is leased");
        let hit = session.match_prefix(space, &prompt);
        drop(session.insert(hit.lease(), &prompt, blocks).expect("nothing is cleared"));
    }
    cache.settle();
    assert_eq!(cache.validate(), Ok(()), "it holds the counts against the runs");
    let cached: usize = spaces.iter().map(|space| space.stats().cached_blocks).sum();
    assert_eq!(cached, cache.stats().evictable_blocks);
}

/// Times of which eight do not fit into 64 bits.
#[test]
fn shards_evict_at_any_time_of_a_logical_clock() {
    let cache = PrefixCache::builder(2, 8).shards(2).clock(Clock::Logical).build().expect("valid");
    let space = cache.default_namespace();
    let sessions = [cache.session(), cache.session()];
    for (number, time) in (0..64).zip([0, 1, u64::MAX / 2, u64::MAX / 2 + 7, u64::MAX - 1, u64::MAX].iter().cycle()) {
        cache.set_time(*time);
        let (session, prompt) = (&sessions[number as usize % 2], [number, 1]);
        let hit = session.match_prefix(&space, &prompt);
        let block = session.reserve(1).expect("nothing is leased");
        drop(session.insert(hit.lease(), &prompt, block).expect("nothing is cleared"));
    }
    cache.settle();
    assert_eq!(cache.validate(), Ok(()));
    assert_eq!(cache.stats().evictable_blocks, 8);
}
