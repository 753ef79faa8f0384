//! Turns of single shards (cache::evictor::alone) in parallel with each other and with turns of
//! all.
//!
//! Property: threads whose sessions belong to different shards evict at the same time, and every
//! block is cached, free or reserved, once. A turn of one shard evicts only idle runs of that
//! shard. If another shard removes a point's last child, the point's own shard checks the point, so
//! it is evicted or leased, never forgotten.
//!
//! Edges: E3 and E8 (the parent in its shard's queue; they also order its death after the child's
//! end, so E2 is margin here), the locks.
//!
//! Seeded bugs: the child is removed from a silent point as in a turn of all shards, so nobody
//! checks the point; the point is pushed to the queue of the shard that removed the child; a
//! deferred point is forgotten; a turn of all continues without locks that others hold.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{Actor, World, explore_fewer_loads, explore_less, spawn};
use radixkv::PrefixCache;
use radixkv::internals::at_rest;

/// A world with two shards and a session of each, which insert the sequences alternately.
fn two_shards(capacity: usize, sequences: &[&[u32]]) -> (Arc<World>, [Actor; 2]) {
    let world = World::build(PrefixCache::builder(1, capacity).shards(2), capacity);
    let actors = at_rest(|| {
        let actors = [Actor::new(&world), Actor::new(&world)];
        for (at, tokens) in sequences.iter().enumerate() {
            world.cache.set_time(at as u64 + 1);
            drop(actors[at % 2].insert(tokens));
        }
        world.cache.settle();
        actors
    });
    (world, actors)
}

#[test]
fn both_shards_evict() {
    explore_fewer_loads("reserve 1 in each shard", || {
        let (world, [first, second]) = two_shards(2, &[&[1], &[2]]);
        let other = spawn(move || {
            let taken = second.session.reserve(1).expect("its shard has one");
            (taken, second)
        });
        let taken = first.session.reserve(1).expect("its shard has one");
        let (also, second) = other.join().unwrap();
        assert_ne!(taken.blocks(), also.blocks());
        world.rest(0, 2);
        drop((taken, also, first, second));
        assert_eq!(world.close(), 0);
    });
}

#[test]
fn a_shard_evicts_beside_a_turn_of_all() {
    explore_fewer_loads("reserve 1 in a shard vs evict 2", || {
        let (world, [first, second]) = two_shards(2, &[&[1], &[2]]);
        let other = spawn({
            let world = Arc::clone(&world);
            move || world.cache.evict(2)
        });
        let taken = second.session.reserve(1).expect("there are two");
        let evicted = other.join().unwrap();
        assert!((1..=2).contains(&evicted), "{evicted}");
        world.rest(0, 1);
        drop((taken, first, second));
        world.close();
    });
}

/// The child belongs to the second shard, its parent to the first.
#[test]
fn the_last_child_is_removed_by_another_shard() {
    explore_fewer_loads("evict a child in its shard vs its parent in another", || {
        let (world, [first, second]) = two_shards(2, &[&[1], &[1, 2]]);
        let other = spawn(move || {
            let taken = second.session.reserve(1).expect("its shard has one");
            (taken, second)
        });
        // Until the child is removed, its own shard has no candidate, so it evicts in a turn of
        // all.
        let taken = first.session.reserve(1).expect("there are two");
        let (also, second) = other.join().unwrap();
        world.rest(0, 2);
        drop((taken, also, first, second));
        assert_eq!(world.close(), 0);
    });
}

/// The parent is leased silently when its last child is removed.
#[test]
fn the_last_child_of_a_leased_parent() {
    explore_fewer_loads("find a parent vs evict its child in another shard", || {
        let (world, [first, second]) = two_shards(2, &[&[1], &[1, 2]]);
        let reader = spawn(move || {
            drop(first.find(&[1]));
            first
        });
        let taken = second.session.reserve(1).expect("its shard has one");
        let first = reader.join().unwrap();
        let stats = world.rest(0, 1);
        assert_eq!(stats.evictable_blocks, 1, "the parent can be evicted");
        drop((taken, first, second));
        assert_eq!(world.close(), 1);
    });
}

#[test]
fn a_lease_against_the_eviction_by_its_shard() {
    explore_fewer_loads("find 1 vs reserve 1 in its shard", || {
        let (world, [first, second]) = two_shards(2, &[&[1], &[2]]);
        let reader = spawn(move || {
            let found = second.find(&[1]);
            (found.len_tokens(), found, second)
        });
        let taken = first.session.reserve(1).expect("there are two");
        let (found, lease, second) = reader.join().unwrap();
        world.rest(found, 1);
        drop((lease, taken, first, second));
        world.close();
    });
}

#[test]
fn an_insert_below_what_its_shard_evicts() {
    explore_less("insert 1,3 in one shard vs evict 1 in another, vs a turn of all", || {
        let (world, [first, second]) = two_shards(4, &[&[1], &[2]]);
        let writer = spawn(move || {
            drop(second.insert(&[1, 3]));
            second
        });
        let freed = world.beside(|world| world.cache.evict(1));
        let taken = first.session.reserve(2);
        let second = writer.join().unwrap();
        assert!(freed <= 1);
        let reserved = taken.as_ref().map_or(0, |taken| taken.blocks().len());
        world.rest(0, reserved);
        drop((taken, first, second));
        world.close();
    });
}
