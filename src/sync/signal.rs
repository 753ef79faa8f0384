//! The wake-up flag of one waiter for blocks: a blocked thread or a polled task.
//!
//! A waker is user code: cloning, waking or dropping it may run anything, even a method of the
//! cache. None of this happens under the signal's lock.

use std::task::Waker;
use std::time::Instant;

use super::lock::{Condvar, Mutex};

#[derive(Debug, Default)]
struct SignalState {
    raised: bool,
    waker: Option<Waker>,
}

/// A flag that any thread raises and its owner lowers. Raising a raised flag has no effect.
#[derive(Debug)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    risen: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(SignalState::default()), risen: Condvar::new() }
    }

    /// Wakes the owner, or keeps it from falling asleep. Runs the owner's waker, so call it with no
    /// lock held.
    ///
    /// A panic in the waker is caught, because the raising thread is not responsible for that code;
    /// the panic hook has already reported it. A waker may cause another wake-up on this thread, if
    /// it polls at once and this lets the next waiter continue. That waker runs after the outer one
    /// has returned, so the stack stays bounded.
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

    /// Sleeps until the signal is raised, then lowers it; false if `deadline` passed first.
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

    /// Lowers the signal; the next `raise` wakes `waker`. Drops the previous waker and clones this
    /// one, so call it with no lock held.
    ///
    /// This takes the lock twice. If the signal is raised in between, the previous waker is woken.
    /// The caller checks its condition after this call, so it misses nothing.
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

    /// Wakes the owner's `waker` again if the signal is raised. The owner's thread may have run
    /// code that parks, such as an eviction sink, and that code may have consumed the wake-up.
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
    /// Wakers to call after the one that runs on this thread; `None` while none runs.
    static NEXT: std::cell::RefCell<Option<std::collections::VecDeque<Waker>>> = const { std::cell::RefCell::new(None) };
}

/// Calls the waker, or, inside another waker, queues it until that one returns.
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
        // A thread that is ending has no queue, so each waker is called at once.
        waker = NEXT.try_with(|next| next.borrow_mut().as_mut()?.pop_front()).unwrap_or_default();
    }
    if is_inside == Ok(false) {
        _ = NEXT.try_with(|next| next.borrow_mut().take());
    }
}

/// In models all threads share one OS thread, so nothing is queued.
#[cfg(any(radixkv_loom, radixkv_shuttle))]
fn wake_in_turn(waker: Waker) {
    contained(|| waker.wake());
}

/// Runs user code, or a step of the cache, and catches its panic. Models do not catch it, because
/// they report errors by panics.
pub(crate) fn contained(run: impl FnOnce()) {
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        // The code reaches the cache only through its methods, and no method is left incomplete by
        // a panic.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            // The payload may panic when it is dropped; the payload of that second panic is leaked.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
        }
    }
    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    run();
}
