//! The line of those who wait for blocks.
//!
//! Who finds too little takes a place in the line. The first in it tries; who leaves, served or not, wakes the next
//! one. Whoever makes blocks available looks whether anybody waits, and wakes the first.
//!
//! **No wake-up is lost.** A waiter takes his place, then looks for blocks; a releaser lets blocks go, then looks for
//! waiters: at least one must see the other. Fences would cost every release, so both go through a read-modify-write on
//! one location instead, wherever blocks come from: of two of those one comes first, and the second one sees all that
//! came before it.
//!
//! | edge | releaser | waiter | location |
//! |---|---|---|---|
//! | E15 | `Queue::push` after a release that was a step | `Queue::drain_surely` | the queue's head |
//! | E16 | `Pool::give_back` | `Pool::free_surely` | the count of free blocks |
//! | E17 | `HotPoints::leave`, and `enter` where it comes too late | `HotPoints::deflate_all` | the stripe |
//! | E18 | `HotPoints::inflate`, before a release that is no step for the bias | `HotPoints::deflate_all` | the slots taken |
//!
//! A release that found `QUEUED` set pushes nothing and relies on whoever pushes that entry: he comes through E15
//! later, or his entry is in the queue, and the waiter takes it out after the release.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use super::hold::Hold;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, Signal};

/// Those who wait, in order.
#[derive(Debug)]
pub(super) struct Line {
    /// Places taken.
    waiting: CachePadded<AtomicUsize>,
    places: Mutex<VecDeque<Arc<Signal>>>,
    /// Whether anybody may wait; false in models of something else, which then need not explore it.
    open: bool,
}

impl Line {
    pub(super) fn new(open: bool) -> Self {
        Self { waiting: CachePadded::new(AtomicUsize::new(0)), places: Mutex::new(VecDeque::new()), open }
    }

    /// Whether somebody waits.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        // Relaxed: E15 to E17.
        self.open && self.waiting.load(Relaxed) != 0
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        // Relaxed: a number to look at.
        self.waiting.load(Relaxed)
    }

    /// Called after blocks may have become available.
    #[inline]
    pub(super) fn ring(&self) {
        if self.is_taken() {
            self.wake_first();
        }
    }

    #[cold]
    fn wake_first(&self) {
        let first = self.places.lock().front().cloned();
        if let Some(first) = first {
            first.raise();
        }
    }

    fn join(&self) -> Arc<Signal> {
        let signal = Arc::new(Signal::new());
        let mut places = self.places.lock();
        places.push_back(Arc::clone(&signal));
        // Relaxed: E15 to E17 publish it.
        self.waiting.fetch_add(1, Relaxed);
        signal
    }

    fn is_first(&self, signal: &Arc<Signal>) -> bool {
        self.places.lock().front().is_some_and(|first| Arc::ptr_eq(first, signal))
    }

    fn leave(&self, signal: &Arc<Signal>) {
        let mut places = self.places.lock();
        places.retain(|place| !Arc::ptr_eq(place, signal));
        // Relaxed: a number too high wakes for nothing.
        self.waiting.fetch_sub(1, Relaxed);
        let next = places.front().cloned();
        drop(places);
        if let Some(next) = next {
            next.raise();
        }
    }
}

/// A place in the line. Leaving it, in whatever way, wakes the first of those who stay.
#[derive(Debug)]
pub(super) struct Place {
    hold: Hold,
    signal: Arc<Signal>,
}

impl Place {
    /// The last place of the cache's line.
    pub(super) fn take(hold: &Hold) -> Self {
        let place = Self { hold: hold.clone(), signal: hold.line.join() };
        crate::sync::point!("line::joined");
        place
    }

    pub(super) fn is_first(&self) -> bool {
        self.hold.line.is_first(&self.signal)
    }

    /// Raised when it is time to try again.
    pub(super) fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hold.line.leave(&self.signal);
    }
}
