//! The accounts of a namespace over all generations of its tree: name, blocks and limits.

use std::time::Duration;

use crate::name::NamespaceName;
use crate::policy::QuotaGroup;
use crate::reclaim::Row;
use crate::sync::OwnerCell;
use crate::sync::atomic::AtomicUsize as Counter;
use crate::sync::gauge::{AtomicU64, AtomicUsize, Relaxed};

/// Counts of a namespace's blocks, and their limits.
///
/// Only the evictor writes the cached and protected counts. Sessions write the count of
/// reservations, the only one that models explore. No memory depends on these counts: every access
/// is relaxed, and decisions are made under the evictor's lock.
#[derive(Debug)]
pub(crate) struct NamespaceAccount {
    pub(crate) name: NamespaceName,
    /// The row of counters for its lookups.
    pub(crate) row: Row,
    blocks: BlockCounts,
    limits: AtomicU64,
    /// Number of running operations that need every lease in the accounts.
    told: AtomicUsize,
    /// The namespace's own time to idle in nanoseconds; `u64::MAX` if it has none.
    time_to_idle: AtomicU64,
    /// The group of its candidates in the ranking, once it has had a limit on its cached blocks.
    pub(crate) group: OwnerCell<Option<QuotaGroup>>,
}

/// The blocks of a namespace by state. On another cache line than the fields that every request
/// reads, because each attached or removed run writes them.
#[derive(Debug)]
#[repr(align(64))]
struct BlockCounts {
    cached: AtomicUsize,
    protected: AtomicUsize,
    /// In reservations, and in runs inserted from them that are not in the accounts yet.
    reserved: Counter,
}

/// The limit on cached blocks and the limit on reserved and protected blocks, in one number, so
/// that a thread sees both as they were set together.
#[derive(Debug, Clone, Copy)]
struct Limits(u64);

impl Limits {
    /// In either half: no limit. No cache has this many blocks.
    const NONE: u32 = u32::MAX;

    fn new(cached: Option<usize>, pinned: Option<usize>) -> Self {
        let half = |limit: Option<usize>| limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(Self::NONE);
        Self(u64::from(half(cached)) << 32 | u64::from(half(pinned)))
    }

    fn cached(self) -> Option<usize> {
        Some((self.0 >> 32) as u32).filter(|limit| *limit != Self::NONE).map(|limit| limit as usize)
    }

    fn pinned(self) -> Option<usize> {
        Some(self.0 as u32).filter(|limit| *limit != Self::NONE).map(|limit| limit as usize)
    }
}

impl NamespaceAccount {
    pub(crate) fn new(name: NamespaceName, row: Row) -> Self {
        Self {
            name,
            row,
            blocks: BlockCounts {
                cached: AtomicUsize::new(0),
                protected: AtomicUsize::new(0),
                reserved: Counter::new(0),
            },
            limits: AtomicU64::new(Limits::new(None, None).0),
            told: AtomicUsize::new(0),
            time_to_idle: AtomicU64::new(u64::MAX),
            group: OwnerCell::new(None),
        }
    }

    pub(crate) fn cached(&self) -> usize {
        // Relaxed: only a number; the evictor decides by it under its lock.
        self.blocks.cached.load(Relaxed)
    }

    pub(crate) fn protected(&self) -> usize {
        // Relaxed: only a number; the evictor wrote it under its lock.
        self.blocks.protected.load(Relaxed)
    }

    pub(crate) fn reserved(&self) -> usize {
        // Relaxed: only a number; no memory depends on it.
        self.blocks.reserved.load(Relaxed)
    }

    fn limits(&self) -> Limits {
        // Relaxed: a setting; no memory depends on it.
        Limits(self.limits.load(Relaxed))
    }

    /// The limit on cached blocks.
    pub(crate) fn cached_limit(&self) -> Option<usize> {
        self.limits().cached()
    }

    /// The limit on reserved and protected blocks together.
    pub(crate) fn pinned_limit(&self) -> Option<usize> {
        self.limits().pinned()
    }

    /// Whether the evictor must be told of every lease, because a decision depends on the accounts.
    #[inline]
    pub(crate) fn must_be_told(&self) -> bool {
        // Relaxed: written and read under the evictor's lock.
        self.pinned_limit().is_some() || self.told.load(Relaxed) > 0
    }

    /// Counts the start or end of an operation that needs every lease in the accounts. Only the
    /// evictor calls it.
    pub(crate) fn tell(&self, begins: bool) {
        // Relaxed: read under the same lock.
        _ = if begins { self.told.fetch_add(1, Relaxed) } else { self.told.fetch_sub(1, Relaxed) };
    }

    /// Both limits, as they were set together.
    pub(crate) fn both_limits(&self) -> (Option<usize>, Option<usize>) {
        let limits = self.limits();
        (limits.cached(), limits.pinned())
    }

    pub(crate) fn limit(&self, cached: Option<usize>, pinned: Option<usize>) {
        // Relaxed: a setting.
        self.limits.store(Limits::new(cached, pinned).0, Relaxed);
    }

    /// How long its prefixes may stay without a use; `None` if the namespace has no time of its
    /// own.
    pub(crate) fn time_to_idle(&self) -> Option<Duration> {
        // Relaxed: a setting.
        Some(self.time_to_idle.load(Relaxed)).filter(|time| *time != u64::MAX).map(Duration::from_nanos)
    }

    pub(crate) fn set_time_to_idle(&self, time: Option<Duration>) {
        let nanoseconds = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1));
        // Relaxed: a setting.
        self.time_to_idle.store(nanoseconds.unwrap_or(u64::MAX), Relaxed);
    }

    /// Number of cached blocks beyond the limit.
    pub(crate) fn excess(&self) -> usize {
        self.cached_limit().map_or(0, |limit| self.cached().saturating_sub(limit))
    }

    /// Counts blocks that were cached, or negative ones that were removed. Only the evictor calls
    /// it.
    pub(crate) fn change_cached(&self, blocks: isize) {
        // Relaxed: the sum is exact in any order of its changes, and no memory depends on it.
        self.blocks.cached.fetch_add(blocks as usize, Relaxed);
    }

    /// Sets the number of protected blocks. Only the evictor calls it.
    pub(crate) fn set_protected(&self, blocks: usize) {
        // Relaxed: only the evictor writes it, under its lock.
        self.blocks.protected.store(blocks, Relaxed);
    }

    pub(crate) fn reserve(&self, blocks: usize) {
        // Relaxed: the sum is exact in any order of its changes, and no memory depends on it.
        self.blocks.reserved.fetch_add(blocks, Relaxed);
    }

    pub(crate) fn unreserve(&self, blocks: usize) {
        // Relaxed: as in `reserve`.
        self.blocks.reserved.fetch_sub(blocks, Relaxed);
    }
}
