//! Forks of a reservation: when a fork is a block's only holder, and which fork gives the block
//! back.
//!
//! Property: when a fork finds its block unshared, all accesses of other forks to the block have
//! happened before. The last fork gives the block back, once, after all accesses of all forks.
//!
//! Edges: dropping a handle (release) to loading a count of one (acquire); E9.
//!
//! Seeded bugs: the count of handles is loaded Relaxed.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{World, explore, explore_less, spawn};
use radixkv::Reservation;
use radixkv::internals::exploring_apart;

/// Two forks of one block with the stamp of the prefix 1. Loom explores the counts of their
/// handles.
fn forks(capacity: usize) -> (Arc<World>, [Reservation; 2]) {
    let world = World::new(1, capacity);
    let mut one = world.cache.session().reserve(1).unwrap();
    world.write(&[1], 0, &one);
    let two = exploring_apart(|| one.fork());
    (world, [one, two])
}

/// Both read the block; a fork that is the only holder afterwards writes it.
#[test]
fn a_fork_alone_against_another_that_goes() {
    explore("fork: read, write if alone vs the same", || {
        let (world, forks) = forks(1);
        let forks = forks.map(|mut fork| {
            let world = world.clone();
            spawn(move || {
                world.check(&[1], 0, fork.blocks());
                let shared = fork.is_shared(0);
                if !shared {
                    world.write(&[2], 0, &fork);
                }
                shared
            })
        });
        assert!(forks.map(|fork| fork.join().unwrap()).contains(&true), "both had it alone");
        world.close();
    });
}

/// One fork copies the block before it writes; the other writes as soon as it is the only holder.
#[test]
fn a_copy_against_a_fork_that_writes() {
    explore("fork: copy vs write if alone", || {
        let (world, [mut one, mut two]) = forks(2);
        let mut fresh = world.cache.session().reserve(1).unwrap();
        let copier = spawn({
            let world = world.clone();
            move || {
                if let Some(copy) = one.make_unique(0, &mut fresh) {
                    world.check(&[1], 0, &[copy.source()]);
                    drop(copy);
                }
                world.write(&[2], 0, &one);
            }
        });
        world.beside(move |world| {
            if !two.is_shared(0) {
                world.write(&[3], 0, &two);
            }
        });
        copier.join().unwrap();
        world.close();
    });
}

/// The last of two forks gives the block back, and a third thread takes it.
#[test]
fn two_forks_that_go_against_a_taker() {
    explore_less("fork: read, go vs the same vs reserve 1 of 1", || {
        let (world, forks) = forks(1);
        let forks = forks.map(|fork| {
            let world = world.clone();
            spawn(move || {
                world.check(&[1], 0, fork.blocks());
                drop(fork);
            })
        });
        world.beside(|world| {
            if let Ok(blocks) = world.cache.session().reserve(1) {
                world.write(&[2], 0, &blocks);
            }
        });
        forks.into_iter().for_each(|fork| fork.join().unwrap());
        world.close();
    });
}
