//! Words that simulate a process killed or stopped before a chosen write, so that tests can try
//! every write.

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{self, Ordering},
};

thread_local! {
    /// How many more writes the thread may do before it is killed; `None` if it is not killed.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    /// What happens before that write, if the thread is stopped and not killed.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// The panic payload of a killed thread.
struct Killed;

/// Runs `verb` and kills it before the write after the first `writes` ones. `None` if it was
/// killed; then the writes of its destructors are not done either.
pub(crate) fn killed_after<T>(writes: u64, verb: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(writes));
    let ended = catch_unwind(AssertUnwindSafe(verb));
    LEFT.set(None);
    match ended {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `verb` and stops it before the write after the first `writes` ones, until `meanwhile` has
/// ended. False if there is no such write.
pub(crate) fn stopped_after(writes: u64, meanwhile: impl FnOnce() + 'static, verb: impl FnOnce()) -> bool {
    MEANWHILE.set(Some(Box::new(meanwhile)));
    LEFT.set(Some(writes));
    verb();
    LEFT.set(None);
    MEANWHILE.take().is_none()
}

/// Whether a write may be done.
fn may_write() -> bool {
    match LEFT.get() {
        None => true,
        Some(0) if std::thread::panicking() => false,
        Some(0) => {
            let Some(meanwhile) = MEANWHILE.take() else { resume_unwind(Box::new(Killed)) };
            LEFT.set(None);
            meanwhile();
            true
        }
        Some(left) => {
            LEFT.set(Some(left - 1));
            true
        }
    }
}

/// An atomic word.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        if may_write() {
            self.0.store(value, order);
        }
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        if may_write() { self.0.fetch_add(value, order) } else { self.0.load(Ordering::Relaxed) }
    }

    pub(crate) fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        if may_write() { self.0.fetch_or(bits, order) } else { self.0.load(Ordering::Relaxed) }
    }

    pub(crate) fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        if may_write() { self.0.fetch_and(bits, order) } else { self.0.load(Ordering::Relaxed) }
    }

    pub(crate) fn compare_exchange(
        &self,
        seen: u64,
        next: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        // The destructors of a killed thread go on as if they had written: a loop that retries ends.
        if may_write() { self.0.compare_exchange(seen, next, success, failure) } else { Ok(seen) }
    }
}
