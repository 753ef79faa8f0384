//! Clearing and dropping namespaces in parallel with matches, inserts and live leases.
//!
//! Property: a lookup sees either the whole tree before the clear or the whole tree after it.
//! Leased blocks stay until the lease ends, and are then free. Blocks that are inserted in parallel
//! with a clear stay in the accounts. The old tree is freed, once.
//!
//! Edges: the space's swap and `detach`, E2, E3 (the root's last child), E11 (the dead root).
//!
//! Seeded bugs: the root's permanent child is not subtracted; idle ends of a detached space are
//! ranked instead of trimmed; the root is killed although it is held; a namespace is forgotten
//! although it is leased, or while its name is resolved, or because its root was checked before its
//! handles; a space is marked as detached before its root is swapped.
#![cfg(radixkv_loom)]

mod common;

use common::{Actor, World, explore, explore_order, spawn};
use radixkv::internals::exploring_apart;
use radixkv::{InsertErrorKind, Inserted, Lease, Token};

// Holds: NS3.
#[test]
fn a_match_against_a_clear() {
    explore("find 1,9 vs clear", || {
        let world = World::with(1, 2, &[&[1, 2]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 9])
        });
        world.beside(move |world| world.space.clear());
        let found = reader.join().unwrap();
        assert!(found.len_tokens() <= 1);
        let stats = world.rest(found.len_tokens(), 0);
        assert_eq!(stats.evictable_blocks, 0);
        assert_eq!(Actor::new(&world).find(&[1]).len_tokens(), 0);
        drop(found);
        // Leased blocks are freed with their lease, without an eviction.
        assert_eq!(world.rest(0, 0).free_blocks, 2);
        assert_eq!(world.close(), 0);
    });
}

#[test]
fn an_insert_against_a_clear() {
    explore("insert 1,2 from the root vs clear", || {
        let world = World::with(1, 3, &[&[1]]);
        let root = Actor::new(&world).find(&[]).into_lease();
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let blocks = actor.session.reserve(2).unwrap();
                actor.fill(&[1, 2], 0, &blocks);
                actor.session.insert(&root, &[1, 2], blocks)
            }
        });
        world.beside(move |world| world.space.clear());
        let inserted = writer.join().unwrap();
        match inserted {
            Ok(inserted) => {
                world.check(&[1, 2], 0, &inserted.blocks);
                world.rest(2, inserted.duplicates.len());
                assert_eq!(Actor::new(&world).find(&[1, 2]).len_tokens(), 0);
            }
            Err(refused) => {
                assert_eq!(refused.kind, InsertErrorKind::NamespaceDropped);
                world.rest(0, 2);
            }
        }
        assert_eq!(world.rest(0, 0).free_blocks, 3);
        assert_eq!(world.close(), 0);
    });
}

#[test]
fn a_release_against_a_clear() {
    explore("release of 1,2 vs clear", || {
        let world = World::with(1, 2, &[&[1, 2]]);
        let found = Actor::new(&world).find(&[1, 2]);
        let holder = spawn(move || drop(found));
        world.beside(move |world| world.space.clear());
        holder.join().unwrap();
        assert_eq!(world.rest(0, 0).free_blocks, 2);
        assert_eq!(world.close(), 0);
    });
}

/// Clears a tree with more runs than one turn can free. The clear lists them without the lock while
/// `other` runs.
fn many_runs_against_a_clear(other: impl FnOnce(&World) + Send + 'static) {
    let world = World::with(1, 5, &[&[1, 2], &[3], &[4]]);
    let beside = spawn({
        let world = world.clone();
        move || other(&world)
    });
    world.beside(move |world| world.space.clear());
    beside.join().unwrap();
    assert_eq!(world.rest(0, 0).free_blocks, 5);
    assert_eq!(world.close(), 0);
}

#[test]
fn an_eviction_against_a_clear_in_turns() {
    explore("evict 1 of 1,2 3 4 vs clear", || many_runs_against_a_clear(|world| _ = world.cache.evict(1)));
}

#[test]
fn the_death_of_runs_against_a_clear_in_turns() {
    explore("evict all of 1,2 3 4 vs clear", || many_runs_against_a_clear(|world| _ = world.cache.evict(4)));
}

#[test]
fn a_match_against_a_clear_in_turns() {
    explore_order("find 1,9 of 1,2 3 4 vs clear", || {
        let world = World::with(1, 4, &[&[1, 2], &[3], &[4]]);
        let reader = spawn({
            let world = world.clone();
            move || Actor::new(&world).find(&[1, 9])
        });
        world.beside(move |world| world.space.clear());
        let found = reader.join().unwrap();
        assert_eq!(world.rest(found.len_tokens(), 0).evictable_blocks, 0);
        drop(found);
        assert_eq!(world.rest(0, 0).free_blocks, 4);
        assert_eq!(world.close(), 0);
    });
}

#[test]
fn an_empty_lease_against_a_clear() {
    explore("find nothing, release vs clear", || {
        let world = World::new(1, 1);
        let reader = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).find(&[1]))
        });
        world.beside(move |world| world.space.clear());
        reader.join().unwrap();
        assert_eq!(world.close(), 0);
    });
}

// Holds: NS5.
#[test]
fn a_match_against_a_drop() {
    explore("find 1 vs drop of its namespace", || {
        let world = World::new(1, 2);
        let space = world.cache.namespace(&["adapter"]);
        let actor = Actor::new(&world);
        let block = actor.session.reserve(1).unwrap();
        actor.fill(&[1], 0, &block);
        let root = actor.find_in(&space, &[1]);
        drop(actor.session.insert(root.lease(), &[1], block).unwrap());
        drop((root, actor));
        world.cache.settle();
        let reader = spawn({
            let (world, space) = (world.clone(), space.clone());
            move || Actor::new(&world).find_in(&space, &[1])
        });
        let dropped = space.clone();
        world.beside(move |_| dropped.remove());
        let found = reader.join().unwrap();
        world.rest(found.len_tokens(), 0);
        assert_eq!(Actor::new(&world).find_in(&space, &[1]).len_tokens(), 0);
        drop(found);
        assert_eq!(world.rest(0, 0).free_blocks, 2);
        drop(space);
        assert_eq!(world.close(), 0);
    });
}

/// Inserts `tokens` beyond `lease`; `None` if the namespace was dropped.
fn insert(actor: &Actor, lease: &Lease, tokens: &[Token]) -> Option<Inserted> {
    let blocks = actor.session.reserve(tokens.len() - lease.len_tokens()).unwrap();
    actor.fill(tokens, lease.len_tokens(), &blocks);
    match actor.session.insert(lease, tokens, blocks) {
        Ok(inserted) => Some(inserted),
        Err(refused) => {
            assert_eq!(refused.kind, InsertErrorKind::NamespaceDropped);
            None
        }
    }
}

/// A lease of a dropped namespace stays valid, and an insert continues from it.
#[test]
fn an_insert_from_a_live_lease_against_a_drop() {
    explore_order("insert 1,2 from a lease on 1 vs drop of its namespace", || {
        let world = World::new(1, 3);
        let space = world.cache.namespace(&["adapter"]);
        let actor = Actor::new(&world);
        let root = actor.find_in(&space, &[]).into_lease();
        let held = insert(&actor, &root, &[1]).unwrap().lease;
        drop((root, actor));
        world.cache.settle();
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let inserted = insert(&actor, &held, &[1, 2]);
                let tip = actor.session.resume(held, &[1, 2]);
                world.check(&[1, 2], 0, tip.blocks());
                (inserted, tip)
            }
        });
        let dropped = space.clone();
        world.beside(move |_| dropped.remove());
        let (inserted, tip) = writer.join().unwrap();
        assert!(tip.len_tokens() >= 1 + usize::from(inserted.is_some()));
        world.rest(tip.len_tokens(), 0);
        assert_eq!(Actor::new(&world).find_in(&space, &[1]).len_tokens(), 0);
        drop((inserted, tip));
        assert_eq!(world.rest(0, 0).free_blocks, 3);
        drop(space);
        assert_eq!(world.close(), 0);
    });
}

/// Settling forgets unused namespaces, but not one whose name is being resolved or one that is
/// leased.
// Holds: NS8.
#[test]
fn resolving_against_forgetting() {
    explore_order("resolve, insert 1, resolve, find 1 vs settle", || {
        let world = World::new(1, 2);
        drop(world.cache.namespace(&["adapter"]));
        let user = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let root = actor.find_in(&world.cache.namespace(&["adapter"]), &[1]).into_lease();
                // There is no handle any more, only the lease.
                let held = insert(&actor, &root, &[1]).expect("a leased namespace stays");
                drop(root);
                assert_eq!(actor.find_in(&world.cache.namespace(&["adapter"]), &[1]).len_tokens(), 1);
                drop(held);
                // The block is cached, but there is neither a lease nor a handle.
                assert_eq!(actor.find_in(&world.cache.namespace(&["adapter"]), &[1]).len_tokens(), 1);
            }
        });
        world.beside(|world| world.cache.settle());
        user.join().unwrap();
        assert_eq!(world.rest(0, 0).evictable_blocks, 1);
        assert_eq!(world.close(), 1);
    });
}

/// The last handle is dropped while the evictor checks for handles. Sequences inserted through it
/// stay.
#[test]
fn the_last_handle_against_forgetting() {
    explore_order("insert 1, let the handle go vs settle", || {
        let world = World::new(1, 1);
        let space = exploring_apart(|| world.cache.namespace(&["adapter"]));
        let user = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let root = actor.find_in(&space, &[1]).into_lease();
                drop(insert(&actor, &root, &[1]).expect("a namespace that is held stays"));
                drop((root, space));
            }
        });
        world.beside(|world| world.cache.settle());
        user.join().unwrap();
        let space = world.cache.namespace(&["adapter"]);
        assert_eq!(Actor::new(&world).find_in(&space, &[1]).len_tokens(), 1);
        drop(space);
        assert_eq!(world.close(), 1);
    });
}

/// One clear refuses at most one insert: after another match, the insert goes into the new tree.
#[test]
fn an_insert_that_a_clear_refuses() {
    explore_order("insert 1, match, insert 1 vs clear", || {
        let world = World::new(1, 1);
        let root = Actor::new(&world).find(&[]).into_lease();
        let writer = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                if insert(&actor, &root, &[1]).is_none() {
                    let again = actor.find(&[]).into_lease();
                    assert!(insert(&actor, &again, &[1]).is_some(), "one clear refused two inserts");
                }
            }
        });
        world.beside(|world| world.space.clear());
        writer.join().unwrap();
        world.close();
    });
}
