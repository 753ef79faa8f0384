//! Stopping one thread at a fail point, and knowing that it stopped.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

thread_local!(static VICTIM: Cell<bool> = const { Cell::new(false) });

/// Runs `work`; the first armed point that this thread comes to meanwhile acts on it, and on no other thread.
pub fn as_victim<R>(work: impl FnOnce() -> R) -> R {
    VICTIM.set(true);
    let result = work();
    assert!(!VICTIM.replace(false), "the victim did not come to the point");
    result
}

/// Called by an action: the next armed point that the victim comes to acts on it as well.
pub fn stay_victim() {
    VICTIM.set(true);
}

/// While it lives, `point` runs `action` on a victim, once.
pub fn arm(point: &'static str, action: impl Fn() + Send + Sync + 'static) -> Armed {
    let armed = Armed { _scenario: fail::FailScenario::setup() };
    armed.and(point, action);
    armed
}

/// An armed point; tests that arm one wait for each other, because points are known to the whole process.
pub struct Armed {
    _scenario: fail::FailScenario<'static>,
}

impl Armed {
    /// Arms one more point.
    pub fn and(&self, point: &'static str, action: impl Fn() + Send + Sync + 'static) {
        let act = move || {
            if VICTIM.replace(false) {
                action();
            }
        };
        fail::cfg_callback(point, act).expect("a fail point");
    }
}

/// Where a thread waits until it is let through.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    arrived: bool,
    open: bool,
}

impl Gate {
    /// Reports the arrival and waits.
    pub fn stop(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived = true;
        changed.notify_all();
        while !state.open {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn wait_for_arrival(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.arrived {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        changed.notify_all();
    }
}
