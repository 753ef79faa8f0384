//! Marks and retentions of prefixes, in parallel with each other, with the kill and with the trim.
//!
//! Property: a mark that is made before its lease is released takes effect when the point is
//! ranked. When the point is killed, the mark moves to the remaining prefix, once. A retained
//! prefix is not evicted before its deadline, whatever leases are released; afterwards none of it
//! is kept.
//!
//! Edges: E2, E3, E4, E19.
//!
//! Seeded bugs: a record is published in place of another thread's record, or Relaxed; a record is
//! read without Acquire; marks do not flow; a retention has no lease; the lease of a second
//! retention is kept; a retention is announced Relaxed, or not pushed; a retention is kept in a
//! space that is being cleared.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Actor, World, explore, explore_less, spawn};
use radixkv::internals::at_rest;
use radixkv::{PolicyKind, PrefixCache, Priority, RetainError, Token};

fn world(capacity: usize, sequences: &[&[Token]]) -> Arc<World> {
    World::filled(PrefixCache::builder(1, capacity).policy(PolicyKind::Priority), capacity, sequences)
}

/// Starts a thread that gives the cached part of a prefix a priority.
fn prioritize(world: &Arc<World>, tokens: &'static [Token], level: i64) -> loom::thread::JoinHandle<bool> {
    let world = Arc::clone(world);
    spawn(move || {
        let actor = Actor::new(&world);
        let found = actor.find(tokens);
        actor.session.prioritize(found.lease(), Priority::new(level));
        found.len_tokens() == tokens.len()
    })
}

/// Two threads create the point's record at once. The remaining record has both priorities.
// Holds: PR6.
#[test]
fn two_mark_one_point() {
    explore("prioritize vs prioritize", || {
        let world = world(2, &[&[1], &[2]]);
        let marked = [prioritize(&world, &[1], 20), prioritize(&world, &[1], 60)];
        marked.into_iter().for_each(|marked| assert!(marked.join().unwrap()));
        assert_eq!(world.cache.evict(1), 1);
        // Its priority is 60; that of the other prefix, which was used later, is 35.
        assert_eq!(Actor::new(&world).find(&[1]).len_tokens(), 1);
        assert_eq!(world.close(), 1);
    });
}

/// The end of a run gets a priority while it is trimmed. The rest of the run always gets the
/// priority, directly or from the trimmed end.
// Holds: PR7.
#[test]
fn a_mark_against_the_trim_of_its_point() {
    explore("prioritize vs evict", || {
        let world = world(3, &[&[1, 2], &[5]]);
        let actor = Actor::new(&world);
        let other = Priority::new(90).expiring_after(Duration::from_nanos(8));
        // Used last: without its priority, 1,2 would be evicted first.
        world.cache.set_time(2);
        actor.session.prioritize(actor.find(&[5]).lease(), other);
        world.cache.set_time(0);
        drop(actor);
        let marking = prioritize(&world, &[1, 2], 60);
        assert_eq!(world.beside(|world| world.cache.evict(1)), 1);
        marking.join().unwrap();
        // The priority is 60; that of the other is 90 until time 10, and 35 afterwards.
        world.cache.set_time(10);
        let actor = Actor::new(&world);
        // A match would count as a use.
        if actor.session.peek(&world.space, &[1, 2]) == 1 {
            assert_eq!(world.cache.evict(1), 1);
            assert_eq!(actor.find(&[1]).len_tokens(), 1);
        }
        drop(actor);
        world.close();
    });
}

/// A retained prefix stays, even if its last lease is released while everything is evicted.
// Holds: PR1.
#[test]
fn a_retention_against_evicting_everything() {
    explore_less("retain, release vs evict", || retain_against_evicting(world(2, &[&[1, 2]])));
}

/// The same without silent points: the queue entry may already exist or be taken out.
#[test]
fn a_retention_beside_leases_that_are_told() {
    explore_less("retain, release vs evict, told", || retain_against_evicting(World::told(1, 2, &[&[1, 2]])));
}

fn retain_against_evicting(world: Arc<World>) {
    let keeper = spawn({
        let world = world.clone();
        move || {
            let actor = Actor::new(&world);
            let found = actor.find(&[1, 2]);
            actor.session.retain(found.lease(), Duration::from_nanos(10)).unwrap();
            found.len_tokens()
        }
    });
    world.beside(|world| world.cache.evict(2));
    let kept = keeper.join().unwrap();
    world.rest(kept, 0);
    world.cache.evict(2);
    assert_eq!(Actor::new(&world).find(&[1, 2]).len_tokens(), kept);
    world.cache.set_time(10);
    assert_eq!(world.close(), kept);
}

/// Two threads retain one prefix, and the evictor settles meanwhile: one lease is kept, until the
/// later deadline.
#[test]
fn two_retain_one_prefix() {
    explore_less("retain vs retain vs settle", || {
        let world = world(1, &[&[1]]);
        let keeper = |duration| {
            let world = world.clone();
            spawn(move || {
                let actor = Actor::new(&world);
                let found = actor.find(&[1]);
                actor.session.retain(found.lease(), Duration::from_nanos(duration)).unwrap();
            })
        };
        let keepers = [keeper(5), keeper(20)];
        world.beside(|world| world.cache.settle());
        keepers.into_iter().for_each(|keeper| keeper.join().unwrap());
        world.cache.set_time(19);
        world.rest(1, 0);
        world.cache.set_time(20);
        assert_eq!(world.close(), 1);
    });
}

/// The evictor takes over a retention request while another mark is made: neither is lost.
#[test]
fn a_mark_against_a_retention_that_is_taken_over() {
    explore("prioritize vs retain, settle", || {
        let world = world(2, &[&[1], &[2]]);
        let marking = prioritize(&world, &[1], 60);
        world.beside(|world| {
            let session = world.cache.session();
            let found = session.match_prefix_untouched(&world.space, &[1]);
            session.retain(found.lease(), Duration::from_nanos(5)).unwrap();
            drop(found);
            world.cache.settle();
        });
        assert!(marking.join().unwrap());
        world.rest(1, 0);
        world.cache.set_time(5);
        // Its priority is 60; that of the other prefix is 35.
        assert_eq!(world.cache.evict(1), 1);
        assert_eq!(world.cache.session().peek(&world.space, &[1]), 1);
        assert_eq!(world.close(), 1);
    });
}

/// A retention is refused, or ends with its space like an earlier one: no prefix that no lookup can
/// find is kept.
#[test]
fn a_retention_against_a_clear() {
    explore("retain vs clear", || {
        let world = world(2, &[&[1], &[2]]);
        let found = at_rest(|| {
            let actor = Actor::new(&world);
            actor.session.retain(actor.find(&[2]).lease(), Duration::from_nanos(10)).unwrap();
            world.cache.settle();
            actor.find(&[1])
        });
        let keeper = spawn({
            let world = world.clone();
            move || world.cache.session().retain(found.lease(), Duration::from_nanos(10))
        });
        world.beside(|world| world.space.clear());
        let refused = keeper.join().unwrap();
        assert!(matches!(refused, Ok(()) | Err(RetainError::NamespaceDropped)), "{refused:?}");
        assert_eq!(world.rest(0, 0).free_blocks, 2);
        assert_eq!(world.close(), 0);
    });
}
