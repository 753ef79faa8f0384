//! Long verbs of one thread take turns with the others: nothing holds the evictor's lock for as long as it has work.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use radixkv::{Lease, PrefixCache};

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

/// How often another thread begins and ends a turn of its own between the first and the last block that `verb` frees.
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

#[test]
fn a_clear_takes_turns() {
    let (cache, leases) = leased();
    drop(leases);
    cache.settle();
    let turns = turns_beside(&cache, || cache.clear());
    assert!(turns > 0, "it kept its turn to the end");
    assert_eq!(cache.stats().free_blocks, LEAVES as usize);
    cache.validate().expect("sound");
}

#[test]
fn an_eviction_takes_turns() {
    let (cache, leases) = leased();
    drop(leases);
    cache.settle();
    let turns = turns_beside(&cache, || assert_eq!(cache.evict(usize::MAX), LEAVES as usize));
    assert!(turns > 0, "it kept its turn to the end");
    cache.validate().expect("sound");
}

/// Leaves of one block: the number of victims ends a turn, long before that of their blocks does.
#[test]
fn a_reservation_takes_turns() {
    let (cache, leases) = leased();
    drop(leases);
    cache.settle();
    let session = cache.session();
    let (over, ready) = (AtomicBool::new(false), Barrier::new(2));
    let turns = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut between = std::collections::BTreeSet::new();
            ready.wait();
            while !over.load(Relaxed) {
                // Waits for the end of the other thread's turn.
                cache.settle();
                between.insert(cache.stats().free_blocks);
            }
            between.len()
        });
        ready.wait();
        let all = session.reserve(LEAVES as usize).expect("all can go");
        over.store(true, Relaxed);
        drop(all);
        other.join().expect("no panic")
    });
    assert!(turns > 20, "{turns} turns");
    cache.validate().expect("sound");
}
