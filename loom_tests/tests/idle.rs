//! Slots for idle participants, which a session leaves to the next one or a call borrows.
//!
//! Property: only one thread takes or borrows an idle participant, after all accesses of its last
//! user.
//!
//! Edges: opening a slot (release) to claiming it (acquire).
//!
//! Seeded bugs: a slot is opened Relaxed, or claimed Relaxed; a slot is claimed by a load and a
//! store.
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

/// Each session takes a participant twice. The second time, it may get the one that it left or the
/// one that the other session left.
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
                    // Dropped if both slots look taken.
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

/// Two calls without a session, in parallel with a session that begins and ends.
// Holds: LE4.
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
