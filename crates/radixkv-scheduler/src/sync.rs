//! Locks and threads of `std`, loom or shuttle, depending on the build. No other module of the
//! package names `std::sync`, `std::thread`, `loom` or `shuttle`.
//!
//! | cfg | backend |
//! |---|---|
//! | none | `std` |
//! | `radixkv_loom` | loom: explores every interleaving, also of `Arc` counts |
//! | `radixkv_shuttle` | shuttle: long random schedules |
//!
//! The other cfgs of the core (`radixkv_chaos`, `radixkv_failpoints`, `radixkv_tsan`) concern its
//! atomics and protocols. This package has none: its locks order everything.

mod changes;

use std::time::Instant;

#[cfg(radixkv_loom)]
use loom::sync as backend;
#[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
use shuttle::sync as backend;
#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
use std::sync as backend;

pub(crate) use backend::MutexGuard;
pub(crate) use changes::Changes;
#[cfg(radixkv_loom)]
pub(crate) use loom::sync::Arc;
#[cfg(radixkv_loom)]
pub(crate) use loom::thread::ThreadId;
#[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
pub(crate) use shuttle::thread::ThreadId;
#[cfg(not(radixkv_loom))]
pub(crate) use std::sync::Arc;
#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
pub(crate) use std::thread;
#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
pub(crate) use std::thread::ThreadId;

/// A mutex without poisoning: it stays usable after its holder has panicked.
#[derive(Debug)]
pub(crate) struct Mutex<T>(backend::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(backend::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug)]
pub(crate) struct Condvar(backend::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(backend::Condvar::new())
    }

    /// Waits for a notification, `deadline` or a spurious wake-up. Returns whether the deadline has
    /// passed. In models no deadline passes, so that a thread that is never notified is reported.
    pub(crate) fn wait<'a, T>(&self, held: MutexGuard<'a, T>, deadline: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
        #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
        if let Some(deadline) = deadline {
            let pause = deadline.saturating_duration_since(Instant::now());
            let (held, _) = self.0.wait_timeout(held, pause).unwrap_or_else(|poisoned| poisoned.into_inner());
            return (held, Instant::now() >= deadline);
        }
        let _ = deadline;
        (self.0.wait(held).unwrap_or_else(|poisoned| poisoned.into_inner()), false)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// The current thread; in models the model's thread, because they all share one OS thread.
pub(crate) fn current_thread() -> ThreadId {
    #[cfg(radixkv_loom)]
    return loom::thread::current().id();
    #[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
    return shuttle::thread::current().id();
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    std::thread::current().id()
}

/// Picks the production size, or the smallest size that still has every edge case under a model
/// checker or Miri.
pub(crate) const fn model_size(production: usize, model: usize) -> usize {
    if cfg!(any(radixkv_loom, radixkv_shuttle, miri)) { model } else { production }
}
