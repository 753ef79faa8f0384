//! A mutex with `parking_lot`'s manners in every build.

#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

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
