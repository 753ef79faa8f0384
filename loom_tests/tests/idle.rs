//! Participants that one session leaves to the next, or borrows for a verb.
//!
//! Property: a participant that is left is taken or borrowed by one thread, after everything that its last user did with it.
//!
//! Edges: opening a slot (release) before claiming it (acquire).
//!
//! Teeth: a slot opened Relaxed, or claimed Relaxed; a slot claimed by load and store.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{explore_more, spawn};
use loom::cell::UnsafeCell;
use radixkv::internals::{IdleSlots, exploring_apart};

/// A value that one thread at a time uses.
#[derive(Default)]
struct Local(UnsafeCell<u32>);

impl Local {
    fn use_it(&self) {
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        self.0.with_mut(|uses| unsafe { *uses += 1 });
    }
}

/// Each session takes twice: the second time it may take what the other one has left, or what it left itself.
#[test]
fn two_sessions_and_what_a_third_one_left() {
    explore_more("take or make, use, put vs the same", || {
        let slots = Arc::new(exploring_apart(IdleSlots::<Local>::default));
        assert!(slots.put(Local::default()).is_none());
        let sessions = [0; 2].map(|_| {
            let slots = slots.clone();
            spawn(move || {
                for _ in 0..2 {
                    let local = slots.take().unwrap_or_default();
                    local.use_it();
                    // Where both slots look taken it is dropped.
                    drop(slots.put(local));
                }
            })
        });
        sessions.into_iter().for_each(|session| session.join().unwrap());
        while let Some(local) = slots.take() {
            local.use_it();
        }
    });
}

/// Verbs of two sessions that have no participant of their own, beside a session that begins and ends.
#[test]
fn two_that_borrow_and_one_that_takes() {
    explore_more("borrow, borrow vs take, use, put", || {
        let slots = Arc::new(exploring_apart(IdleSlots::<Local>::default));
        let borrower = {
            let slots = slots.clone();
            spawn(move || (0..2).for_each(|near| slots.lend(near, Local::default, Local::use_it)))
        };
        let local = slots.take().unwrap_or_default();
        local.use_it();
        drop(slots.put(local));
        slots.lend(0, Local::default, Local::use_it);
        borrower.join().unwrap();
        while let Some(local) = slots.take() {
            local.use_it();
        }
    });
}
