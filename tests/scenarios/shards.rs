//! A cache whose evictor has several shards.

use std::thread;

use radixkv::PrefixCache;

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
