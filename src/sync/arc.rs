//! `Arc` for ThreadSanitizer: it does not see the fence in the standard library's last drop, and reports every one.
//!
//! # Invariants
//!
//! - **A1** The count is the number of handles; the value lives while there is one.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

struct Counted<T> {
    handles: AtomicUsize,
    value: T,
}

/// A shared value, dropped with its last handle.
#[derive(Debug)]
pub(crate) struct Arc<T>(NonNull<Counted<T>>);

// SAFETY: handles share the value between threads, and the last one drops it on any of them.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        let counted = Counted { handles: AtomicUsize::new(1), value };
        Self(NonNull::from(Box::leak(Box::new(counted))))
    }

    pub(crate) fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.0 == other.0
    }

    pub(crate) fn strong_count(this: &Self) -> usize {
        this.counted().handles.load(Acquire)
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: A1: this is a handle.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted().value
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
        // Release: what was done through this handle comes before the drop. Acquire: for whoever drops.
        if self.counted().handles.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: A1: that was the last handle.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
