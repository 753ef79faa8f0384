//! What one waiter sleeps on: a thread that blocks, or a task that is polled.
//!
//! A waker is code of the caller's: cloning, waking and dropping one may run anything, this module included. None of it
//! happens under the signal's lock.

use std::task::Waker;
use std::time::Instant;

use super::lock::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    raised: bool,
    waker: Option<Waker>,
}

/// Raised by anybody, taken down by its owner; raised while it is up, it stays up.
#[derive(Debug)]
pub(crate) struct Signal {
    state: Mutex<State>,
    risen: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::default()), risen: Condvar::new() }
    }

    /// Wakes the owner, or keeps it from falling asleep. Runs the owner's waker: call it with no lock held.
    ///
    /// A waker that panics ends its own wake-up and nothing else: the thread that raises the signal is another one's,
    /// and does not answer for it. The panic hook has reported it then.
    pub(crate) fn raise(&self) {
        let mut state = self.state.lock();
        if state.raised {
            return;
        }
        state.raised = true;
        let waker = state.waker.take();
        drop(state);
        self.risen.notify_one();
        if let Some(waker) = waker {
            contained(|| waker.wake());
        }
    }

    /// Sleeps until it is raised and takes it down; false if `deadline` passed first.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.raised {
            let late;
            (state, late) = self.risen.wait(state, Some(deadline));
            if late && !state.raised {
                return false;
            }
        }
        state.raised = false;
        true
    }

    /// Takes it down, and has `waker` woken when it is raised next. Drops the waker of before, and clones this one:
    /// call it with no lock held.
    ///
    /// Between the two looks at the state it may be raised: the waker of before is woken then, and the caller, who
    /// looks at what it waits for after this, misses nothing.
    #[cfg(feature = "async")]
    pub(crate) fn wake_by(&self, waker: &Waker) {
        let mut state = self.state.lock();
        if state.waker.as_ref().is_some_and(|there| there.will_wake(waker)) {
            state.raised = false;
            return;
        }
        drop(state);
        let waker = waker.clone();
        let mut state = self.state.lock();
        state.raised = false;
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
    }
}

/// Runs code of the caller's, or a step of ours, whose panic ends there. Models run it as it is: a panic is how they
/// report.
pub(crate) fn contained(run: impl FnOnce()) {
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        // What it shares with the cache it reaches through the cache's own verbs, which no panic leaves halfway.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            // What it panicked with may panic when it is dropped; the second panic is let go of without a look.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
        }
    }
    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    run();
}
