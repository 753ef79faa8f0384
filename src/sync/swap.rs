//! A shared value that is read without waiting and replaced as a whole.

use super::Arc;

/// A shared value with lock-free reads.
#[cfg(not(any(radixkv_loom, radixkv_shuttle, radixkv_tsan)))]
pub(crate) struct Swap<T>(arc_swap::ArcSwap<T>);

/// A shared value. No model explores when a new value becomes visible: either the lock under which
/// it is replaced is held for reads, or no memory depends on it. (ThreadSanitizer does not see the
/// fences of `arc-swap`.)
#[cfg(any(radixkv_loom, radixkv_shuttle, radixkv_tsan))]
pub(crate) struct Swap<T>(std::sync::Mutex<Arc<T>>);

#[cfg(not(any(radixkv_loom, radixkv_shuttle, radixkv_tsan)))]
impl<T> Swap<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(arc_swap::ArcSwap::new(value))
    }

    /// Runs `read` with the present value, which stays alive for the call.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0.load())
    }

    /// Replaces the value and returns the one before.
    pub(crate) fn replace(&self, value: Arc<T>) -> Arc<T> {
        self.0.swap(value)
    }
}

#[cfg(any(radixkv_loom, radixkv_shuttle, radixkv_tsan))]
impl<T> Swap<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Runs `read` with the present value, which stays alive for the call.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        let value = Arc::clone(&self.0.lock().expect("nothing panics under this lock"));
        read(&value)
    }

    /// Replaces the value and returns the one before.
    pub(crate) fn replace(&self, value: Arc<T>) -> Arc<T> {
        std::mem::replace(&mut self.0.lock().expect("nothing panics under this lock"), value)
    }
}
