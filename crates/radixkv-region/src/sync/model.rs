//! Atomics for loom, whose loads can be explored in two ways.
//!
//! *As loads*: loom tries every value that a weak memory may return. But loom 0.7 remembers only
//! one last access for each location. So a thread's own load hides an earlier load by another
//! thread from the compare-and-swap that follows, and schedules are missed. *As read-modify-writes*
//! that change nothing: a load always returns the newest value, but loom sees every race and tries
//! both orders. Each model runs both ways.

use std::cell::Cell;

use loom::sync::atomic::{self, Ordering};

// All threads of a model share one OS thread; several models may run in parallel.
thread_local! {
    static EXACT: Cell<bool> = const { Cell::new(false) };
}

/// From now on explores loads as read-modify-writes (true), or as loads (false).
pub fn explore_exact(exact: bool) {
    EXACT.set(exact);
}

/// An atomic word.
#[derive(Debug)]
pub(crate) struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> u64 {
        if EXACT.get() { self.0.fetch_or(0, order) } else { self.0.load(order) }
    }

    #[track_caller]
    pub(crate) fn store(&self, value: u64, order: Ordering) {
        if EXACT.get() {
            self.0.swap(value, order);
        } else {
            self.0.store(value, order);
        }
    }

    #[track_caller]
    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    #[track_caller]
    pub(crate) fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, order)
    }

    #[track_caller]
    pub(crate) fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(bits, order)
    }

    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        seen: u64,
        next: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(seen, next, success, failure)
    }
}
