//! The signal that one waiter sleeps on: a thread that blocks, or a task that is polled.
//!
//! A waker is the caller's code: cloning, waking and dropping it may run anything, also a verb of the cache. None of it
//! runs under the signal's lock.

use std::task::Waker;
use std::time::Instant;

use super::lock::{Condvar, Mutex};

#[derive(Debug, Default)]
struct SignalState {
    raised: bool,
    waker: Option<Waker>,
}

/// Raised by any thread, lowered by its owner. Raising a raised signal changes nothing.
#[derive(Debug)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    risen: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(SignalState::default()), risen: Condvar::new() }
    }

    /// Wakes the owner, or keeps it from falling asleep. Runs the owner's waker: call it with no lock held.
    ///
    /// A waker that panics ends its own wake-up and nothing else: the thread that raises the signal has no part in the
    /// waker's code. The panic hook has reported the panic by then. A waker that runs inside another one's on this thread, because
    /// that one polls at once and what it waits for wakes the next, is woken when that one has returned: the stack stays bounded.
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
            wake_in_turn(waker);
        }
    }

    /// Sleeps until it is raised, then lowers it; false if `deadline` passed first.
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

    /// Lowers it, and wakes `waker` when it is raised next. Drops the previous waker and clones this one: call it with no
    /// lock held.
    ///
    /// It may be raised between the two times that this takes the lock: the previous waker is woken then. The caller
    /// looks at what it waits for after this call, so it misses nothing.
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

    /// Wakes `waker`, the owner's, once more if the signal was raised since it was lowered last. The owner's thread may have run code
    /// that parks, such as an eviction sink, which took that wake-up for its own.
    #[cfg(feature = "async")]
    pub(crate) fn wake_again(&self, waker: &Waker) {
        // In models no sink parks.
        if cfg!(not(any(radixkv_loom, radixkv_shuttle))) && self.state.lock().raised {
            contained(|| waker.wake_by_ref());
        }
    }
}

#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
std::thread_local! {
    /// Wakers that wait until the one that runs on this thread has returned; nothing while none runs.
    static NEXT: std::cell::RefCell<Option<std::collections::VecDeque<Waker>>> = const { std::cell::RefCell::new(None) };
}

/// Calls the waker now, or after the one inside which this is called.
#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
fn wake_in_turn(waker: Waker) {
    let mut waker = Some(waker);
    let is_inside = NEXT.try_with(|next| {
        let mut next = next.borrow_mut();
        let is_inside = next.is_some();
        next.get_or_insert_default().extend(waker.take_if(|_| is_inside));
        is_inside
    });
    while let Some(turn) = waker {
        contained(|| turn.wake());
        // A thread that is ending has no list: it calls each at once.
        waker = NEXT.try_with(|next| next.borrow_mut().as_mut()?.pop_front()).unwrap_or_default();
    }
    if is_inside == Ok(false) {
        _ = NEXT.try_with(|next| next.borrow_mut().take());
    }
}

/// In models all threads are one thread of the system.
#[cfg(any(radixkv_loom, radixkv_shuttle))]
fn wake_in_turn(waker: Waker) {
    contained(|| waker.wake());
}

/// Runs the caller's code, or a step of the cache, and catches its panic. Models do not catch it: they report by panics.
pub(crate) fn contained(run: impl FnOnce()) {
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        // The code reaches the cache through its verbs alone, and a panic leaves no verb halfway.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            // The payload may panic when it is dropped; the payload of that second panic is leaked.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
        }
    }
    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    run();
}
