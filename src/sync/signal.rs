//! What one waiter sleeps on: a thread that blocks, or a task that is polled.

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

    /// Wakes the owner, or keeps it from falling asleep.
    pub(crate) fn raise(&self) {
        let mut state = self.state.lock();
        if state.raised {
            return;
        }
        state.raised = true;
        let waker = state.waker.take();
        drop(state);
        self.risen.notify_one();
        // Outside the lock: it may run anything.
        if let Some(waker) = waker {
            waker.wake();
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

    /// Takes it down, and has `waker` woken when it is raised next.
    #[cfg(feature = "async")]
    pub(crate) fn wake_by(&self, waker: &Waker) {
        let mut state = self.state.lock();
        state.raised = false;
        match &mut state.waker {
            Some(there) => there.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}
