//! The blocks of a namespace, over all generations of its tree.

use crate::policy::QuotaGroup;
use crate::sync::OwnerCell;
use crate::sync::atomic::AtomicUsize as Counter;
use crate::sync::gauge::{AtomicUsize, Relaxed};

/// No limit.
const UNLIMITED: usize = usize::MAX;

/// Counts of a namespace's blocks, and their limits.
///
/// The evictor alone writes the cached and the protected; sessions count what they reserve, so models explore that count
/// alone. No memory depends on these counts: every access is relaxed, and decisions are made under the evictor's lock.
#[derive(Debug)]
pub(crate) struct Holdings {
    cached: AtomicUsize,
    protected: AtomicUsize,
    /// In reservations, and in runs that were inserted from them and are not in the accounts yet.
    reserved: Counter,
    cached_limit: AtomicUsize,
    pinned_limit: AtomicUsize,
    /// Of its candidates, once it has had a limit on its cached blocks.
    pub(crate) group: OwnerCell<Option<QuotaGroup>>,
}

impl Holdings {
    pub(crate) fn new() -> Self {
        Self {
            cached: AtomicUsize::new(0),
            protected: AtomicUsize::new(0),
            reserved: Counter::new(0),
            cached_limit: AtomicUsize::new(UNLIMITED),
            pinned_limit: AtomicUsize::new(UNLIMITED),
            group: OwnerCell::new(None),
        }
    }

    pub(crate) fn cached(&self) -> usize {
        // Relaxed: a number; the evictor decides by it under its lock.
        self.cached.load(Relaxed)
    }

    pub(crate) fn protected(&self) -> usize {
        // Relaxed: a number; the evictor wrote it under its lock.
        self.protected.load(Relaxed)
    }

    pub(crate) fn reserved(&self) -> usize {
        // Relaxed: a number, and no memory depends on it.
        self.reserved.load(Relaxed)
    }

    /// Blocks that may be cached.
    pub(crate) fn cached_limit(&self) -> Option<usize> {
        // Relaxed: a setting; no memory depends on it.
        Some(self.cached_limit.load(Relaxed)).filter(|limit| *limit != UNLIMITED)
    }

    /// Blocks that may be reserved and protected.
    pub(crate) fn pinned_limit(&self) -> Option<usize> {
        // Relaxed: a setting; no memory depends on it.
        Some(self.pinned_limit.load(Relaxed)).filter(|limit| *limit != UNLIMITED)
    }

    pub(crate) fn limit(&self, cached: Option<usize>, pinned: Option<usize>) {
        // Relaxed, both: settings; a thread that sees one before the other decides by that one alone.
        self.cached_limit.store(cached.unwrap_or(UNLIMITED), Relaxed);
        self.pinned_limit.store(pinned.unwrap_or(UNLIMITED), Relaxed);
    }

    /// Cached blocks beyond the limit.
    pub(crate) fn excess(&self) -> usize {
        // Relaxed: a setting; no memory depends on it.
        self.cached().saturating_sub(self.cached_limit.load(Relaxed))
    }

    /// The evictor's: sets the number of cached blocks.
    pub(crate) fn set_cached(&self, blocks: usize) {
        // Relaxed: the evictor alone writes it, under its lock.
        self.cached.store(blocks, Relaxed);
    }

    /// The evictor's: sets the number of protected blocks.
    pub(crate) fn set_protected(&self, blocks: usize) {
        // Relaxed: the evictor alone writes it, under its lock.
        self.protected.store(blocks, Relaxed);
    }

    pub(crate) fn reserve(&self, blocks: usize) {
        // Relaxed: the sum is exact in any order of its changes, and no memory depends on it.
        self.reserved.fetch_add(blocks, Relaxed);
    }

    pub(crate) fn unreserve(&self, blocks: usize) {
        // Relaxed: as in `reserve`.
        self.reserved.fetch_sub(blocks, Relaxed);
    }
}
