//! Leases: promises that matched blocks stay where they are.

use std::fmt;

use super::Inner;
use super::strong_ref::StrongRef;
use crate::block::{BlockId, Grid};
use crate::reclaim::Link;
use crate::tree::lease::{lease_again, release};
use crate::tree::{Held, Point, Share};

/// A promise: while it lives, the blocks of its prefix are not evicted, rewritten or handed out.
///
/// Exact: it protects its own prefix and nothing beyond. Dropping it is O(1), lock-free unless somebody waits for
/// blocks and must be woken, and may happen on any thread, in a panic too. A clone is a lease of its own, and no second
/// use of the prefix in the eyes of a policy.
///
/// It keeps the cache. If it is the last handle, dropping it frees the index: about 3 s for a million runs. A lease
/// that is forgotten ([`std::mem::forget`]) protects its path for good, through clears too, and keeps the whole cache
/// with its session's share of the bookkeeping.
pub struct Lease {
    /// The lease counts on this point, so it stays (reclaim, I3); nothing in a namespace that was dropped.
    point: Option<Link<Point>>,
    len_tokens: usize,
    share: Share,
    /// Of the namespace's grid.
    offset: u8,
    /// The request was counted in the point's statistics.
    pub(super) counted: bool,
    cache: StrongRef,
}

impl Lease {
    /// Takes over a lease that the caller holds.
    #[inline]
    pub(super) fn new(held: Held<'_>, counted: bool, grid: Grid, cache: StrongRef) -> Self {
        let len_tokens = grid.filled(held.point.end());
        let offset = grid.offset() as u8;
        Self { point: Some(held.point.link()), len_tokens, share: held.share, offset, counted, cache }
    }

    /// The empty lease of a namespace that was dropped.
    pub(super) fn of_nothing(grid: Grid, cache: StrongRef) -> Self {
        let offset = grid.offset() as u8;
        Self { point: None, len_tokens: 0, share: Share::word(0), offset, counted: false, cache }
    }

    /// Tokens whose keys and values it protects: whole blocks.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// Where blocks end in its namespace.
    pub(super) fn grid(&self, inner: &Inner) -> Grid {
        inner.grid.with_offset(u32::from(self.offset))
    }

    /// Nothing in a namespace that was dropped.
    pub(super) fn held(&self) -> Option<Held<'_>> {
        self.point.map(|point| Held { point: point.get(self), share: self.share })
    }

    pub(super) fn cache(&self) -> &StrongRef {
        &self.cache
    }

    /// Makes its point hot, as contention would; whether it is.
    #[cfg(any(test, radixkv_loom, radixkv_shuttle))]
    pub(crate) fn inflate(&self) -> bool {
        self.held().is_some_and(|held| {
            self.cache.hot.inflate(held.point);
            held.point.word.load(crate::sync::atomic::Ordering::Relaxed).is_open()
        })
    }
}

impl Clone for Lease {
    /// # Panics
    ///
    /// If the prefix holds 2^28 leases already.
    fn clone(&self) -> Self {
        let again = self.held().map(|held| {
            let again = lease_again(held.point, self.cache.ledger(self.share.stripe()));
            again.expect("a prefix holds too many leases")
        });
        match again {
            Some(held) => Self::new(held, false, self.grid(&self.cache), self.cache.clone()),
            None => Self::of_nothing(self.grid(&self.cache), self.cache.clone()),
        }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Some(held) = self.held() {
            release(held, self.cache.ledger(self.share.stripe()));
            self.cache.ring();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("len_tokens", &self.len_tokens).finish_non_exhaustive()
    }
}

/// The longest cached prefix of a sequence, leased. A miss is an empty match.
#[derive(Debug)]
#[must_use = "dropping a match releases its lease"]
pub struct PrefixMatch {
    pub(super) lease: Lease,
    pub(super) blocks: Vec<BlockId>,
}

impl PrefixMatch {
    /// Tokens whose keys and values are cached: whole blocks.
    pub fn len_tokens(&self) -> usize {
        self.lease.len_tokens()
    }

    /// The blocks of the prefix: the `i`-th holds those of tokens `i * block_size..(i + 1) * block_size`.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// The lease that keeps the blocks in place.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The lease alone.
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}
