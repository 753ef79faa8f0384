//! What a namespace holds of the cache, over all generations of its tree.

use crate::policy::QuotaGroup;
use crate::sync::OwnerCell;
use crate::sync::atomic::AtomicUsize as Counter;
use crate::sync::gauge::{AtomicUsize, Relaxed};

/// No limit.
const UNLIMITED: usize = usize::MAX;

/// Blocks of a namespace, and how many it may have.
///
/// The evictor alone writes what is cached and protected; sessions count what they reserve, which is why models explore
/// that count alone. No memory hangs on any of it: every access is relaxed, and whoever decides does so under the
/// evictor's lock.
#[derive(Debug)]
pub(crate) struct Holdings {
    cached: AtomicUsize,
    protected: AtomicUsize,
    /// In reservations, and in runs that were inserted from them and are not in the accounts yet.
    reserved: Counter,
    cached_limit: AtomicUsize,
    pinned_limit: AtomicUsize,
    /// Names its candidates once it has had a limit on what is cached.
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
        self.cached.load(Relaxed)
    }

    pub(crate) fn protected(&self) -> usize {
        self.protected.load(Relaxed)
    }

    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Relaxed)
    }

    /// Blocks that may be cached.
    pub(crate) fn cached_limit(&self) -> Option<usize> {
        Some(self.cached_limit.load(Relaxed)).filter(|limit| *limit != UNLIMITED)
    }

    /// Blocks that may be reserved and protected.
    pub(crate) fn pinned_limit(&self) -> Option<usize> {
        Some(self.pinned_limit.load(Relaxed)).filter(|limit| *limit != UNLIMITED)
    }

    pub(crate) fn limit(&self, cached: Option<usize>, pinned: Option<usize>) {
        self.cached_limit.store(cached.unwrap_or(UNLIMITED), Relaxed);
        self.pinned_limit.store(pinned.unwrap_or(UNLIMITED), Relaxed);
    }

    /// Cached blocks beyond the limit.
    pub(crate) fn excess(&self) -> usize {
        self.cached().saturating_sub(self.cached_limit.load(Relaxed))
    }

    /// The evictor's: so many blocks are cached now.
    pub(crate) fn set_cached(&self, blocks: usize) {
        self.cached.store(blocks, Relaxed);
    }

    /// The evictor's: so many blocks are protected now.
    pub(crate) fn set_protected(&self, blocks: usize) {
        self.protected.store(blocks, Relaxed);
    }

    pub(crate) fn reserve(&self, blocks: usize) {
        self.reserved.fetch_add(blocks, Relaxed);
    }

    pub(crate) fn unreserve(&self, blocks: usize) {
        self.reserved.fetch_sub(blocks, Relaxed);
    }
}
