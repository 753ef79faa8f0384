//! The bell that wakes a worker.
//!
//! Property: a worker sees what was done before a ring that it was woken by or that kept it awake; it never sleeps on a
//! ring; an end ends it, whatever was rung before or is rung beside it. A ring that is lost leaves the worker asleep
//! for ever, which loom reports as a deadlock.
//!
//! Edges: ringing (release) before waking (acquire).
//!
//! Teeth: a ring that does not unpark; an end that a ring takes back; ringing Relaxed.
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

/// In every order the worker wakes and sees the work.
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

/// A worker that is awake finds the ring without being unparked: an unpark would order as much.
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

/// One wake-up may serve two rings, and the worker does not sleep on the last one.
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

/// A ring beside the end does not take it back.
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
        // The end stays, and the worker does not sleep on it.
        assert!(!desk.bell.wait());
    });
}
