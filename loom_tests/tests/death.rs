//! A run dies while another thread inserts its first token or falls back to the parent.
//!
//! Property: every thread treats a dead run as absent, even if it is not unlinked yet. An inserter
//! replaces it, and the unlink, which mostly runs after the lock is released, does not touch the
//! replacement. A reader whose run died leases the parent's point, and creates it again if
//! necessary. If another turn may retire memory that the run refers to, the run is unlinked under
//! the lock.
//!
//! Edges: E7 (length zero), E1 (the parent's slot), E2.
//!
//! Seeded bugs: a dead run is treated as live; the unlink is a plain store; the unlink comes before
//! the length becomes zero; the child is subtracted twice, or at the unlink; the unlink runs under
//! a guard that was pinned after the lock, or after the lock although another turn may retire a
//! point or the arrays.
#![cfg(radixkv_loom)]

mod common;

use std::time::Duration;

use common::{Actor, World, explore, explore_fewer_loads, explore_less, spawn};
use radixkv::internals::{at_rest, exploring_apart};

#[test]
fn an_insert_of_the_same_first_token() {
    explore_fewer_loads("insert 1,3 vs evict all of 1,2", || {
        let world = World::with(1, 5, &[&[1, 2]]);
        let writer = spawn({
            let world = world.clone();
            move || Actor::new(&world).insert(&[1, 3])
        });
        let freed = world.beside(move |world| world.cache.evict(2));
        let held = writer.join().unwrap();
        // The new run is attached to a point of the old one, or replaces it.
        assert!(freed == 2 || freed == 1);
        let stats = world.rest(2, 0);
        assert_eq!(stats.evictable_blocks, 0);
        let actor = Actor::new(&world);
        assert_eq!(actor.find(&[1, 3]).len_tokens(), 2);
        assert_eq!(actor.find(&[1, 2]).len_tokens(), 1);
        drop((held, actor));
        world.close();
    });
}

/// Inserts the same run again while the old one dies.
#[test]
fn an_insert_of_what_dies() {
    explore("insert 1 vs evict 1", || {
        let world = World::with(1, 2, &[&[1]]);
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let reservation = actor.session.reserve(1).expect("there are two");
                let root = actor.find(&[]);
                actor.fill(&[1], 0, &reservation);
                actor.session.insert(root.lease(), &[1], reservation).expect("the namespace stands")
            }
        });
        let freed = world.beside(move |world| world.cache.evict(1));
        let inserted = writer.join().unwrap();
        assert_eq!(inserted.duplicates.is_empty(), freed == 1);
        let actor = Actor::new(&world);
        world.rest(1, inserted.duplicates.len());
        assert_eq!(actor.find(&[1]).blocks(), inserted.blocks);
        drop((inserted, actor));
        assert_eq!(world.close(), 1);
    });
}

#[test]
fn a_reader_falls_back_to_the_parent() {
    explore("find 1,2,3 vs evict the run of 2,3", || {
        let world = World::with(1, 4, &[&[1], &[1, 2, 3]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2, 3])
        });
        let freed = world.beside(move |world| world.cache.evict(2));
        let found = reader.join().unwrap();
        match freed {
            2 => assert_eq!(found.len_tokens(), 1),
            _ => assert_eq!((freed, found.len_tokens()), (0, 3)),
        }
        world.rest(found.len_tokens(), 0);
        drop(found);
        assert_eq!(world.close(), 3 - freed);
    });
}

#[test]
fn a_reader_falls_back_to_the_root() {
    explore("find 1,2 vs evict everything", || {
        let world = World::with(1, 4, &[&[1], &[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2])
        });
        let freed = world.beside(move |world| world.cache.evict(2));
        let found = reader.join().unwrap();
        assert_eq!(found.len_tokens(), 2 - freed);
        world.rest(2 - freed, 0);
        drop(found);
        assert_eq!(world.close(), 2 - freed);
    });
}

/// The dying run, its replacement, and a reader that may find either.
#[test]
fn a_reader_beside_the_replacement() {
    explore_less("insert 1,2 vs find 1,2 vs evict 1", || {
        let world = World::with(1, 4, &[&[1]]);
        let writer = spawn({
            let world = world.clone();
            move || Actor::new(&world).insert(&[1, 2])
        });
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 2])
        });
        world.beside(move |world| world.cache.evict(1));
        let (held, found) = (writer.join().unwrap(), reader.join().unwrap());
        world.check(&[1, 2], 0, found.blocks());
        world.rest(2, 0);
        assert_eq!(Actor::new(&world).find(&[1, 2]).len_tokens(), 2);
        drop((held, found));
        assert_eq!(world.close(), 2);
    });
}

/// A run dies in one thread's turn, and its parent run in the other thread's turn, before the first
/// thread has unlinked the child.
#[test]
fn a_run_and_what_it_hung_on_in_two_turns() {
    explore("evict 2 vs evict 1: a child and its parent", || {
        let world = World::with(1, 3, &[&[1, 2], &[1, 3]]);
        let other = spawn({
            let world = world.clone();
            move || world.cache.evict(2)
        });
        assert_eq!((world.beside(|world| world.cache.evict(1)), other.join().unwrap()), (1, 2));
        assert_eq!(world.rest(0, 0).evicted_blocks, 3);
        assert_eq!(world.close(), 0);
    });
}

/// Two runs on the same point die in two threads' turns: both threads change the point's map.
#[test]
fn two_runs_of_one_point_in_two_turns() {
    explore("evict 1 vs evict 1: two children", || {
        let world = World::with(1, 2, &[&[1], &[2]]);
        let other = spawn({
            let world = world.clone();
            move || world.cache.evict(1)
        });
        assert_eq!((world.beside(|world| world.cache.evict(1)), other.join().unwrap()), (1, 1));
        world.rest(0, 0);
        assert_eq!(world.close(), 0);
    });
}

/// A run dies while its end point is in the queue: the other thread's turn may take out the entry
/// and retire the point before it lists the runs.
#[test]
fn a_run_with_a_queued_point_beside_a_list_of_runs() {
    explore("evict 1 vs find 1, list", || {
        let world = World::with(1, 1, &[&[1]]);
        let other = spawn({
            let world = world.clone();
            move || {
                drop(Actor::new(&world).find(&[1]));
                // Lists the runs without a lock.
                world.space.evict_idle(Duration::ZERO)
            }
        });
        let freed = world.beside(|world| world.cache.evict(1));
        assert_eq!(freed + other.join().unwrap(), 1);
        world.rest(0, 0);
        assert_eq!(world.close(), 0);
    });
}

/// A run dies while a draft event batch still names its arrays. The other thread copies them; its
/// turn ends the draft and retires the arrays before it lists the runs.
#[test]
fn a_run_whose_arrays_a_draft_names_beside_a_list_of_runs() {
    explore("evict 1 vs copy, list", || {
        let world = World::new(1, 1);
        let mut events = at_rest(|| {
            let events = world.cache.subscribe(2);
            drop(Actor::new(&world).insert(&[1]));
            world.cache.settle();
            // Publishes the collected events as a draft, whose handles the model explores.
            drop(exploring_apart(|| world.cache.subscribe(1)));
            events
        });
        let other = spawn({
            let world = world.clone();
            move || {
                assert!(events.try_next().is_some());
                let mut runs = 0;
                world.space.walk(|_| runs += 1);
                runs
            }
        });
        assert_eq!(world.beside(|world| world.cache.evict(1)), 1);
        assert!(other.join().unwrap() <= 1);
        world.rest(0, 0);
        assert_eq!(world.close(), 0);
    });
}
