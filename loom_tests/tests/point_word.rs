//! The state word of a point in isolation: leases and children against the kill.
//!
//! Property: exactly one of a lease and a kill succeeds. Leaseholders' accesses to the blocks
//! happen before the blocks are reused. For each queue entry, the evictor is notified of a change
//! exactly once.
//!
//! Silent words: a listening thread is told of the end of a lease, and sees the writes under the
//! lease.
//!
//! Edges: E2 (release before kill), E3 and E4 (`QUEUED` set and taken out), E27 and E28 (a silent
//! lease and its end).
//!
//! Seeded bugs: `release` Relaxed; `kill` Relaxed; a lease on a dead word; a kill by a load and a
//! store; `look` Relaxed; `listen` without Acquire or without Release; a word that stays silent.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{explore_more, spawn};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use radixkv::internals::PointWord;

/// A point's word, and the block that leaseholders read and the killer reuses.
struct Subject {
    word: PointWord,
    block: UnsafeCell<u32>,
}

// SAFETY: loom tracks the accesses of the cell.
unsafe impl Sync for Subject {}
// SAFETY: as above.
unsafe impl Send for Subject {}

impl Subject {
    fn new() -> Arc<Self> {
        let held = Self { word: PointWord::idle(), block: UnsafeCell::new(0) };
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        held.block.with_mut(|block| unsafe { *block = 7 });
        Arc::new(held)
    }

    fn beside<T: Send + 'static>(self: &Arc<Self>, body: impl FnOnce(&Self) -> T + Send + 'static) -> T {
        let held = Arc::clone(self);
        spawn(move || body(&held)).join().unwrap()
    }

    fn read(&self) {
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        assert_eq!(self.block.with(|block| unsafe { *block }), 7);
    }

    fn lease_and_release(&self) -> Option<usize> {
        let pushed = self.word.lease()?;
        self.read();
        Some(usize::from(pushed) + usize::from(self.word.release()))
    }

    fn kill(&self) -> Option<bool> {
        let killed = self.word.kill();
        if killed.is_some() {
            // SAFETY: loom reports an access that is not ordered; the value is plain.
            self.block.with_mut(|block| unsafe { *block = 8 });
        }
        killed
    }
}

// Holds: LE1.
#[test]
fn a_lease_against_a_kill() {
    explore_more("lease and release vs kill", || {
        let held = Subject::new();
        let reader = spawn({
            let held = held.clone();
            move || held.lease_and_release()
        });
        let killed = held.beside(Subject::kill);
        let leased = reader.join().unwrap();
        let seen = held.word.take_out();
        assert_eq!((seen.leases, seen.children, seen.dead), (0, 0, killed.is_some()));
        match (killed, leased) {
            // The lease came first, and its entry is still queued when the point is killed.
            (Some(queued), Some(pushes)) => assert!(queued && pushes == 1),
            (Some(queued), None) => assert!(!queued),
            (None, Some(pushes)) => assert_eq!(pushes, 1),
            (None, None) => panic!("neither won"),
        }
    });
}

#[test]
fn two_leases_against_a_kill() {
    explore_more("two times lease and release vs kill", || {
        let held = Subject::new();
        let readers = [0; 2].map(|_| {
            let held = held.clone();
            spawn(move || held.lease_and_release())
        });
        let killed = held.beside(Subject::kill);
        let pushes: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let leased = pushes.iter().flatten().count();
        // The entry was not taken out: it was pushed once, by the first step.
        assert_eq!(pushes.into_iter().flatten().sum::<usize>(), usize::from(leased > 0));
        assert!(killed.is_some() || leased > 0);
        assert!(killed.is_none_or(|queued| !queued) || leased > 0);
        let seen = held.word.look();
        assert_eq!((seen.leases, seen.dead), (0, killed.is_some()));
    });
}

/// A child is counted under a lease, the lease is released, and then the child is removed.
#[test]
fn a_child_against_a_kill() {
    explore_more("child added and removed vs kill", || {
        let held = Subject::new();
        assert_eq!(held.word.lease(), Some(true));
        let parent = spawn({
            let held = held.clone();
            move || {
                held.word.add_child();
                let pushed = held.word.release();
                held.read();
                pushed | held.word.remove_child()
            }
        });
        let killed = held.beside(Subject::kill);
        assert!(!parent.join().unwrap(), "the first lease's entry is still there");
        let seen = held.word.look();
        assert_eq!((seen.leases, seen.children, seen.dead), (0, 0, killed.is_some()));
        assert!(killed.is_none_or(|queued| queued));
    });
}

/// An entry is taken out while a change is queued: each push is one entry, and the final state is
/// idle.
#[test]
fn steps_against_taking_out() {
    explore_more("lease and release vs take out", || {
        let held = Subject::new();
        assert_eq!(held.word.lease(), Some(true));
        let holder = spawn({
            let held = held.clone();
            move || held.word.release()
        });
        let seen = held.beside(|held| held.word.take_out());
        let pushed = holder.join().unwrap();
        // The change is part of the entry that was taken out, or was pushed again.
        assert_eq!(pushed, seen.leases == 1);
        if !pushed {
            assert!(held.word.kill().is_some_and(|queued| !queued));
        }
    });
}

/// One thread holds a silent lease, writes a number under it and releases it, while the evictor
/// reads the word by `look`.
fn a_silent_release_beside(name: &str, look: fn(&PointWord) -> radixkv::internals::TakenOut) {
    explore_more(name, move || {
        let (word, used) = (Arc::new(PointWord::silent()), Arc::new(AtomicUsize::new(0)));
        assert_eq!(word.lease(), Some(false), "a silent point tells nothing");
        let holder = spawn({
            let (word, used) = (word.clone(), used.clone());
            move || {
                used.store(1, Relaxed);
                _ = word.release_to_waiters();
            }
        });
        let evictor = spawn({
            let (word, used) = (word.clone(), used.clone());
            move || assert!(look(&word).leases > 0 || used.load(Relaxed) == 1, "ranked without its last use")
        });
        evictor.join().unwrap();
        holder.join().unwrap();
    });
}

#[test]
fn a_silent_release_against_a_look() {
    a_silent_release_beside("write, silent release vs look", PointWord::look);
}

#[test]
fn a_silent_release_against_listening() {
    a_silent_release_beside("write, silent release vs listen", PointWord::listen);
}

/// The evictor listens for a waiting thread. A release that it did not see must look for waiters,
/// and find the thread.
#[test]
fn a_silent_release_against_a_waiter() {
    explore_more("silent release, look for waiters vs wait, listen", || {
        let (word, waiting) = (Arc::new(PointWord::silent()), Arc::new(AtomicUsize::new(0)));
        assert_eq!(word.lease(), Some(false));
        let holder = spawn({
            let (word, waiting) = (word.clone(), waiting.clone());
            move || word.release_to_waiters() && waiting.load(Relaxed) == 1
        });
        waiting.store(1, Relaxed);
        let was_leased = word.listen().leases > 0;
        assert!(holder.join().unwrap() || !was_leased, "a lost wake-up");
    });
}

/// The leases during `listen` are queued as one change, or have ended before.
#[test]
fn silent_leases_against_listening() {
    explore_more("two times lease and release vs listen", || {
        let word = Arc::new(PointWord::silent());
        let users = [0; 2].map(|_| {
            let word = word.clone();
            spawn(move || usize::from(word.lease().expect("alive")) + usize::from(word.release()))
        });
        let listener = spawn({
            let word = word.clone();
            move || word.listen()
        });
        let pushes: usize = users.into_iter().map(|user| user.join().unwrap()).sum();
        let seen = listener.join().unwrap();
        assert!(pushes == 1 || (pushes == 0 && seen.leases == 0), "{pushes} entries");
        assert_eq!(word.take_out().leases, 0);
    });
}
