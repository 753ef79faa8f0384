//! The evictor's queue of changes, in parallel with drains, and with the kill and retirement of the
//! changed point.
//!
//! Property: no change is lost or counted twice, whatever the drain does. A point is retired once,
//! after its entry was taken out. After settling, the accounts are exact.
//!
//! Edges: E3, E4 (`QUEUED`), E8 (push before drain), E2 (last release before the kill).
//!
//! Seeded bugs: the link is read after `QUEUED` was cleared; `take_out` without Acquire or without
//! Release; a queued point is retired immediately; a dead entry is not retired; `QUEUED` is set by
//! a second operation; a push without Release.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_less, spawn};

#[test]
fn the_last_release_against_the_kill() {
    explore("release vs evict 1", || {
        let world = World::told(1, 2, &[&[1]]);
        let found = Actor::new(&world).find(&[1]);
        let holder = spawn(move || drop(found));
        let freed = world.beside(move |world| world.cache.evict(1));
        holder.join().unwrap();
        assert_eq!(world.rest(0, 0).evictable_blocks, 1 - freed);
        assert_eq!(world.close(), 1 - freed);
    });
}

#[test]
fn steps_against_drains() {
    explore("find and release vs two drains", || {
        let world = World::told(1, 2, &[&[1]]);
        let reader = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).find(&[1]))
        });
        world.beside(|world| [world.cache.run_once(), world.cache.run_once()]);
        reader.join().unwrap();
        assert_eq!(world.rest(0, 0).evictable_blocks, 1);
        assert_eq!(world.close(), 1);
    });
}

/// Entries are pushed while the drain walks the chain that it took.
#[test]
fn two_points_against_a_drain() {
    explore_less("find and release 1 vs the same of 2 vs drain", || {
        let world = World::told(1, 4, &[&[1], &[2]]);
        let readers = [1, 2].map(|token| {
            let world = world.clone();
            spawn(move || drop(Actor::new(&world).find(&[token])))
        });
        world.beside(|world| world.cache.run_once());
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(world.rest(0, 0).evictable_blocks, 2);
        assert_eq!(world.close(), 2);
    });
}

/// Two leases on one point are released while entries are taken out.
#[test]
fn two_releases_of_one_point_against_drains() {
    explore("two releases vs two drains", || {
        let world = World::told(1, 2, &[&[1]]);
        let holders = [0; 2].map(|_| Actor::new(&world).find(&[1])).map(|found| spawn(move || drop(found)));
        world.beside(|world| [world.cache.run_once(), world.cache.run_once()]);
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        assert_eq!(world.rest(0, 0).evictable_blocks, 1);
        assert_eq!(world.close(), 1);
    });
}

/// The second lease is kept: the drain must see it, and a later drain must see its end.
#[test]
fn a_lease_against_a_drain_and_an_eviction() {
    explore("find, release, find vs evict 1", || {
        let world = World::told(1, 2, &[&[1]]);
        let reader = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                drop(actor.find(&[1]));
                actor.find(&[1])
            }
        });
        let freed = world.beside(move |world| world.cache.evict(1));
        let found = reader.join().unwrap();
        assert_eq!(found.len_tokens() + freed, 1);
        world.rest(1 - freed, 0);
        drop(found);
        assert_eq!(world.close(), 1 - freed);
    });
}

/// A clone may outlive the lease that it came from.
#[test]
fn a_clone_against_a_drain_and_a_kill() {
    explore("clone, release both vs evict 1", || {
        let world = World::told(1, 2, &[&[1]]);
        let lease = Actor::new(&world).find(&[1]).into_lease();
        let holder = spawn(move || {
            let clone = lease.try_clone().expect("few leases");
            drop(lease);
            drop(clone);
        });
        let freed = world.beside(move |world| world.cache.evict(1));
        holder.join().unwrap();
        assert_eq!(world.rest(0, 0).evictable_blocks, 1 - freed);
        assert_eq!(world.close(), 1 - freed);
    });
}
