//! A mutex with `parking_lot`'s manners in every build, and a condition variable that hands its lock over and back.

use std::time::Instant;

#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
use parking_lot as backend;

#[cfg(radixkv_loom)]
use loom::sync as backend;
#[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
use shuttle::sync as backend;

#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use backend::MutexGuard;

/// The model checker's mutex; a panicking holder poisons nothing.
#[cfg(any(radixkv_loom, radixkv_shuttle))]
#[derive(Debug)]
pub(crate) struct Mutex<T>(backend::Mutex<T>);

#[cfg(any(radixkv_loom, radixkv_shuttle))]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(backend::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Where the holder of a lock waits for somebody else to change what it guards.
#[derive(Debug)]
pub(crate) struct Condvar(backend::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(backend::Condvar::new())
    }

    /// Waits to be notified, or until `deadline`; whether that has passed.
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    pub(crate) fn wait<'a, T>(
        &self,
        mut lock: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        let late = match deadline {
            Some(deadline) => self.0.wait_until(&mut lock, deadline).timed_out(),
            None => {
                self.0.wait(&mut lock);
                false
            }
        };
        (lock, late)
    }

    /// In models nothing is ever late: who is never notified is found.
    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    pub(crate) fn wait<'a, T>(&self, lock: MutexGuard<'a, T>, _: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
        (self.0.wait(lock).unwrap_or_else(|poisoned| poisoned.into_inner()), false)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    #[cfg(feature = "scheduler")]
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Unlocks, and hands the lock to whoever has waited longest.
pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    MutexGuard::unlock_fair(guard);
    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    drop(guard);
}
