//! Stopping one thread at a fail point, and knowing that it stopped.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Whatever takes longer than this does not come any more.
pub const STUCK: Duration = Duration::from_secs(60);

thread_local!(static VICTIM: Cell<bool> = const { Cell::new(false) });

/// Runs `work`; the first armed point that this thread comes to meanwhile acts on it, and on no
/// other thread.
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

/// While it lives, `point` runs `action` on whatever thread comes there.
pub fn arm_for_all(point: &'static str, action: impl Fn() + Send + Sync + 'static) -> Armed {
    let armed = Armed { _scenario: fail::FailScenario::setup() };
    fail::cfg_callback(point, action).expect("a fail point");
    armed
}

/// An armed point; tests that arm one wait for each other, because points are known to the whole
/// process.
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
            let late;
            (state, late) = changed.wait_timeout(state, STUCK).unwrap_or_else(PoisonError::into_inner);
            assert!(state.arrived || !late.timed_out(), "the victim did not come to the point");
        }
    }

    pub fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        changed.notify_all();
    }
}
