//! Hot points: inflation and deflation in parallel with leases, releases, clones, the kill, and
//! reuse of the slot.
//!
//! Property: a lease that is counted on a stripe protects its point and blocks like any other. No
//! hit is lost when a point is deflated. When the accounts are settled, an idle hot point is
//! evictable and its slot is free.
//!
//! Edges: E12, E13, E14, Dekker.
//!
//! Seeded bugs: the word is not read a second time; the second read checks the flag but not the
//! slot; a slot is attached to a point that already has one; a stripe is given back Relaxed; a
//! clone only counts on its stripe; the bias is not taken; either side of Dekker without its fence;
//! a slot is freed, taken or attached Relaxed; a slot is kept although nothing else holds its
//! point.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{Actor, World, explore, explore_fewer_loads, explore_less, spawn};
use radixkv::internals::{at_rest, hot_points, inflate};
use radixkv::{PolicyKind, PrefixCache, Token};

/// A world with `slots` slots for hot points and cached `sequences`; the first one's end point is
/// hot.
fn world(capacity: usize, slots: usize, sequences: &[&[Token]]) -> Arc<World> {
    let builder = PrefixCache::builder(1, capacity).policy(PolicyKind::Lfu);
    let world = World::filled(hot_points(builder, slots), capacity, sequences);
    assert!(at_rest(|| inflate(Actor::new(&world).find(sequences[0]).lease())));
    world
}

/// Reserves all blocks if possible, and overwrites them. Returns the number of blocks.
fn take_over(world: &World) -> usize {
    let session = world.cache.session();
    let blocks = session.reserve(world.cache.capacity_blocks());
    blocks.map_or(0, |blocks| {
        let other: Vec<Token> = (100..).take(blocks.len()).collect();
        world.write(&other, 0, &blocks);
        blocks.len()
    })
}

/// A lease on a stripe, or one that comes too late for a stripe, against the kill of its point and
/// the reuse of its block.
#[test]
fn a_lease_against_deflation_and_the_kill() {
    explore_fewer_loads("find, read, release on a hot point vs reserve", || {
        let world = world(1, 1, &[&[1]]);
        let reader = spawn({
            let world = world.clone();
            move || {
                let found = Actor::new(&world).find(&[1]);
                world.check(&[1], 0, found.blocks());
                found.len_tokens()
            }
        });
        let taken = world.beside(take_over);
        let found = reader.join().unwrap();
        assert!(taken == 1 || found == 1);
        assert_eq!(world.close(), 1 - taken);
    });
}

/// A lease that is counted in the word keeps the point's slot; it is released meanwhile.
// Holds: LE12.
#[test]
fn a_release_in_the_word_against_deflation() {
    explore("release on the word of a hot point vs settle, reserve", || {
        let world = World::filled(hot_points(PrefixCache::builder(1, 1), 2), 1, &[&[1]]);
        let held = at_rest(|| {
            let held = Actor::new(&world).find(&[1]).into_lease();
            assert!(inflate(&held));
            held
        });
        let holder = spawn(move || drop(held));
        let taken = world.beside(|world| {
            world.cache.settle();
            take_over(world)
        });
        holder.join().unwrap();
        assert_eq!(world.close(), 1 - taken);
    });
}

/// Two leases, on the same stripe or on two, in parallel with the evictor.
// Holds: LE12.
#[test]
fn two_leases_against_deflation() {
    explore_less("find vs find on a hot point vs settle", || {
        let world = world(1, 1, &[&[1]]);
        let reader = |world: &Arc<World>| {
            let world = world.clone();
            spawn(move || {
                let found = Actor::new(&world).find(&[1]);
                world.check(&[1], 0, found.blocks());
                found
            })
        };
        let readers = [reader(&world), reader(&world)];
        world.beside(|world| world.cache.settle());
        let found = readers.map(|reader| reader.join().unwrap());
        assert_eq!(found.each_ref().map(|found| found.len_tokens()), [1, 1]);
        world.rest(1, 0);
        drop(found);
        assert_eq!(world.close(), 1);
    });
}

/// A leaseholder's last reads of the block happen before the next owner's writes, whether the lease
/// was counted on a stripe or in the word.
#[test]
fn a_block_of_a_hot_point_is_recycled() {
    explore("read, release on a hot point vs reserve, fill", || {
        let world = world(1, 1, &[&[1]]);
        let held = Actor::new(&world).find(&[1]);
        let reader = spawn({
            let world = world.clone();
            move || {
                world.check(&[1], 0, held.blocks());
                drop(held);
            }
        });
        world.beside(take_over);
        reader.join().unwrap();
        world.close();
    });
}

/// Two threads inflate at once: the bias is taken once.
#[test]
fn two_inflate() {
    explore("inflate vs inflate vs settle", || {
        let world = world(1, 2, &[&[1]]);
        world.cache.settle();
        let inflater = |world: &Arc<World>| {
            let world = world.clone();
            spawn(move || inflate(Actor::new(&world).find(&[1]).lease()))
        };
        let inflaters = [inflater(&world), inflater(&world)];
        inflaters.into_iter().for_each(|inflater| _ = inflater.join().unwrap());
        assert_eq!(world.close(), 1);
    });
}

/// The evictor finds the point in its slot before it knows the point from a queue entry.
#[test]
fn a_new_point_is_inflated() {
    explore("insert, inflate vs settle", || {
        let world = World::build(hot_points(PrefixCache::builder(1, 1), 1), 1);
        let inserter = spawn({
            let world = world.clone();
            move || inflate(&Actor::new(&world).insert(&[1]).lease)
        });
        world.beside(|world| world.cache.settle());
        inserter.join().unwrap();
        assert_eq!(world.close(), 1);
    });
}

/// A point's slot is given to another point, and the point gets another slot, while a thread enters
/// with the old slot.
#[test]
fn a_slot_changes_hands() {
    explore_less("find 1 vs settle, inflate 2, inflate 1, reserve", || {
        let world = world(2, 2, &[&[1], &[2]]);
        let reader = spawn({
            let world = world.clone();
            move || {
                let found = Actor::new(&world).find(&[1]);
                world.check(&[1], 0, found.blocks());
            }
        });
        world.beside(|world| {
            world.cache.settle();
            let session = world.cache.session();
            for token in [2, 1] {
                inflate(session.match_prefix(&world.space, &[token]).lease());
            }
            drop(session);
            take_over(world);
        });
        reader.join().unwrap();
        world.close();
    });
}

/// A lease is cloned while the evictor sums the stripes: the clone outlives the lease and protects
/// the block.
// Holds: LE3.
#[test]
fn a_clone_against_deflation() {
    explore_fewer_loads("find, clone, drop on a hot point vs reserve", || {
        let world = world(1, 1, &[&[1]]);
        let cloner = spawn({
            let world = world.clone();
            move || {
                let found = Actor::new(&world).find(&[1]);
                let clone = found.lease().try_clone().expect("few leases");
                let blocks = found.blocks().to_vec();
                drop(found);
                world.check(&[1], 0, &blocks);
                clone.len_tokens()
            }
        });
        let taken = world.beside(take_over);
        let found = cloner.join().unwrap();
        assert_eq!(world.close(), 1 - taken);
        assert!(taken + found >= 1);
    });
}

/// Hits on stripes are added to the point: with lfu, the prefix that was used more often stays.
// Holds: LE12.
#[test]
fn hits_on_stripes_are_counted() {
    explore("find, find on a hot point vs settle, then evict 1 of 2", || {
        let world = world(2, 1, &[&[1], &[2]]);
        let actor = Actor::new(&world);
        // Both are found twice, and prefix 1 once more when it was inflated.
        (0..2).for_each(|_| drop(actor.find(&[2])));
        drop(actor);
        let reader = spawn({
            let world = world.clone();
            move || (0..2).for_each(|_| drop(Actor::new(&world).find(&[1])))
        });
        world.beside(|world| world.cache.settle());
        reader.join().unwrap();
        assert_eq!(world.cache.evict(1), 1);
        let session = world.cache.session();
        assert_eq!([1, 2].map(|token| session.peek(&world.space, &[token])), [1, 0]);
        drop(session);
        assert_eq!(world.close(), 1);
    });
}

/// A slot passes to another point, which two threads use at once: its stripes must start empty.
/// With lru, the prefix that was used later stays.
#[test]
fn a_slot_is_emptied_before_its_next_point_has_it() {
    explore_less("deflate 1 vs inflate 2 vs find 2, then evict 1 of 3", || {
        let builder = PrefixCache::builder(1, 3).policy(PolicyKind::Lru);
        let world = World::filled(hot_points(builder, 1), 3, &[&[1], &[2], &[3]]);
        at_rest(|| {
            let actor = Actor::new(&world);
            world.cache.set_time(3);
            drop(actor.find(&[3]));
            world.cache.set_time(5);
            let found = actor.find(&[1]);
            assert!(inflate(found.lease()));
            // Writes a time stamp to the stripe.
            drop(actor.find(&[1]));
        });
        let inflater = spawn({
            let world = world.clone();
            move || inflate(world.cache.session().match_prefix_untouched(&world.space, &[2]).lease())
        });
        let user = spawn({
            let world = world.clone();
            move || drop(world.cache.session().match_prefix(&world.space, &[2]))
        });
        world.beside(|world| world.cache.run_once());
        inflater.join().unwrap();
        user.join().unwrap();
        world.rest(0, 0);
        assert_eq!(world.cache.evict(1), 1);
        let session = world.cache.session();
        assert_eq!([1, 2, 3].map(|token| session.peek(&world.space, &[token])), [1, 1, 0]);
        drop(session);
        assert_eq!(world.close(), 2);
    });
}
