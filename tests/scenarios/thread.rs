//! The background evictor: when it is called although nobody allocates; and numbers read while others are at work.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use radixkv::{Builder, Clock, Eviction, PrefixCache, Watermarks};

use crate::{Bench, sequence};

const LOW: usize = 8;
const HIGH: usize = 16;
const BLOCKS: usize = 64;

fn bench(set: impl FnOnce(Builder) -> Builder) -> Bench {
    let thread = Eviction::Background(Watermarks { low: LOW, high: HIGH });
    let builder = PrefixCache::builder(4, BLOCKS).clock(Clock::Logical).eviction(thread);
    let cache = set(builder).build().expect("sound");
    Bench { session: cache.session(), space: cache.default_namespace(), cache }
}

/// Waits until the thread has made so much room, by a verb that calls nobody: it looks and changes nothing.
fn until_cached(bench: &Bench, blocks: usize, what: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while bench.peek(&sequence(1, 4 * BLOCKS)) > 4 * blocks {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_evictor_is_called_when_a_lease_ends_that_it_was_short_of() {
    for external in [false, true] {
        let bench = bench(|builder| if external { builder.external() } else { builder });
        let tokens = sequence(1, 4 * BLOCKS);
        let miss = bench.matched(&tokens);
        let all = if external {
            bench.session.adopt(&(0..BLOCKS as u32).collect::<Vec<_>>()).expect("the engine's")
        } else {
            bench.session.reserve(BLOCKS).expect("empty")
        };
        let lease = bench.session.insert(&miss, &tokens, all).expect("fitting").lease;
        // The thread has looked, and found nothing that it may evict.
        bench.cache.settle();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(bench.peek(&tokens), 4 * BLOCKS);
        drop(lease);
        until_cached(&bench, BLOCKS - HIGH, "the lease has ended");
        assert_eq!(bench.cache.validate(), Ok(()));
    }
}

#[test]
fn the_evictor_is_called_when_the_time_is_set_to_the_end_of_a_retention() {
    let bench = bench(|builder| builder);
    let tokens = sequence(1, 4 * BLOCKS);
    let lease = bench.insert(&tokens);
    bench.session.retain(&lease, Duration::from_nanos(10)).expect("cached");
    drop(lease);
    bench.cache.settle();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(bench.peek(&tokens), 4 * BLOCKS, "it is retained");
    bench.cache.set_time(10);
    until_cached(&bench, BLOCKS - HIGH, "the retention has ended");
}

/// Between the watermarks and no further.
#[test]
fn the_evictor_makes_room_up_to_the_high_watermark() {
    let bench = bench(|builder| builder);
    drop(bench.insert(&sequence(1, 4 * (BLOCKS - LOW + 1))));
    until_cached(&bench, BLOCKS - HIGH, "fewer blocks than the low watermark were free");
    bench.cache.settle();
    assert_eq!((bench.stats().free_blocks, bench.stats().evicted_blocks), (HIGH, (HIGH - LOW + 1) as u64));
}

/// The thread ends with the cache, wherever its last handle goes.
#[test]
fn a_cache_with_a_thread_goes_from_any_handle() {
    let bench = bench(|builder| builder);
    let lease = bench.insert(&sequence(1, 16));
    let Bench { session, cache, space } = bench;
    drop((cache, space, session));
    std::thread::spawn(move || drop(lease)).join().expect("the last handle goes here");
}

#[test]
fn the_four_numbers_of_blocks_add_up_whatever_is_under_way() {
    let cache = PrefixCache::builder(4, BLOCKS).build().expect("sound");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for key in 1..3 {
            let (cache, over) = (&cache, &over);
            scope.spawn(move || {
                let bench = Bench { session: cache.session(), space: cache.default_namespace(), cache: cache.clone() };
                for round in 0..2_000 {
                    let held = bench.insert(&sequence(10 * key + round % 7, 4 * (1 + round as usize % 20)));
                    drop(bench.session.reserve(3));
                    drop(held);
                }
                over.store(true, Relaxed);
            });
        }
        while !over.load(Relaxed) {
            let stats = cache.stats();
            let sum = stats.free_blocks + stats.reserved_blocks + stats.evictable_blocks + stats.protected_blocks;
            assert_eq!(sum, BLOCKS, "{stats:?}");
        }
    });
    assert_eq!(cache.validate(), Ok(()));
}
