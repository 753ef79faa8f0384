//! Counted references that keep a cache alive without contention between threads: leases and
//! reservations count on their session's shard (not the evictor's).
//!
//! With one shared count, every lease and release of every thread would write the same cache line.
//! So each session has a *shard* with its own count, and draws many counts at once: a draw is one
//! addition, and making a reference from a drawn count writes nothing shared. A session that ends
//! gives its unused counts back. The thread that gives back the last count drops the shard. The
//! cache is dropped when its last shard and its last handle are gone.
//!
//! # Invariants
//!
//! - **H1** A shard's count is the number of its [`StrongRef`]s plus the counts that its
//!   [`StrongRefs`] has left: the shard lives while the count is not zero.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::sync::apart::AtomicUsize;
use crate::sync::gauge::{AcqRel, Relaxed};
use crate::sync::{Arc, model_size};

/// Counts drawn at once.
const DRAW: usize = model_size(1 << 16, 2);

/// Padding of a shard's cache line, because pairs of lines are fetched together. Aligning the
/// allocation to a pair would have the same effect, at several times the cost.
const APART: usize = 120;

#[repr(C)]
struct Shard<T> {
    before: [u8; APART],
    count: AtomicUsize,
    inner: Arc<T>,
    after: [u8; APART],
}

/// One count on a shard: keeps the cache alive and gives access to it.
pub(crate) struct StrongRef<T>(NonNull<Shard<T>>);

// SAFETY: a shard is a count and an `Arc` of something that threads share.
unsafe impl<T: Send + Sync> Send for StrongRef<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for StrongRef<T> {}

impl<T> fmt::Debug for StrongRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StrongRef").finish_non_exhaustive()
    }
}

impl<T> StrongRef<T> {
    fn shard(&self) -> &Shard<T> {
        // SAFETY: H1: this reference is counted.
        unsafe { self.0.as_ref() }
    }

    /// Whether this reference belongs to the cache `inner`.
    pub(crate) fn is_of(&self, inner: &Arc<T>) -> bool {
        Arc::ptr_eq(&self.shard().inner, inner)
    }
}

impl<T> Deref for StrongRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.shard().inner
    }
}

impl<T> Clone for StrongRef<T> {
    fn clone(&self) -> Self {
        // Relaxed: as `Arc`: a reference is made from a reference.
        self.shard().count.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl<T> Drop for StrongRef<T> {
    fn drop(&mut self) {
        give_back(self.0, 1);
    }
}

/// A session's drawn counts that are not given out yet.
pub(crate) struct StrongRefs<T> {
    shard: NonNull<Shard<T>>,
    left: Cell<usize>,
}

// SAFETY: H1: the shard counts `left` on whichever thread it is; the cell moves along.
unsafe impl<T: Send + Sync> Send for StrongRefs<T> {}

impl<T> StrongRefs<T> {
    /// Makes a new shard of `inner`.
    pub(crate) fn new(inner: &Arc<T>) -> Self {
        let (before, after) = ([0; APART], [0; APART]);
        let shard = Shard { before, count: AtomicUsize::new(DRAW), inner: Arc::clone(inner), after };
        Self { shard: NonNull::from(Box::leak(Box::new(shard))), left: Cell::new(DRAW) }
    }

    fn shard(&self) -> &Shard<T> {
        // SAFETY: H1: `left` is never zero, so this is counted.
        unsafe { self.shard.as_ref() }
    }

    pub(crate) fn inner(&self) -> &Arc<T> {
        &self.shard().inner
    }

    /// Makes one reference from a drawn count.
    #[inline]
    pub(crate) fn take(&self) -> StrongRef<T> {
        let mut left = self.left.get();
        if left == 1 {
            // Relaxed: `self` is counted.
            self.shard().count.fetch_add(DRAW, Relaxed);
            left += DRAW;
        }
        self.left.set(left - 1);
        StrongRef(self.shard)
    }
}

impl<T> Drop for StrongRefs<T> {
    fn drop(&mut self) {
        give_back(self.shard, self.left.get());
    }
}

/// Gives `counts` back; the last count drops the shard.
fn give_back<T>(shard: NonNull<Shard<T>>, counts: usize) {
    // SAFETY: H1: the caller's counts are not given back yet.
    let count = unsafe { &shard.as_ref().count };
    // Release: this thread's accesses happen before the drop. Acquire: for the thread that drops.
    if count.fetch_sub(counts, AcqRel) == counts {
        // SAFETY: H1: that was the last count.
        drop(unsafe { Box::from_raw(shard.as_ptr()) });
    }
}
