//! The allocator of tree nodes: threads take, free and retake slots.
//!
//! Property: one thread at a time owns a slot, after all accesses of its previous user. A slab is
//! returned to the system when none of its slots is in use, and not before.
//!
//! Edges: E20 (freed slots).
//!
//! Seeded bugs: freed slots are pushed Relaxed, or taken over Relaxed; the same for slots that are
//! kept together as a magazine; either is taken over by a load and a store; a slab is returned
//! while one of its slots is in use.
#![cfg(radixkv_loom)]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{explore, spawn};
use loom::cell::UnsafeCell;
use radixkv::internals::{NodeMemory, Slot, Slots};

/// The allocator, and for each slot a value that only the slot's owner accesses.
#[derive(Default)]
struct Subject {
    memory: NodeMemory,
    values: Mutex<BTreeMap<Slot, Arc<UnsafeCell<bool>>>>,
}

// SAFETY: the threads of a model share one OS thread, and loom reports an unordered access of a
// value.
unsafe impl Send for Subject {}
// SAFETY: as above.
unsafe impl Sync for Subject {}

impl Subject {
    fn value_of(&self, slot: Slot) -> Arc<UnsafeCell<bool>> {
        self.values.lock().unwrap().entry(slot).or_insert_with(|| Arc::new(UnsafeCell::new(false))).clone()
    }

    fn set(&self, slot: Slot, used: bool) {
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        self.value_of(slot).with_mut(|value| assert_ne!(unsafe { std::mem::replace(&mut *value, used) }, used));
    }

    fn take(&self, slots: &Slots) -> Slot {
        let slot = self.memory.take(slots);
        self.set(slot, true);
        slot
    }

    fn give_back(&self, slots: &[Slot]) {
        slots.iter().for_each(|slot| self.set(*slot, false));
        self.memory.give_back(slots);
    }

    /// Checks that all memory is returned to the system when nothing is in use.
    fn close(&self) {
        let slots = self.memory.slots();
        self.give_back(&[self.take(&slots)]);
        self.memory.empty_out(&slots);
        self.memory.keep_none();
        assert_eq!(self.memory.slab_bytes(), 0);
    }
}

fn subject() -> Arc<Subject> {
    Arc::new(Subject::default())
}

#[test]
fn a_slot_that_is_freed_against_two_that_are_taken() {
    explore("give back vs take, take", || {
        let subject = subject();
        let slots = subject.memory.slots();
        let (kept, freed) = (subject.take(&slots), subject.take(&slots));
        let beside = {
            let subject = subject.clone();
            spawn(move || subject.give_back(&[freed]))
        };
        let taken = [subject.take(&slots), subject.take(&slots)];
        beside.join().unwrap();
        // Given back one by one: together they would be kept as a magazine instead of returning to
        // a slab.
        taken.iter().for_each(|slot| subject.give_back(&[*slot]));
        subject.give_back(&[kept]);
        subject.memory.empty_out(&slots);
        subject.close();
    });
}

#[test]
fn slots_that_are_freed_together_are_another_threads_next_ones() {
    explore("give back two vs take twice", || {
        let subject = subject();
        let slots = subject.memory.slots();
        let freed = [subject.take(&slots), subject.take(&slots)];
        let beside = {
            let subject = subject.clone();
            spawn(move || subject.give_back(&freed))
        };
        let taken = [subject.take(&slots), subject.take(&slots)];
        beside.join().unwrap();
        subject.give_back(&taken);
        subject.memory.empty_out(&slots);
        subject.close();
    });
}

#[test]
fn slots_that_are_kept_together_are_one_threads() {
    explore("take vs take, two kept", || {
        let subject = subject();
        let slots = subject.memory.slots();
        subject.give_back(&[subject.take(&slots), subject.take(&slots)]);
        let threads = [0; 2].map(|_| {
            let subject = subject.clone();
            spawn(move || {
                let slots = subject.memory.slots();
                let taken = subject.take(&slots);
                subject.memory.empty_out(&slots);
                taken
            })
        });
        subject.give_back(&threads.map(|thread| thread.join().unwrap()));
        subject.memory.empty_out(&slots);
        subject.close();
    });
}

#[test]
fn two_threads_that_take_and_free() {
    explore("take, give back, take vs the same", || {
        let subject = subject();
        let threads = [0; 2].map(|_| {
            let subject = subject.clone();
            spawn(move || {
                let slots = subject.memory.slots();
                let first = subject.take(&slots);
                subject.give_back(&[first]);
                let second = subject.take(&slots);
                subject.memory.empty_out(&slots);
                second
            })
        });
        let left = threads.map(|thread| thread.join().unwrap());
        subject.give_back(&left);
        subject.close();
    });
}

// Holds: NU9.
#[test]
fn the_last_slots_of_a_slab_are_freed_together() {
    explore("give back vs give back vs take", || {
        let subject = subject();
        let slots = subject.memory.slots();
        let both = [subject.take(&slots), subject.take(&slots)];
        let beside = both.map(|slot| {
            let subject = subject.clone();
            spawn(move || subject.give_back(&[slot]))
        });
        let taken = subject.take(&slots);
        beside.into_iter().for_each(|thread| thread.join().unwrap());
        subject.give_back(&[taken]);
        subject.memory.empty_out(&slots);
        subject.close();
    });
}
