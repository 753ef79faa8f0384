//! The bell that wakes a worker thread.
//!
//! Property: a worker that was woken or kept awake by a ring sees all writes before the ring. It
//! never sleeps after a ring that it has not consumed. An end stops it, whatever other rings there
//! are. A lost ring leaves the worker asleep forever, which loom reports as a deadlock.
//!
//! Edges: ringing (release) to waking up (acquire).
//!
//! Seeded bugs: a ring that does not unpark; a ring that overwrites an end; ringing Relaxed.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{explore_more, spawn};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread::Thread;
use radixkv::internals::Bell;

/// A bell, and work that is written before the bell is rung.
#[derive(Default)]
struct Workplace {
    bell: Bell,
    work: [UnsafeCell<u32>; 2],
}

// SAFETY: loom tracks the accesses of the cells.
unsafe impl Sync for Workplace {}
// SAFETY: as above.
unsafe impl Send for Workplace {}

impl Workplace {
    fn ring(&self, sleeper: &Thread) {
        self.bell.ring(|| sleeper.unpark());
    }

    fn end(&self, sleeper: &Thread) {
        self.bell.end(|| sleeper.unpark());
    }

    fn put(&self, tray: usize) {
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        self.work[tray].with_mut(|work| unsafe { *work = 1 });
    }

    fn look(&self, tray: usize) -> u32 {
        // SAFETY: as above.
        self.work[tray].with(|work| unsafe { *work })
    }
}

/// The worker wakes and sees the work in every order of events.
// Holds: BE2.
#[test]
fn a_ring_against_a_wait() {
    explore_more("ring vs wait", || {
        let desk = Arc::new(Workplace::default());
        let ringer = spawn({
            let (desk, sleeper) = (desk.clone(), loom::thread::current());
            move || {
                desk.put(0);
                desk.ring(&sleeper);
            }
        });
        assert!(desk.bell.wait());
        assert_eq!(desk.look(0), 1);
        ringer.join().unwrap();
    });
}

/// An awake worker finds the ring without an unpark, which would itself order the accesses.
#[test]
fn a_ring_that_is_found() {
    explore_more("ring, then tell vs hear, then wait", || {
        let (desk, told) = (Arc::new(Workplace::default()), Arc::new(AtomicUsize::new(0)));
        let ringer = spawn({
            let (desk, told) = (desk.clone(), told.clone());
            move || {
                desk.put(0);
                desk.bell.ring(|| ());
                told.store(1, Relaxed);
            }
        });
        if told.load(Relaxed) == 1 {
            assert!(desk.bell.wait());
            assert_eq!(desk.look(0), 1);
        }
        ringer.join().unwrap();
    });
}

/// One wake-up may consume two rings, but the worker does not sleep after the last one.
#[test]
fn two_rings_and_the_end_against_a_worker() {
    explore_more("ring vs ring, then the end, vs waits until it", || {
        let desk = Arc::new(Workplace::default());
        let worker = spawn({
            let desk = desk.clone();
            move || {
                let mut woken = 0;
                while desk.bell.wait() {
                    woken += 1;
                }
                woken
            }
        });
        let sleeper = worker.thread().clone();
        let ringer = spawn({
            let (desk, sleeper) = (desk.clone(), sleeper.clone());
            move || desk.ring(&sleeper)
        });
        desk.ring(&sleeper);
        ringer.join().unwrap();
        desk.end(&sleeper);
        assert!(worker.join().unwrap() <= 2);
    });
}

/// A ring in parallel with the end does not overwrite the end.
#[test]
fn a_ring_against_the_end() {
    explore_more("ring vs end vs waits until it", || {
        let desk = Arc::new(Workplace::default());
        let [ringer, ender] = [false, true].map(|last| {
            let (desk, sleeper) = (desk.clone(), loom::thread::current());
            spawn(move || {
                desk.put(usize::from(last));
                if last { desk.end(&sleeper) } else { desk.ring(&sleeper) }
            })
        });
        while desk.bell.wait() {
            assert_eq!(desk.look(0), 1);
        }
        ringer.join().unwrap();
        ender.join().unwrap();
        // The end is permanent: the worker does not sleep after it.
        assert!(!desk.bell.wait());
    });
}
