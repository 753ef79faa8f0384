//! Random operations of all kinds, on one thread and on several threads with one cache. When
//! everything is released at the end, the index has its initial size, plus the size of the
//! namespaces that are kept because of their quotas.
//!
//! The environment variables `SEED` and `STORMS` are used.
#![cfg(not(any(radixkv_loom, radixkv_shuttle)))]

#[path = "storm/hand.rs"]
mod hand;

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use radixkv::{Clock, Eviction, PolicyKind, PrefixCache, Quota, Watermarks, WeakLease};

use hand::{Hand, NAMES, namespace};

const STEPS: usize = 1_000;

/// Times that the last garbage may need to be collected. The cache's own thread may have been
/// stopped in the middle of a turn.
const PASSES: usize = 60_000;
const PAUSE: Duration = Duration::from_millis(1);

fn cache(seed: u64) -> PrefixCache {
    let mut dice = Rng::with_seed(seed);
    let policy = dice.choice(PolicyKind::ALL.iter().copied()).expect("one of them");
    let builder = PrefixCache::builder(dice.usize(1..=3), dice.usize(8..64)).policy(policy).clock(Clock::Logical);
    let eviction = if seed % 4 == 3 { Eviction::Background(Watermarks::new(1, 4)) } else { Eviction::Inline };
    builder.eviction(eviction).build().expect("valid")
}

/// Bytes of a namespace in which nothing is cached.
fn bytes_of_a_namespace() -> usize {
    let cache = cache(0);
    let before = cache.stats().index_bytes;
    let _kept = cache.namespace(&["a"]);
    cache.stats().index_bytes - before
}

/// What so many threads do to a cache; their weak leases.
fn rage(cache: &PrefixCache, seed: u64, threads: u64) -> Vec<WeakLease> {
    let hand = |thread| Hand::new(cache, Rng::with_seed(seed << 8 | thread)).run(STEPS);
    if threads == 1 {
        return hand(0);
    }
    thread::scope(|scope| {
        let hands: Vec<_> = (0..threads).map(|thread| scope.spawn(move || hand(thread))).collect();
        hands.into_iter().flat_map(|hand| hand.join().expect("no panic")).collect()
    })
}

fn storm(seed: u64, threads: u64) {
    println!("seed {seed}");
    let cache = cache(seed);
    let (empty, each) = (cache.stats().index_bytes, bytes_of_a_namespace());
    let weak = rage(&cache, seed, threads);
    // What is retained is let go.
    cache.set_time(u64::MAX);
    cache.settle();
    assert_eq!(cache.validate(), Ok(()));
    cache.evict(usize::MAX);
    expect(&cache, |standing| empty + standing * each);
    for name in 0..NAMES.len() {
        namespace(&cache, name).set_quota(Quota::default());
    }
    expect(&cache, |_| empty);
    let session = cache.session();
    assert!(weak.iter().all(|weak| session.upgrade(weak).is_none()));
}

/// Nothing is cached, and the index has as many bytes as are expected of so many named namespaces.
fn expect(cache: &PrefixCache, bytes: impl Fn(usize) -> usize) {
    let mut left = (0..PASSES).map(|pass| {
        thread::sleep(PAUSE * u32::from(pass > 0));
        cache.settle();
        // One entry is the default namespace's, one that of all that are not counted by themselves.
        let standing = cache.lookups_by_namespace().len() - 2;
        (cache.stats().index_bytes, bytes(standing))
    });
    let bytes_stay = left.all(|(left, expected)| left != expected);
    let stats = cache.stats();
    assert!(!bytes_stay, "bytes stay: {stats:?}");
    assert_eq!((stats.free_blocks, stats.runs, stats.points), (cache.capacity_blocks(), 0, 0), "{stats:?}");
}

fn storms(threads: impl Fn(u64) -> u64) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    let first = number("SEED").unwrap_or(0);
    (first..first + number("STORMS").unwrap_or(100)).for_each(|seed| storm(seed, threads(seed)));
}

// Holds: NU8.
#[test]
fn one_thread_leaves_nothing() {
    storms(|_| 1);
}

// Holds: NU8.
#[test]
fn several_threads_leave_nothing() {
    storms(|seed| 2 + seed % 3);
}
