//! Counted references that keep a cache alive for its leases. A session acquires many counts at
//! once.
//!
//! Property: the value lives while there is a reference to it. The thread that gives back the last
//! count drops it, once, after all accesses of other threads.
//!
//! Edges: giving a count back (release) to the drop (acquire).
//!
//! Seeded bugs: giving back Relaxed; a session keeps its unused counts; an acquisition of counts is
//! counted twice.
#![cfg(radixkv_loom)]

mod common;

use std::rc::Rc;

use common::{explore_more, spawn};
use loom::cell::UnsafeCell;
use radixkv::internals::{StrongRef, StrongRefs, exploring_apart};

/// The value: references read it, and its drop writes it.
struct Kept {
    state: UnsafeCell<u32>,
    dropped: Rc<std::cell::Cell<u32>>,
}

// SAFETY: the threads of a model run on one OS thread; loom tracks the accesses of the cell.
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

fn read(held: &StrongRef<Kept>) {
    // SAFETY: loom reports an access that is not ordered; the value is plain.
    assert_eq!(held.value().state.with(|state| unsafe { *state }), 7);
}

/// The count of drops, which other threads of the model do not access.
struct Drops(Rc<std::cell::Cell<u32>>);

// SAFETY: the threads of a model run on one OS thread.
unsafe impl Send for Drops {}

fn kept() -> (StrongRefs<Kept>, Drops) {
    let dropped = Rc::new(std::cell::Cell::new(0));
    let state = UnsafeCell::new(0);
    // SAFETY: loom reports an access that is not ordered; the value is plain.
    state.with_mut(|state| unsafe { *state = 7 });
    let kept = Kept { state, dropped: Rc::clone(&dropped) };
    let refs = exploring_apart(|| StrongRefs::new(kept));
    (refs, Drops(dropped))
}

/// Two references on two threads, and the session: the last one to be dropped drops the value.
// Holds: LE6.
#[test]
fn two_holders_and_the_session() {
    explore_more("drop of a reference vs drop of a reference vs drop of the session", || {
        let (refs, drops) = kept();
        let holders = [refs.take(), refs.take()].map(|held| {
            spawn(move || {
                read(&held);
                drop(held);
            })
        });
        drop(refs);
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        assert_eq!(drops.0.get(), 1);
    });
}

/// One acquisition gives too few references: the next one runs while the first references are given
/// back.
#[test]
fn a_draw_against_holders_that_go() {
    explore_more("three references drawn vs two dropped", || {
        let (refs, drops) = kept();
        let first = [refs.take(), refs.take()];
        let holder = spawn(move || {
            first.iter().for_each(read);
            drop(first);
        });
        let more = [refs.take(), refs.take(), refs.take()];
        drop(refs);
        more.iter().for_each(read);
        assert_eq!(drops.0.get(), 0);
        drop(more);
        holder.join().unwrap();
        assert_eq!(drops.0.get(), 1);
    });
}

/// A clone of a reference outlives the original.
#[test]
fn a_clone_against_its_original() {
    explore_more("clone, drop of the original vs drop of the session", || {
        let (refs, drops) = kept();
        let held = refs.take();
        let holder = spawn(move || {
            let clone = held.clone();
            drop(held);
            read(&clone);
            drop(clone);
        });
        drop(refs);
        holder.join().unwrap();
        assert_eq!(drops.0.get(), 1);
    });
}
