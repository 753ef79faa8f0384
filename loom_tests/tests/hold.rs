//! The count that keeps a cache for its leases, drawn in lots.
//!
//! Property: the value lives while any reference holds it, and is dropped once, by the thread that gives back the last
//! count, after everything that other threads did with it.
//!
//! Edges: giving back (release) before the drop (acquire).
//!
//! Teeth: giving back Relaxed; a lot that keeps what it has left; a draw that is counted twice.
#![cfg(radixkv_loom)]

mod common;

use std::rc::Rc;

use common::{explore_more, spawn};
use loom::cell::UnsafeCell;
use radixkv::internals::{Held, Holds, exploring_apart};

/// The value: read through its references, written when it is dropped.
struct Kept {
    state: UnsafeCell<u32>,
    dropped: Rc<std::cell::Cell<u32>>,
}

// SAFETY: the threads of a model share one thread of the system; loom tracks the accesses of the cell.
unsafe impl Sync for Kept {}
// SAFETY: as above.
unsafe impl Send for Kept {}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        self.state.with_mut(|state| unsafe { *state = 0 });
        self.dropped.set(self.dropped.get() + 1);
    }
}

fn read(held: &Held<Kept>) {
    // SAFETY: loom reports an access that is not ordered; the value is plain.
    assert_eq!(held.value().state.with(|state| unsafe { *state }), 7);
}

/// The drops that were counted, kept where other threads of the model do not look.
struct Drops(Rc<std::cell::Cell<u32>>);

// SAFETY: the threads of a model share one thread of the system.
unsafe impl Send for Drops {}

fn kept() -> (Holds<Kept>, Drops) {
    let dropped = Rc::new(std::cell::Cell::new(0));
    let state = UnsafeCell::new(0);
    // SAFETY: loom reports an access that is not ordered; the value is plain.
    state.with_mut(|state| unsafe { *state = 7 });
    let kept = Kept { state, dropped: Rc::clone(&dropped) };
    let holds = exploring_apart(|| Holds::new(kept));
    (holds, Drops(dropped))
}

/// References on two threads, and the lot: the last of the three drops the value.
#[test]
fn two_holders_and_the_lot() {
    explore_more("drop of a hold vs drop of a hold vs drop of the lot", || {
        let (holds, drops) = kept();
        let holders = [holds.hold(), holds.hold()].map(|held| {
            spawn(move || {
                read(&held);
                drop(held);
            })
        });
        drop(holds);
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        assert_eq!(drops.0.get(), 1);
    });
}

/// More holds than one lot has: the next lot is drawn while the first holds are given back.
#[test]
fn a_draw_against_holders_that_go() {
    explore_more("three holds drawn vs two dropped", || {
        let (holds, drops) = kept();
        let first = [holds.hold(), holds.hold()];
        let holder = spawn(move || {
            first.iter().for_each(read);
            drop(first);
        });
        let more = [holds.hold(), holds.hold(), holds.hold()];
        drop(holds);
        more.iter().for_each(read);
        assert_eq!(drops.0.get(), 0);
        drop(more);
        holder.join().unwrap();
        assert_eq!(drops.0.get(), 1);
    });
}

/// A hold made from a hold outlives it.
#[test]
fn a_clone_against_its_original() {
    explore_more("clone, drop of the original vs drop of the lot", || {
        let (holds, drops) = kept();
        let held = holds.hold();
        let holder = spawn(move || {
            let clone = held.clone();
            drop(held);
            read(&clone);
            drop(clone);
        });
        drop(holds);
        holder.join().unwrap();
        assert_eq!(drops.0.get(), 1);
    });
}
