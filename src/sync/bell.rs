//! The wake-up flag that the background eviction thread sleeps on.

use std::time::{Duration, Instant};

use super::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

#[cfg(radixkv_loom)]
use loom::thread::park;
#[cfg(not(radixkv_loom))]
use std::thread::park;

const QUIET: usize = 0;
const RUNG: usize = 1;
const ENDED: usize = 2;

/// Wakes one thread. A ring is one read-modify-write, plus an unpark if the thread may be asleep.
/// It takes no lock, so a stopped thread cannot delay it. No ring is lost.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicUsize,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { state: AtomicUsize::new(QUIET) }
    }

    /// Wakes the thread, or keeps it from falling asleep. `unpark` must unpark that thread.
    pub(crate) fn ring(&self, unpark: impl FnOnce()) {
        self.raise(RUNG, unpark);
    }

    /// Wakes the thread for the last time.
    pub(crate) fn end(&self, unpark: impl FnOnce()) {
        self.raise(ENDED, unpark);
    }

    fn raise(&self, state: usize, unpark: impl FnOnce()) {
        // Release: the caller's earlier writes are visible to the woken thread.
        if self.state.fetch_max(state, Release) < state {
            // The permit also keeps awake a thread that has read the state but does not sleep yet.
            unpark();
        }
    }

    /// Sleeps until the bell is rung, but at most for `at_most`. Returns false after
    /// [`end`](Self::end). Only one thread may call this.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> bool {
        let until = at_most.and_then(|pause| Instant::now().checked_add(pause));
        // Acquire: pairs with `raise`.
        while self.state.compare_exchange(RUNG, QUIET, Acquire, Relaxed).is_err() {
            // Relaxed: the end is final.
            if self.state.load(Relaxed) == ENDED {
                return false;
            }
            if is_over(until) {
                return true;
            }
            sleep(until);
        }
        true
    }
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until <= Instant::now())
}

/// Sleeps until an unpark, a spurious wake-up, or `until`. In models no deadline passes.
fn sleep(until: Option<Instant>) {
    #[cfg(not(radixkv_loom))]
    if let Some(until) = until {
        std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        return;
    }
    let _ = until;
    park();
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
