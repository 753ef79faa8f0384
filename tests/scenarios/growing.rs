//! A cache that gets more blocks while it runs.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use radixkv::{AdoptError, BlockRequest, BuildError, PrefixCache, ReserveError};

use crate::sequence;

// Holds: IV10.
#[test]
fn a_cache_grows_by_segments() {
    let cache = PrefixCache::builder(2, 4).growable_to(200).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    assert_eq!(session.reserve(5).expect_err("too many"), ReserveError::TooLarge { requested: 5, capacity: 4 });
    let held = session.reserve(4).expect("all of them");
    assert_eq!(cache.grow(100).expect("room"), 4..104);
    assert_eq!((cache.capacity_blocks(), cache.stats().free_blocks, cache.validate()), (104, 100, Ok(())));
    let prompt = sequence(1, 200);
    let inserted = session.match_prefix(&space, &prompt);
    let inserted = session.insert(inserted.lease(), &prompt, session.reserve(100).expect("new ones")).expect("fits");
    assert!(inserted.blocks.iter().all(|block| (4..104).contains(block)));
    let refused = cache.grow(97).expect_err("beyond the limit");
    assert_eq!((refused.requested, refused.capacity, refused.limit), (97, 104, 200));
    assert_eq!((cache.grow(0).expect("nothing"), cache.grow(96).expect("room")), (104..104, 104..200));
    drop((held, inserted));
    cache.settle();
    let stats = cache.stats();
    assert_eq!((stats.free_blocks, stats.evictable_blocks, cache.validate()), (100, 100, Ok(())));
}

// Holds: IV10.
#[test]
fn a_waiter_gets_blocks_that_come() {
    let cache = PrefixCache::builder(2, 4).growable_to(8).build().expect("valid");
    let (session, ready) = (cache.session(), Barrier::new(2));
    let _held = session.reserve(4).expect("all");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            ready.wait();
            cache
                .session()
                .reserve(BlockRequest::new(2).until(Instant::now() + Duration::from_secs(60)))
                .map(|blocks| blocks.len())
        });
        ready.wait();
        while cache.stats().waiting_requests == 0 {
            std::thread::yield_now();
        }
        cache.grow(4).expect("room");
        assert_eq!(waiting.join().expect("no panic"), Ok(2));
    });
}

// Holds: IV10.
#[test]
fn an_external_pool_need_not_be_known_at_the_start() {
    assert_eq!(PrefixCache::builder(2, 0).build().expect_err("nothing"), BuildError::ZeroCapacity);
    let cache = PrefixCache::builder(2, 0).external().growable_to(64).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    assert_eq!((cache.stats().free_blocks, cache.validate()), (0, Ok(())));
    assert_eq!(
        cache.external().expect("an external pool").adopt(&[0]).expect_err("none yet"),
        AdoptError::OutOfRange { block: 0, capacity: 0 }
    );
    assert_eq!(cache.grow(10).expect("room"), 0..10);
    let hit = session.match_prefix(&space, &[1, 2, 3, 4]);
    drop(
        session
            .insert(
                hit.lease(),
                &[1, 2, 3, 4],
                cache.external().expect("an external pool").adopt(&[9, 3]).expect("its own"),
            )
            .expect("fits"),
    );
    drop(hit);
    assert_eq!(cache.grow(54).expect("room"), 10..64);
    let filled = cache.external().expect("an external pool").adopt(&[63, 10]).expect("its own");
    assert_eq!((cache.evict(8), cache.validate()), (2, Ok(())));
    let mut evicted = Vec::new();
    assert_eq!(cache.external().expect("an external pool").take_evicted(&mut evicted), 2);
    evicted.sort_unstable();
    assert_eq!(evicted, [3, 9]);
    drop(filled);
    assert_eq!(
        (cache.external().expect("an external pool").take_evicted(&mut evicted), cache.stats().free_blocks),
        (2, 64)
    );
}

// Holds: IV10.
#[test]
fn threads_that_grow_at_once_get_ids_of_their_own() {
    let cache = PrefixCache::builder(1, 1).growable_to(4_001).build().expect("valid");
    let mut ids: Vec<u32> = std::thread::scope(|scope| {
        let growing: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let session = cache.session();
                    (0..100)
                        .flat_map(|_| {
                            drop(session.reserve(3));
                            cache.grow(10).expect("room")
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        growing.into_iter().flat_map(|growing| growing.join().expect("no panic")).collect()
    });
    ids.sort_unstable();
    assert!(ids.into_iter().eq(1..4_001));
    assert_eq!((cache.stats().free_blocks, cache.validate()), (4_001, Ok(())));
}
