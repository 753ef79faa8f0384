//! Several protocols together: creation, trim, queue and accounts; shrinking arrays; statistics
//! that move to the remaining prefix.
//!
//! Property: after settling, free + reserved + evictable + protected is the capacity, and evicting
//! everything frees exactly `evictable` blocks, whatever ran in parallel. A reader of arrays that
//! are being copied reads tokens and blocks of its own prefix. No hit is lost when its point dies.
//!
//! Edges: all of them.
//!
//! Seeded bugs: a run is registered only by the entry of its end; a kill updates the accounts
//! later; the new last point is not ranked after a trim; old arrays are retired before the swap;
//! arrays are swapped without Release; statistics of a dead point are dropped.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_less, explore_more, explore_order, spawn};
use radixkv::internals::at_rest;
use radixkv::{PolicyKind, PrefixCache, Quota};

/// Creation of a point, an insert that continues the end of the run, and a trim.
#[test]
fn creation_continuation_and_trim() {
    explore_order("find 1,9 vs insert 1,2,3 vs evict 1", || {
        let world = World::with(1, 4, &[&[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 9])
        });
        let writer = spawn({
            let world = world.clone();
            move || Actor::new(&world).insert(&[1, 2, 3])
        });
        let freed = world.beside(move |world| world.cache.evict(1));
        let (found, held) = (reader.join().unwrap(), writer.join().unwrap());
        assert!(freed <= 1);
        assert_eq!(found.len_tokens(), 1);
        assert_eq!(held.lease.len_tokens(), 3);
        world.rest(3, held.duplicates.len());
        drop(held);
        assert_eq!(world.rest(1, 0).evictable_blocks, 2);
        drop(found);
        assert_eq!(world.close(), 3);
    });
}

/// A point is created, proved, released and drained while its run is trimmed. The accounts include
/// it.
#[test]
fn a_short_lease_against_drain_and_trim() {
    explore("find 1,9, release vs drain, evict 1", || {
        let world = World::with(1, 3, &[&[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).find(&[1, 9]))
        });
        let freed = world.beside(|world| {
            world.cache.run_once();
            world.cache.evict(1)
        });
        assert_eq!(freed, 1);
        reader.join().unwrap();
        assert_eq!(world.rest(0, 0).evictable_blocks, 1);
        assert_eq!(world.close(), 1);
    });
}

/// A point's entry is drained before the entry of its run's end, so the evictor does not know the
/// run yet.
#[test]
fn a_new_run_and_a_point_on_it_against_drains() {
    explore_less("insert 1,2 vs find 1,9 vs drain, drain", || {
        let world = World::told(1, 3, &[]);
        let writer = spawn({
            let world = world.clone();
            move || Actor::new(&world).insert(&[1, 2])
        });
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 9])
        });
        world.beside(|world| [world.cache.run_once(), world.cache.run_once()]);
        let (held, found) = (writer.join().unwrap(), reader.join().unwrap());
        world.rest(2, 0);
        drop(held);
        world.rest(found.len_tokens(), 0);
        drop(found);
        assert_eq!(world.close(), 2);
    });
}

/// A lease on a point with a child: the end of the lease is queued as a change, although the point
/// does not become idle.
#[test]
fn a_lease_above_a_child() {
    explore("find 1, release vs drain, beside 1,2", || {
        let world = World::told(1, 2, &[&[1], &[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).find(&[1]))
        });
        world.beside(|world| world.cache.run_once());
        reader.join().unwrap();
        assert_eq!(world.rest(0, 0).evictable_blocks, 2);
        assert_eq!(world.close(), 2);
    });
}

/// Two threads evict; each frees as many blocks as it returns.
#[test]
fn two_evictors() {
    explore("evict 1 vs evict 2", || {
        let world = World::with(1, 3, &[&[1, 2, 3]]);
        let other = spawn({
            let world = world.clone();
            move || world.cache.evict(1)
        });
        assert_eq!((world.beside(|world| world.cache.evict(2)), other.join().unwrap()), (2, 1));
        assert_eq!(world.rest(0, 0).evicted_blocks, 3);
        assert_eq!(world.close(), 0);
    });
}

/// The arrays are copied into smaller ones while a reader uses them.
#[test]
fn shrinking_arrays_against_a_reader() {
    explore_less("find 1,2,9 vs evict 2 of 4", || {
        let world = World::with(1, 4, &[&[1, 2, 3, 4]]);
        let before = world.cache.stats().index_bytes;
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2, 9])
        });
        assert_eq!(world.beside(|world| world.cache.evict(2)), 2);
        let found = reader.join().unwrap();
        assert_eq!(found.len_tokens(), 2);
        world.check(&[1, 2], 0, found.blocks());
        world.rest(2, 0);
        assert_ne!(world.cache.stats().index_bytes, before);
        drop(found);
        assert_eq!(world.close(), 2);
    });
}

/// The hit of a dying point moves to the remaining point, and affects which prefix is evicted next.
#[test]
fn a_hit_against_the_death_of_its_point() {
    explore("find 1,2, release vs evict 1 of it, lfu", || {
        let world = World::build(PrefixCache::builder(1, 3).policy(PolicyKind::Lfu), 3);
        let actor = Actor::new(&world);
        at_rest(|| {
            drop(actor.insert(&[7]));
            drop(actor.find(&[7]));
            drop(actor.insert(&[1, 2]));
            world.cache.settle();
        });
        let reader = spawn({
            let world = world.clone();
            move || {
                let found = Actor::new(&world).find(&[1, 2]);
                found.len_tokens()
            }
        });
        // The end of 1,2 has fewer hits than 7, unless the reader's hit was already counted.
        assert_eq!(world.beside(|world| world.cache.evict(1)), 1);
        assert!(reader.join().unwrap() >= 1);
        at_rest(|| {
            let kept = actor.session.peek(&world.space, &[7]);
            assert_eq!(world.cache.evict(1), 1);
            // The rest of 1,2 was hit as often as 7, and inserted later.
            if kept == 1 {
                assert_eq!(actor.session.peek(&world.space, &[7]), 0);
            }
            assert!(actor.session.peek(&world.space, &[1, 2]) >= 1);
        });
        drop(actor);
        assert_eq!(world.close(), 1);
    });
}

/// A drain that sees the end of a lease also sees the hit that was counted under it.
#[test]
fn a_hit_against_a_drain() {
    explore_more("find 1, release vs drain, lfu", || {
        let world = World::build(PrefixCache::builder(1, 2).policy(PolicyKind::Lfu), 2);
        // With a quota, each lease is a change for the evictor.
        world.space.set_quota(Quota::default().pinned_blocks(2));
        let actor = Actor::new(&world);
        // With equal hits, the first one is evicted.
        drop(actor.insert(&[1]));
        world.cache.settle();
        drop(actor.insert(&[7]));
        world.cache.settle();
        let reader = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).find(&[1]))
        });
        world.beside(|world| world.cache.run_once());
        reader.join().unwrap();
        assert_eq!(world.cache.evict(1), 1);
        assert_eq!((actor.session.peek(&world.space, &[1]), actor.session.peek(&world.space, &[7])), (1, 0));
        drop(actor);
        assert_eq!(world.close(), 1);
    });
}

/// Dropping a full cache frees everything.
// Holds: LE7.
#[test]
fn a_full_cache_is_dropped() {
    explore_order("insert 1,2 vs insert 1,3, then drop", || {
        let world = World::with(1, 6, &[&[5]]);
        let writers = [2, 3].map(|token| {
            let world = world.clone();
            spawn(move || drop(Actor::new(&world).insert(&[1, token])))
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(world.rest(0, 0).evictable_blocks, 4);
    });
}

/// Counts after a settle include a lease that was granted before.
#[test]
fn a_silent_lease_held_beside_a_settling() {
    explore("find 1, hold vs settle", || {
        let world = World::with(1, 4, &[&[1], &[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1])
        });
        world.beside(|world| world.cache.settle());
        let held = reader.join().unwrap();
        assert_eq!(world.rest(1, 0).evictable_blocks, 1);
        drop(held);
        assert_eq!(world.close(), 2);
    });
}

/// A branch point is silent while its child runs are evicted; then the rest of its own run is also
/// evicted.
#[test]
fn insert_and_the_end_of_its_silent_parent() {
    explore_less("insert 1,3 and release vs evict 3", || {
        let world = World::with(1, 4, &[&[1, 2], &[1, 4]]);
        let writer = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).insert(&[1, 3]))
        });
        let freed = world.beside(|world| world.cache.evict(3));
        writer.join().unwrap();
        assert!((2..=3).contains(&freed));
        world.close();
    });
}

/// A silent lease inside the evicted prefix stops the eviction; the rest is evictable when the
/// lease has ended.
#[test]
fn a_silent_lease_against_a_trim() {
    explore("find 1, release vs evict 2", || {
        let world = World::with(1, 4, &[&[1], &[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).find(&[1]))
        });
        let freed = world.beside(|world| world.cache.evict(2));
        reader.join().unwrap();
        assert!((1..=2).contains(&freed));
        assert_eq!(world.rest(0, 0).evictable_blocks, 2 - freed);
        assert_eq!(world.close(), 2 - freed);
    });
}
