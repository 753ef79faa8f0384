//! Long operations share the evictor with other threads: they release the evictor's lock after each
//! turn, instead of holding it until all work is done.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use radixkv::{BlockRequest, Lease, Namespace, PrefixCache, Quota};

/// Hundreds of slices of every verb.
const LEAVES: u32 = 100_000;

/// A cache of sequences of one block, all leased.
fn leased() -> (PrefixCache, Vec<Lease>) {
    let cache = PrefixCache::builder(1, LEAVES as usize).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let one = |key| {
        let miss = session.match_prefix(&space, &[key]);
        let block = session.reserve(1).expect("room");
        session.insert(miss.lease(), &[key], block).expect("it fits").lease
    };
    let leases = (0..LEAVES).map(one).collect();
    (cache, leases)
}

/// A quota that is none.
const NO_LIMIT: usize = u32::MAX as usize;

/// How often another thread begins and ends a turn of its own between the first and the last block
/// that `verb` frees.
fn turns_beside(cache: &PrefixCache, verb: impl FnOnce()) -> u32 {
    let (over, ready) = (AtomicBool::new(false), Barrier::new(2));
    let free = || cache.stats().free_blocks;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut turns = 0;
            ready.wait();
            while !over.load(Relaxed) {
                let has_begun = free() > 0;
                _ = cache.run_once();
                turns += u32::from(has_begun && free() < LEAVES as usize);
            }
            turns
        });
        ready.wait();
        verb();
        over.store(true, Relaxed);
        other.join().expect("no panic")
    })
}

/// How often a verb is tried until another thread has had a turn beside it: that thread may have
/// been stopped all the while.
const TRIES: usize = 50;

/// Whether another thread gets turns between those of `verb`, which frees all blocks.
fn takes_turns(verb: impl Fn(&PrefixCache)) -> bool {
    (0..TRIES).any(|_| {
        let (cache, leases) = leased();
        drop(leases);
        cache.settle();
        let turns = turns_beside(&cache, || verb(&cache));
        assert_eq!(cache.stats().free_blocks, LEAVES as usize);
        cache.validate().expect("sound");
        turns > 0
    })
}

// Holds: EV8.
#[test]
fn a_clear_takes_turns() {
    assert!(takes_turns(PrefixCache::clear), "it kept its turn to the end");
}

/// Retentions end before the first block is freed.
// Holds: EV8.
#[test]
fn a_clear_of_retained_prefixes_takes_turns() {
    let took_turns = (0..TRIES).any(|_| {
        let (cache, leases) = leased();
        let session = cache.session();
        leases.iter().for_each(|lease| session.retain(lease, Duration::from_secs(3_600)).expect("it is cached"));
        drop(leases);
        cache.settle();
        let (over, ready) = (AtomicBool::new(false), Barrier::new(2));
        let found = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let (mut found, space) = (BTreeSet::new(), cache.namespace(&["other"]));
                ready.wait();
                while !over.load(Relaxed) {
                    // Changes nothing, and waits for the end of the other thread's turn.
                    space.set_quota(Quota::default());
                    found.insert(cache.stats().protected_blocks);
                }
                found
            });
            ready.wait();
            cache.clear();
            over.store(true, Relaxed);
            other.join().expect("no panic")
        });
        assert_eq!((cache.stats().free_blocks, cache.validate()), (LEAVES as usize, Ok(())));
        found.iter().any(|protected| (1..LEAVES as usize).contains(protected))
    });
    assert!(took_turns, "it kept its turn until the last retention had ended");
}

// Holds: EV8.
#[test]
fn an_eviction_takes_turns() {
    let evict_all = |cache: &PrefixCache| assert_eq!(cache.evict(usize::MAX), LEAVES as usize);
    assert!(takes_turns(evict_all), "it kept its turn to the end");
}

/// Reserved blocks that another thread finds in turns of its own while all blocks are reserved at
/// once. What is freed meanwhile goes to nobody else.
fn reserved_beside_a_reservation(cache: &PrefixCache) -> BTreeSet<usize> {
    let (session, space) = (cache.session(), cache.default_namespace());
    let (over, ready) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut found = BTreeSet::new();
            ready.wait();
            while !over.load(Relaxed) {
                // Changes nothing, and waits for the end of the other thread's turn.
                space.set_quota(Quota::default());
                let stats = cache.stats();
                assert!([0, stats.capacity_blocks].contains(&stats.free_blocks), "{stats:?}");
                found.insert(stats.reserved_blocks);
            }
            found
        });
        ready.wait();
        let all = session.reserve(cache.capacity_blocks()).expect("all can go");
        over.store(true, Relaxed);
        drop(all);
        other.join().expect("no panic")
    })
}

/// Of leaves of one block: 512 victims end a turn, long before 16,384 blocks do.
#[test]
fn a_reservation_takes_turns() {
    let is_short = |reserved: &usize| reserved % (1 << 14) != 0 && reserved % 512 == 0;
    let took_turns = (0..TRIES).any(|_| {
        let (cache, leases) = leased();
        drop(leases);
        cache.settle();
        let found = reserved_beside_a_reservation(&cache);
        cache.validate().expect("sound");
        found.iter().any(is_short)
    });
    assert!(took_turns);
}

/// Of long runs: 16,384 blocks end a turn, before 512 victims do.
// Holds: EV8.
#[test]
fn a_reservation_of_long_runs_takes_turns() {
    [1, 3].into_iter().for_each(a_reservation_of_long_runs_takes_turns_with);
}

fn a_reservation_of_long_runs_takes_turns_with(shards: usize) {
    const RUNS: u32 = 250;
    const LEN: u32 = 4_000;
    let took_turns = (0..TRIES).any(|_| {
        let cache = PrefixCache::builder(1, (RUNS * LEN) as usize).shards(shards).build().expect("sound");
        let (session, space) = (cache.session(), cache.default_namespace());
        for run in 0..RUNS {
            let tokens: Vec<_> = (0..LEN).map(|at| run << 16 | at).collect();
            let miss = session.match_prefix(&space, &tokens);
            let blocks = session.reserve(LEN as usize).expect("room");
            drop(session.insert(miss.lease(), &tokens, blocks).expect("it fits"));
        }
        cache.settle();
        let found = reserved_beside_a_reservation(&cache);
        cache.validate().expect("sound");
        found.iter().any(|reserved| (1..(RUNS * LEN) as usize).contains(reserved))
    });
    assert!(took_turns, "with {shards} shards it kept its turn to the end");
}

/// Four threads hold a block each at most; how often another one is refused 12 blocks. It pays in a
/// namespace that may pin `quota` blocks, and the four use the same one if they are `beside` it.
fn refused_beside_inserts(capacity: usize, quota: usize, beside: bool) -> usize {
    let cache = PrefixCache::builder(1, capacity).build().expect("sound");
    let tenant = cache.namespace(&["tenant"]);
    let space = if beside { tenant.clone() } else { cache.default_namespace() };
    tenant.set_quota(Quota::default().pinned_blocks(quota));
    let over = AtomicBool::new(false);
    let turn_over = |thread: u32| {
        let session = cache.session();
        for key in (0..32).cycle().map(|key| thread << 8 | key) {
            if over.load(Relaxed) {
                return;
            }
            if session.peek(&space, &[key]) == 1 {
                drop(session.match_prefix(&space, &[key]));
                continue;
            }
            let root = session.match_prefix(&space, &[]);
            if let Ok(block) = session.reserve(BlockRequest::new(1).paid_by(&space)) {
                drop(session.insert(root.lease(), &[key], block).expect("it fits"));
            }
        }
    };
    std::thread::scope(|scope| {
        let turn_over = &turn_over;
        (0..4).for_each(|thread| _ = scope.spawn(move || turn_over(thread)));
        let session = cache.session();
        let end = Instant::now() + Duration::from_secs(2);
        let attempts = std::iter::repeat_with(|| session.reserve(BlockRequest::new(12).paid_by(&tenant)))
            .take_while(|_| Instant::now() < end);
        let refused = attempts.filter(Result::is_err).count();
        over.store(true, Relaxed);
        refused
    })
}

/// A thread that asks for 12 of 16 finds them, wherever the others are.
// Holds: RE7.
#[test]
fn blocks_on_their_way_into_the_cache_are_no_reason_to_refuse() {
    assert_eq!(refused_beside_inserts(16, NO_LIMIT, false), 0);
}

// Holds: RE7.
#[test]
fn blocks_on_their_way_into_the_cache_are_no_reason_to_refuse_within_a_quota() {
    assert_eq!(refused_beside_inserts(16, 1_000, false), 0);
}

/// What one thread releases before it leases another block counts once.
// Holds: RE8.
#[test]
fn leases_that_come_and_go_in_a_namespace_are_no_reason_to_refuse_for_its_quota() {
    assert_eq!(refused_beside_inserts(1_000, 16, true), 0);
}

/// Runs `verb` to its end beside a thread that repeats `other` until then.
fn ends_beside(verb: impl FnOnce(), mut other: impl FnMut(u32) + Send) {
    let (over, ready) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ready.wait();
            (0..).take_while(|_| !over.load(Relaxed)).for_each(&mut other);
        });
        ready.wait();
        verb();
        over.store(true, Relaxed);
    });
}

/// Each new limit makes the evictor sort all candidates.
// Holds: EV11.
#[test]
fn settling_and_evicting_end_beside_a_thread_that_sets_new_limits() {
    let (cache, leases) = leased();
    drop(leases);
    cache.settle();
    let (session, to_limit) = (cache.session(), cache.clone());
    let limit = move |key: u32| {
        let space = to_limit.namespace(&[format!("tenant {key}").as_str()]);
        let miss = session.match_prefix(&space, &[key]);
        let block = session.reserve(1).expect("others can go");
        drop(session.insert(miss.lease(), &[key], block).expect("it fits"));
        space.set_quota(Quota::default().cached_blocks(1));
    };
    let tenant = cache.namespace(&["limited"]);
    let verbs = || {
        cache.default_namespace().set_quota(Quota::default().cached_blocks(10));
        cache.settle();
        assert!(cache.default_namespace().stats().cached_blocks <= 10);
        assert_eq!(tenant.evict(1), 0);
    };
    ends_beside(verbs, limit);
    cache.validate().expect("sound");
}

// Holds: EV11.
#[test]
fn settling_and_clearing_end_beside_threads_that_make_garbage() {
    let cache = PrefixCache::builder(1, 4_096).build().expect("sound");
    let (verbs, garbage) = (cache.namespace(&["verbs"]), cache.namespace(&["garbage"]));
    let fill = |space: &Namespace, keys: u32| {
        let session = cache.session();
        for key in 0..keys {
            let miss = session.match_prefix(space, &[key]);
            if let Ok(block) = session.reserve(1 - miss.blocks().len()) {
                drop(session.insert(miss.lease(), &[key], block).expect("it fits"));
            }
        }
    };
    let settle_and_clear = || {
        for _ in 0..10 {
            fill(&verbs, 100);
            cache.settle();
            verbs.clear();
        }
    };
    ends_beside(settle_and_clear, |_| {
        fill(&garbage, 1_000);
        garbage.clear();
    });
    cache.settle();
    assert_eq!((cache.stats().garbage_bytes, cache.validate()), (0, Ok(())));
}
