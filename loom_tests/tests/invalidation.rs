//! Invalidation of blocks in parallel with matches, inserts and releases; weak leases whose point
//! dies.
//!
//! Property: a lookup that begins after the call finds none of the blocks, even leased ones. Leased
//! blocks are free when the leases end. Blocks that are inserted beyond them meanwhile stay in the
//! accounts, but are not found. Upgrading a weak lease leases the whole prefix, or reports that it
//! is gone.
//!
//! Edges: E1 (the slot that a run is unlinked from), E2, E3, E6, E19 (the record with the anchor).
//!
//! Seeded bugs: a run is hidden but not unlinked; a run is unlinked but not listed; a run is
//! attached to a hidden point and not unlinked, or is built on before it is unlinked; hidden blocks
//! are not freed until blocks are needed; a retention of a hidden prefix is kept; a dead point's
//! anchor stays valid; an anchor is made twice.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_fewer_loads, spawn};
use radixkv::InsertErrorKind;

// Holds: IV1.
#[test]
fn a_match_against_an_invalidation() {
    explore("find 1,2 vs invalidate 2", || {
        let world = World::with(1, 3, &[&[1, 2]]);
        let wrong = Actor::new(&world).find(&[1, 2]).blocks()[1];
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2])
        });
        let hidden = world.beside(move |world| world.cache.invalidate_blocks(&[wrong]));
        let found = reader.join().unwrap();
        assert_eq!(hidden, 1);
        assert_eq!(Actor::new(&world).find(&[1, 2]).len_tokens(), 1);
        world.rest(found.len_tokens(), 0);
        drop(found);
        assert_eq!(world.rest(0, 0).free_blocks, 2);
        assert_eq!(world.close(), 1);
    });
}

/// The whole run is invalidated while another run branches off it.
// Holds: IV2.
#[test]
fn a_branch_against_an_invalidation() {
    explore_fewer_loads("insert 1,3 vs invalidate 1 of 1,2", || {
        let world = World::with(1, 5, &[&[1, 2]]);
        let wrong = Actor::new(&world).find(&[1]).blocks()[0];
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let found = actor.find(&[1, 3]);
                let blocks = actor.session.reserve(2 - found.len_tokens()).expect("there are five");
                actor.fill(&[1, 3], found.len_tokens(), &blocks);
                actor.session.insert(found.lease(), &[1, 3], blocks).map_err(|refused| refused.kind)
            }
        });
        let hidden = world.beside(move |world| world.cache.invalidate_blocks(&[wrong]));
        let held = writer.join().unwrap();
        assert!((2..=3).contains(&hidden), "{hidden}");
        assert!(matches!(held, Ok(_) | Err(InsertErrorKind::Invalidated)));
        assert!(Actor::new(&world).find(&[1, 2]).len_tokens() <= 1, "2 is not computed anew");
        drop(held);
        let stats = world.rest(0, 0);
        assert!(stats.free_blocks == 5 || stats.evictable_blocks == 2, "hidden, or computed anew: {stats:?}");
        world.close();
    });
}

// Holds: IV2.
#[test]
fn an_insert_beyond_what_is_invalidated() {
    explore_fewer_loads("insert 1,2,3 from 1,2 vs invalidate 2", || {
        let world = World::with(1, 4, &[&[1, 2]]);
        let found = Actor::new(&world).find(&[1, 2]);
        let wrong = found.blocks()[1];
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let blocks = actor.session.reserve(1).expect("there are four");
                actor.fill(&[1, 2, 3], 2, &blocks);
                actor.session.insert(found.lease(), &[1, 2, 3], blocks).map(|inserted| (found, inserted))
            }
        });
        let hidden = world.beside(move |world| world.cache.invalidate_blocks(&[wrong]));
        let inserted = writer.join().unwrap();
        match inserted {
            Ok(held) => {
                assert!((1..=2).contains(&hidden), "{hidden}");
                // Nothing is built on it, even if no turn of the evictor has seen it.
                let actor = Actor::new(&world);
                let blocks = actor.session.reserve(1).expect("there are four");
                let refused = actor.session.insert(&held.1.lease, &[1, 2, 3, 4], blocks);
                assert_eq!(refused.expect_err("2 is wrong").kind, InsertErrorKind::Invalidated);
                world.rest(3, 0);
                assert_eq!(Actor::new(&world).find(&[1, 2, 3]).len_tokens(), 1);
                drop(held);
            }
            Err(refused) => assert_eq!((refused.kind, hidden), (InsertErrorKind::Invalidated, 1)),
        }
        assert_eq!(world.rest(0, 0).free_blocks, 3);
        assert_eq!(world.close(), 1);
    });
}

// Holds: IV1.
#[test]
fn a_release_against_an_invalidation() {
    explore("release of 1,2 vs invalidate 1", || {
        let world = World::with(1, 2, &[&[1, 2]]);
        let found = Actor::new(&world).find(&[1, 2]);
        let wrong = found.blocks()[0];
        let holder = spawn(move || drop(found));
        assert_eq!(world.beside(move |world| world.cache.invalidate_blocks(&[wrong])), 2);
        holder.join().unwrap();
        assert_eq!(world.rest(0, 0).free_blocks, 2);
        assert_eq!(world.close(), 0);
    });
}

/// A retention of invalidated blocks ends, whichever call comes first.
// Holds: IV1.
#[test]
fn a_retention_against_an_invalidation() {
    explore_fewer_loads("retain 1,2 vs invalidate 2", || {
        let world = World::with(1, 3, &[&[1, 2]]);
        let found = Actor::new(&world).find(&[1, 2]);
        let wrong = found.blocks()[1];
        let holder = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let _ = actor.session.retain(found.lease(), std::time::Duration::from_nanos(1 << 40));
            }
        });
        assert_eq!(world.beside(move |world| world.cache.invalidate_blocks(&[wrong])), 1);
        holder.join().unwrap();
        assert_eq!(world.rest(0, 0).free_blocks, 2);
        assert_eq!(world.close(), 1);
    });
}

/// The run's arrays are replaced by smaller ones while the invalidation reads its blocks.
// Holds: IV1.
#[test]
fn a_trim_against_an_invalidation() {
    explore_fewer_loads("evict 3 of 1,2,3,4 vs invalidate 4", || {
        let world = World::with(1, 4, &[&[1, 2, 3, 4]]);
        let wrong = Actor::new(&world).find(&[1, 2, 3, 4]).blocks()[3];
        let evicting = spawn({
            let world = world.clone();
            move || world.cache.evict(3)
        });
        let hidden = world.beside(move |world| world.cache.invalidate_blocks(&[wrong]));
        assert!((2..=3).contains(&evicting.join().unwrap()) && hidden <= 1);
        world.rest(0, 0);
        world.close();
    });
}

// Holds: IV7.
#[test]
fn an_upgrade_against_the_death_of_its_point() {
    explore("upgrade 1,2 vs evict 1", || {
        let world = World::with(1, 2, &[&[1, 2]]);
        let actor = Actor::new(&world);
        let weak = actor.find(&[1, 2]).lease().downgrade();
        drop(actor);
        let waiting = spawn({
            let (world, weak) = (world.clone(), weak.clone());
            move || Actor::new(&world).session.upgrade(&weak)
        });
        let freed = world.beside(move |world| world.cache.evict(1));
        let upgraded = waiting.join().unwrap();
        assert_eq!(freed, usize::from(upgraded.is_none()));
        world.rest(upgraded.as_ref().map_or(0, |lease| lease.len_tokens()), 0);
        let again = Actor::new(&world).session.upgrade(&weak);
        assert_eq!(again.is_some(), upgraded.is_some());
        drop((again, upgraded));
        world.close();
    });
}

/// Two threads create one point's anchor at once. Both must get the same one, which becomes invalid
/// when the point dies.
// Holds: IV7.
#[test]
fn two_weak_leases_are_made_at_once() {
    explore("downgrade vs downgrade", || {
        let world = World::with(1, 1, &[&[1]]);
        let downgrade = |world: &std::sync::Arc<World>| {
            let world = world.clone();
            spawn(move || {
                let actor = Actor::new(&world);
                actor.find(&[1]).lease().downgrade()
            })
        };
        let made = [downgrade(&world), downgrade(&world)].map(|made| made.join().unwrap());
        assert_eq!(world.cache.evict(1), 1);
        let actor = Actor::new(&world);
        assert!(made.iter().all(|weak| actor.session.upgrade(weak).is_none()));
        drop(actor);
        world.close();
    });
}
