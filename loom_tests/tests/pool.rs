//! The pool of free blocks, and reservations that do not wait.
//!
//! Property: a block has one owner. A request gets all its blocks or none. A thread that got blocks
//! promised (by the count) finds them. The previous owner's writes happen before the next owner's.
//!
//! Edges: E9 (bits), E10 (count).
//!
//! Seeded bugs: `claim` Relaxed; `take_these` Relaxed, or without putting blocks back; `give_back`
//! Relaxed; the count is raised before the bits are set; the count is changed by a load and a
//! store.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{Actor, World, explore_more, spawn};
use loom::cell::UnsafeCell;
use radixkv::internals::Blocks;

/// A pool, and memory for each block that only the block's owner accesses.
struct Memory {
    blocks: Blocks,
    cells: Vec<UnsafeCell<u32>>,
}

// SAFETY: loom tracks the accesses of the cells.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new(capacity: usize) -> Arc<Self> {
        let cells = (0..capacity).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { blocks: Blocks::new(capacity), cells })
    }

    fn beside<T: Send + 'static>(self: &Arc<Self>, body: impl FnOnce(&Self) -> T + Send + 'static) -> T {
        let memory = Arc::clone(self);
        spawn(move || body(&memory)).join().unwrap()
    }

    fn take(&self, n: usize) -> Option<Vec<u32>> {
        let taken = self.blocks.take(n)?;
        assert_eq!(taken.len(), n);
        self.write(&taken);
        Some(taken)
    }

    fn write(&self, blocks: &[u32]) {
        for &block in blocks {
            // SAFETY: loom reports an access that is not ordered; the value is plain.
            self.cells[block as usize].with_mut(|cell| unsafe { *cell += 1 });
        }
    }
}

// Holds: RE11.
#[test]
fn two_takers_and_one_block() {
    explore_more("take 1 vs take 1 of 1", || {
        let memory = Memory::new(1);
        let taker = spawn({
            let memory = memory.clone();
            move || memory.take(1)
        });
        let mine = memory.beside(|memory| memory.take(1));
        let other = taker.join().unwrap();
        assert!(mine.is_some() != other.is_some());
        assert_eq!(memory.blocks.free(), (0, 0));
    });
}

#[test]
fn two_takers_in_one_word() {
    explore_more("take 1 vs take 1 of 2", || {
        let memory = Memory::new(2);
        let taker = spawn({
            let memory = memory.clone();
            move || memory.take(1)
        });
        let mine = memory.beside(|memory| memory.take(1));
        let other = taker.join().unwrap();
        assert_ne!(mine.unwrap(), other.unwrap());
        assert_eq!(memory.blocks.free(), (0, 0));
    });
}

// Holds: RE1.
#[test]
fn all_or_nothing() {
    explore_more("take 2 vs take 2 of 3", || {
        let memory = Memory::new(3);
        let taker = spawn({
            let memory = memory.clone();
            move || memory.take(2)
        });
        let mine = memory.beside(|memory| memory.take(2));
        let other = taker.join().unwrap();
        assert!(mine.is_some() || other.is_some());
        let taken: Vec<_> = [mine, other].into_iter().flatten().flatten().collect();
        assert_eq!(memory.blocks.free(), (3 - taken.len(), 3 - taken.len()));
    });
}

#[test]
fn a_returner_against_a_taker() {
    explore_more("give back 1 vs take 1", || {
        let memory = Memory::new(2);
        let held = memory.take(2).unwrap();
        let returner = spawn({
            let memory = memory.clone();
            move || {
                memory.write(&held);
                memory.blocks.give_back(&held[..1]);
                memory.blocks.give_back(&held[1..]);
            }
        });
        let taken = memory.beside(|memory| memory.take(1));
        returner.join().unwrap();
        let free = 2 - taken.map_or(0, |taken| taken.len());
        assert_eq!(memory.blocks.free(), (free, free));
    });
}

fn two_returners_against_a_taker_of(n: usize) {
    let memory = Memory::new(2);
    let held = memory.take(2).unwrap();
    let returners = [0, 1].map(|i| {
        let (memory, block) = (memory.clone(), held[i]);
        spawn(move || {
            memory.write(&[block]);
            memory.blocks.give_back(&[block]);
        })
    });
    let taken = memory.beside(move |memory| memory.take(n));
    returners.into_iter().for_each(|returner| returner.join().unwrap());
    let free = 2 - taken.map_or(0, |taken| taken.len());
    assert_eq!(memory.blocks.free(), (free, free));
}

#[test]
fn two_returners_against_a_taker_of_both() {
    explore_more("give back 1 vs give back 1 vs take 2", || two_returners_against_a_taker_of(2));
}

/// The count may come from one returning thread, the block from the other.
#[test]
fn two_returners_against_a_taker_of_one() {
    explore_more("give back 1 vs give back 1 vs take 1", || two_returners_against_a_taker_of(1));
}

/// Two threads request blocks by id, and both need block 1. The loser's other block stays free.
#[test]
fn two_takers_of_one_very_block() {
    explore_more("give back 0 and 1, take exactly 0 and 1 vs take exactly 1", || {
        let memory = Memory::new(2);
        let held = memory.take(2).unwrap();
        let returner = spawn({
            let memory = memory.clone();
            move || {
                memory.write(&held);
                memory.blocks.give_back(&held);
            }
        });
        let taker = spawn({
            let memory = memory.clone();
            move || {
                let taken = memory.blocks.take_these(&[1]);
                memory.write(if taken { &[1] } else { &[] });
                usize::from(taken)
            }
        });
        let both = memory.beside(|memory| {
            let taken = memory.blocks.take_these(&[0, 1]);
            memory.write(if taken { &[0, 1] } else { &[] });
            usize::from(taken)
        });
        let one = taker.join().unwrap();
        returner.join().unwrap();
        assert!(both + one < 2, "a block was taken twice");
        let free = 2 - 2 * both - one;
        assert_eq!(memory.blocks.free(), (free, free));
    });
}

/// No block is free and one can be evicted: one of two threads gets it.
// Holds: RE11.
#[test]
fn two_reservations_and_one_evictable_block() {
    explore_more("reserve 1 vs reserve 1, one block cached", || {
        let world = World::with(1, 1, &[&[1]]);
        let other = spawn({
            let world = world.clone();
            move || Actor::new(&world).session.reserve(1).ok()
        });
        let mine = world.beside(|world| world.cache.session().reserve(1).ok());
        let other = other.join().unwrap();
        assert!(mine.is_some() != other.is_some());
        world.rest(0, 1);
        drop((mine, other));
        assert_eq!(world.close(), 0);
    });
}

/// A reservation is dropped while another thread's reservation is granted or refused.
#[test]
fn a_dropped_reservation_against_a_reservation() {
    explore_more("drop of 1 vs reserve 1", || {
        let world = World::new(1, 1);
        let held = world.cache.session().reserve(1).unwrap();
        let holder = spawn({
            let world = world.clone();
            move || {
                Actor::new(&world).fill(&[1], 0, &held);
                drop(held);
            }
        });
        let taker = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                let mine = actor.session.reserve(1).ok();
                mine.iter().for_each(|mine| actor.fill(&[2], 0, mine));
                mine
            }
        });
        holder.join().unwrap();
        let mine = taker.join().unwrap();
        world.rest(0, usize::from(mine.is_some()));
        drop(mine);
        assert_eq!(world.close(), 0);
    });
}
