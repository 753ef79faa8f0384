//! Settings change while the cache is in use: the policy, which is exchanged in slices, and quotas.
//!
//! Property: after an exchange, the order of candidates is as in a cache that always had the
//! policy, whatever was used, inserted or evicted between two slices. A namespace never pins more
//! blocks than its limit, and is never refused within its limit. Its cached blocks beyond the limit
//! are evicted when the cache is settled. In these models, a slice is one candidate.
//!
//! Edges: none; only the evictor does this, when it takes changes from the queue.
//!
//! Seeded bugs: a candidate is filed with, or removed from, only the current policy; an exchange is
//! finished too early; a charge is not counted, or is not converted to a charge for cached blocks;
//! a refusal reads the count twice; candidates stay outside their group.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{Actor, World, explore, explore_less, spawn};
use radixkv::internals::at_rest;
use radixkv::{BlockRequest, PolicyKind, PrefixCache, Quota, ReserveError, Token};

/// A world of `capacity` blocks with the policy lru and cached `sequences` of one block each.
fn world(capacity: usize, sequences: &[&[Token]]) -> Arc<World> {
    World::filled(PrefixCache::builder(1, capacity).policy(PolicyKind::Lru), capacity, sequences)
}

fn quota(cached: Option<usize>, pinned: Option<usize>) -> Quota {
    let mut quota = Quota::default();
    (quota.cached_blocks, quota.pinned_blocks) = (cached, pinned);
    quota
}

/// For each token, whether its one-token prefix is cached.
fn cached(world: &World, tokens: &[Token]) -> Vec<bool> {
    let session = world.cache.session();
    tokens.iter().map(|&token| session.peek(&world.space, &[token]) == 1).collect()
}

/// The candidate of the used prefix may or may not have been moved to the new policy.
#[test]
fn a_use_against_an_exchange() {
    for used in [1, 2] {
        explore("find 1 or 2 vs set lfu, then evict 1 of 2", move || {
            let world = world(2, &[&[1], &[2]]);
            // With a quota, each lease is a change for the evictor, which files the candidate again
            // afterwards.
            at_rest(|| world.space.set_quota(Quota::default().pinned_blocks(2)));
            let user = spawn({
                let world = world.clone();
                move || drop(Actor::new(&world).find(&[used]))
            });
            world.beside(|world| {
                world.cache.settings().set_policy(PolicyKind::Lfu);
                world.cache.run_once();
            });
            user.join().unwrap();
            world.rest(0, 0);
            assert_eq!(world.cache.settings().policy(), PolicyKind::Lfu);
            assert_eq!(world.cache.evict(1), 1);
            assert_eq!(cached(&world, &[1, 2]), [used == 1, used == 2]);
            assert_eq!(world.close(), 1);
        });
    }
}

/// Candidates are removed, and a new one gets the id of a removed one, which may or may not have
/// been moved.
#[test]
fn slots_that_change_hands_against_an_exchange() {
    for evicted in [1, 2] {
        explore("evict 1 or 2, insert 4 vs set mru", move || {
            let world = world(4, &[&[1], &[2], &[3]]);
            let evictor = spawn({
                let world = world.clone();
                move || {
                    assert_eq!(world.cache.evict(evicted), evicted);
                    drop(Actor::new(&world).insert(&[4]));
                }
            });
            world.beside(|world| world.cache.settings().set_policy(PolicyKind::Mru));
            evictor.join().unwrap();
            world.rest(0, 0);
            assert_eq!(world.cache.settings().policy(), PolicyKind::Mru);
            let left = cached(&world, &[1, 2, 3, 4]);
            assert_eq!(left.iter().filter(|cached| **cached).count(), 4 - evicted, "{left:?}");
            assert_eq!(world.close(), 4 - evicted);
        });
    }
}

/// If two threads request the last block that the namespace may pin, one gets it.
// Holds: QU4.
#[test]
fn two_charges_for_one_block() {
    explore("reserve 1 of 1 vs reserve 1 of 1", || {
        let world = world(2, &[]);
        world.space.set_quota(quota(None, Some(1)));
        let reserver = |world: &Arc<World>| {
            let world = world.clone();
            spawn(move || world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)).ok())
        };
        let reserved = [reserver(&world), reserver(&world)].map(|reserver| reserver.join().unwrap());
        assert_eq!(reserved.iter().flatten().count(), 1);
        drop(reserved);
        world.space.set_quota(Quota::default());
        world.close();
    });
}

/// A refusal reports the count that it was based on, even if a reservation ends meanwhile.
#[test]
fn a_charge_let_go_against_another() {
    explore("let go of 1 vs reserve 1 of 1", || {
        let world = world(2, &[]);
        world.space.set_quota(quota(None, Some(1)));
        let reserved = world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)).unwrap();
        let holder = spawn(move || drop(reserved));
        world.beside(|world| {
            if let Err(error) = world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)) {
                assert_eq!(error, ReserveError::OverQuota { requested: 1, pinned: 1, limit: 1 });
            }
        });
        holder.join().unwrap();
        assert!(world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)).is_ok());
        world.space.set_quota(Quota::default());
        world.close();
    });
}

/// A charge for a reservation becomes a lease on cached blocks: it is always counted, and never
/// twice.
#[test]
fn a_charge_that_is_cached_against_another() {
    for limit in [1, 2] {
        explore("reserve 1, insert, keep vs reserve 1 of 1 or 2", move || {
            let world = world(2, &[]);
            world.space.set_quota(quota(None, Some(limit)));
            let actor = Actor::new(&world);
            let reserved = actor.session.reserve(BlockRequest::new(1).paid_by(&world.space)).unwrap();
            drop(actor);
            let inserter = spawn({
                let world = world.clone();
                move || {
                    let actor = Actor::new(&world);
                    actor.fill(&[1], 0, &reserved);
                    let nothing = actor.find(&[]);
                    actor.session.insert(nothing.lease(), &[1], reserved).unwrap().lease
                }
            });
            let other =
                world.beside(|world| world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)).is_ok());
            assert_eq!(other, limit == 2);
            let lease = inserter.join().unwrap();
            world.rest(1, 0);
            drop(lease);
            world.space.set_quota(Quota::default());
            assert_eq!(world.close(), 1);
        });
    }
}

/// Cached blocks beyond a limit are evicted, whether they were cached before or after the limit was
/// set.
// Holds: QU3.
#[test]
fn an_insert_against_a_limit() {
    explore_less("insert 3 vs limit the namespace to 1", || {
        let world = world(3, &[&[1], &[2]]);
        let inserter = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).insert(&[3]))
        });
        world.beside(|world| world.space.set_quota(quota(Some(1), None)));
        inserter.join().unwrap();
        world.rest(0, 0);
        assert_eq!(world.space.stats().cached_blocks, 1);
        world.space.set_quota(Quota::default());
        assert_eq!(world.close(), 1);
    });
}
