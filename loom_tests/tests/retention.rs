//! Marks and retaining, against each other, the kill and the trim.
//!
//! Property: a mark that was made before its lease was released is there when the point is ranked, and flows once when the
//! point is killed; a retained prefix is not evicted before its deadline, whatever is released, and nothing of it stays
//! afterwards.
//!
//! Edges: E2, E3, E19.
//!
//! Teeth: a record published in place of another's, or Relaxed; a record read without Acquire; marks that do not flow;
//! a retention without a lease; the lease of a second one kept; one that is announced Relaxed, or not pushed; one
//! that is kept in a space that is being cleared.
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

/// Gives a prefix a priority if it is there.
fn prioritize(world: &Arc<World>, tokens: &'static [Token], level: i64) -> loom::thread::JoinHandle<bool> {
    let world = Arc::clone(world);
    spawn(move || {
        let actor = Actor::new(&world);
        let found = actor.find(tokens);
        actor.session.prioritize(found.lease(), Priority::new(level));
        found.len_tokens() == tokens.len()
    })
}

/// Two threads make the point's record at once: both priorities are in the record that stays.
#[test]
fn two_mark_one_point() {
    explore("prioritize vs prioritize", || {
        let world = world(2, &[&[1], &[2]]);
        let marked = [prioritize(&world, &[1], 20), prioritize(&world, &[1], 60)];
        marked.into_iter().for_each(|marked| assert!(marked.join().unwrap()));
        assert_eq!(world.cache.evict(1), 1);
        // 60 against the 35 of the other, which was used later.
        assert_eq!(Actor::new(&world).find(&[1]).len_tokens(), 1);
        assert_eq!(world.close(), 1);
    });
}

/// A priority given to the end of a run while the end is trimmed: what remains of the run has it in any case, by itself
/// or because it flowed there.
#[test]
fn a_mark_against_the_trim_of_its_point() {
    explore("prioritize vs evict", || {
        let world = world(3, &[&[1, 2], &[5]]);
        let actor = Actor::new(&world);
        let other = Priority::new(90).expiring_after(Duration::from_nanos(8));
        // Used last: without its priority 1,2 would go first.
        world.cache.set_time(2);
        actor.session.prioritize(actor.find(&[5]).lease(), other);
        world.cache.set_time(0);
        drop(actor);
        let marking = prioritize(&world, &[1, 2], 60);
        assert_eq!(world.beside(|world| world.cache.evict(1)), 1);
        marking.join().unwrap();
        // 60 against 90 until 10, and against 35 afterwards.
        world.cache.set_time(10);
        let actor = Actor::new(&world);
        // Not a match, which would use it.
        if actor.session.peek(&world.space, &[1, 2]) == 1 {
            assert_eq!(world.cache.evict(1), 1);
            assert_eq!(actor.find(&[1]).len_tokens(), 1);
        }
        drop(actor);
        world.close();
    });
}

/// A retained prefix stays, although its last lease is released while everything is being evicted.
#[test]
fn a_retention_against_evicting_everything() {
    explore_less("retain, release vs evict", || retain_against_evicting(world(2, &[&[1, 2]])));
}

/// The same where the leases are told, too: the entry may be there already, or be taken out by then.
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

/// Two threads retain one prefix, and the earlier deadline comes meanwhile: one lease is kept, until the later one.
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

/// A request to retain is taken over while another mark is made: neither is lost.
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
        // 60 against the 35 of the other one.
        assert_eq!(world.cache.evict(1), 1);
        assert_eq!(world.cache.session().peek(&world.space, &[1]), 1);
        assert_eq!(world.close(), 1);
    });
}

/// A retention is refused, or ends with its space, as an earlier one does: no prefix is kept that no lookup finds.
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
