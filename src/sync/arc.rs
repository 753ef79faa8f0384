//! `Arc` and `Weak` for ThreadSanitizer and for models. ThreadSanitizer does not see the fence in
//! the standard library's last drop and reports each as a race. Models do not see the standard
//! count, which decides what forks and namespaces do.
//!
//! # Invariants
//!
//! - **R1** `handles` is the number of strong handles; the value lives while there is one.
//! - **R2** `holders` is the number of weak handles, plus one for all strong handles together; the
//!   memory stays until it is zero.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::apart::AtomicUsize;
use super::gauge;

struct Counted<T> {
    handles: AtomicUsize,
    /// No model explores it: nothing is accessed through a weak handle only.
    holders: gauge::AtomicUsize,
    value: UnsafeCell<ManuallyDrop<T>>,
}

/// A shared value, dropped with its last handle.
pub(crate) struct Arc<T>(NonNull<Counted<T>>);

/// A weak handle: gives access to the value while the value lives.
pub(crate) struct Weak<T>(NonNull<Counted<T>>);

// SAFETY: handles share the value between threads, and the last one drops it on any of them.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Weak<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Weak<T> {}

impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        let value = UnsafeCell::new(ManuallyDrop::new(value));
        let counted = Counted { handles: AtomicUsize::new(1), holders: gauge::AtomicUsize::new(1), value };
        Self(NonNull::from(Box::leak(Box::new(counted))))
    }

    pub(crate) fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.0 == other.0
    }

    /// The value, if this is the only handle and there is no weak one.
    pub(crate) fn get_mut(this: &mut Self) -> Option<&mut T> {
        // Acquire: uses of dropped handles happen before. No new handle can appear: handles are
        // made from handles, this one is borrowed, and the callers keep no weak ones.
        if this.counted().handles.load(Acquire) != 1 || this.counted().holders.load(Acquire) != 1 {
            return None;
        }
        let value = this.counted().value.get();
        // SAFETY: R1: this is the only handle.
        Some(unsafe { &mut *value })
    }

    pub(crate) fn downgrade(this: &Self) -> Weak<T> {
        // Relaxed: the handle keeps the memory alive.
        this.counted().holders.fetch_add(1, Relaxed);
        Weak(this.0)
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: R2: this is a handle.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Default> Default for Arc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: R1: this is a handle; the value is not written while there is one.
        unsafe { &*self.counted().value.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        // Relaxed: a handle is made from a handle.
        self.counted().handles.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        // Release: uses of this handle happen before the drop. Acquire: for the thread that drops
        // the value.
        if self.counted().handles.fetch_sub(1, AcqRel) == 1 {
            let value = self.counted().value.get();
            // SAFETY: R1: that was the last handle, and `upgrade` makes no new one.
            unsafe { ManuallyDrop::drop(&mut *value) };
            drop(Weak(self.0));
        }
    }
}

impl<T> Weak<T> {
    fn counted(&self) -> &Counted<T> {
        // SAFETY: R2: this is a holder.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
        // Relaxed: a guess, which the compare-and-swap checks.
        let mut handles = self.counted().handles.load(Relaxed);
        while handles > 0 {
            // Acquire: as when a handle is cloned from another thread's.
            match self.counted().handles.compare_exchange(handles, handles + 1, Acquire, Relaxed) {
                Ok(_) => return Some(Arc(self.0)),
                Err(seen) => handles = seen,
            }
        }
        None
    }
}

impl<T> Drop for Weak<T> {
    fn drop(&mut self) {
        // AcqRel: as in the drop of the last handle.
        if self.counted().holders.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: R2: that was the last holder.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
