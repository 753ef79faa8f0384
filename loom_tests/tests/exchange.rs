//! What changes while the cache is in use: the policy, exchanged in slices, and quotas.
//!
//! Property: a policy that was put in force has exactly the order of a cache that always had it, whatever was used,
//! inserted or evicted between two slices; a namespace never pins more than its limit, and is never refused within it;
//! the blocks that it has cached beyond its limit are evicted once the cache is settled. A slice is one candidate here.
//!
//! Edges: none of its own: the evictor alone does all of it, when it takes changes out of the queue.
//!
//! Teeth: a candidate filed, or struck, with the present policy alone; an exchange concluded before its end; a charge
//! that is not counted, or that its cached blocks do not take over; a refusal that looks twice; candidates left outside
//! their group.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{Actor, World, explore, explore_less, spawn};
use radixkv::internals::at_rest;
use radixkv::{BlockRequest, PolicyKind, PrefixCache, Quota, ReserveError, Token};

/// A world of capacity `capacity` under lru in which `sequences` are cached, one block each.
fn world(capacity: usize, sequences: &[&[Token]]) -> Arc<World> {
    World::filled(PrefixCache::builder(1, capacity).policy(PolicyKind::Lru), capacity, sequences)
}

fn quota(cached: Option<usize>, pinned: Option<usize>) -> Quota {
    let mut quota = Quota::default();
    (quota.cached_blocks, quota.pinned_blocks) = (cached, pinned);
    quota
}

/// Which of the one-token prefixes are cached.
fn cached(world: &World, tokens: &[Token]) -> Vec<bool> {
    let session = world.cache.session();
    tokens.iter().map(|&token| session.peek(&world.space, &[token]) == 1).collect()
}

/// The candidate of the prefix that is used has been moved to the new policy, or has not.
#[test]
fn a_use_against_an_exchange() {
    for used in [1, 2] {
        explore("find 1 or 2 vs set lfu, then evict 1 of 2", move || {
            let world = world(2, &[&[1], &[2]]);
            // The evictor is told of each lease, and files the candidate again after it.
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

/// Candidates go, and another one gets the id of one of them, which has been moved or has not.
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

/// Of two threads that want the last block that the namespace may pin, one gets it.
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

/// A refusal gives the count that it was decided by, although a reservation ends meanwhile.
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

/// A charge becomes a lease on what is cached: it counts all the time, and never twice.
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

/// Blocks cached beyond a limit are evicted, whether they were cached before the limit was set or after.
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
