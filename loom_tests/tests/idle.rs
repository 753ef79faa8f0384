//! Participants that one session leaves to the next.
//!
//! Property: a participant that is left is taken by one thread, after everything that its last user did with it.
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
