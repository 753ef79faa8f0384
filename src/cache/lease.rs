//! Leases: promises that matched blocks stay where they are.

use std::fmt;

use super::hold::Hold;
use crate::block::BlockId;
use crate::reclaim::{Link, Ref};
use crate::tree::{Point, lease};

/// A promise: while it lives, the blocks of its prefix are not evicted, rewritten or handed out.
///
/// Exact: it protects its own prefix and nothing beyond. Dropping it is O(1), lock-free, and may happen on any thread,
/// in a panic too. A clone is a lease of its own, and no second use of the prefix in the eyes of a policy.
pub struct Lease {
    /// The lease counts on this point, so it stays (reclaim, I3); nothing in a namespace that was dropped.
    point: Option<Link<Point>>,
    len_tokens: usize,
    /// The request was counted in the point's statistics.
    pub(super) counted: bool,
    hold: Hold,
}

impl Lease {
    /// Takes over a lease that the caller holds on `point`.
    #[inline]
    pub(super) fn new(point: Ref<'_, Point>, counted: bool, hold: Hold) -> Self {
        Self { point: Some(point.link()), len_tokens: point.end(), counted, hold }
    }

    /// The empty lease of a namespace that was dropped.
    pub(super) fn of_nothing(hold: Hold) -> Self {
        Self { point: None, len_tokens: 0, counted: false, hold }
    }

    /// Tokens that it protects: whole blocks.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    pub(super) fn point(&self) -> Option<Ref<'_, Point>> {
        self.point.map(|point| point.get(self))
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl Clone for Lease {
    /// # Panics
    ///
    /// If the prefix holds 2^28 leases already.
    fn clone(&self) -> Self {
        if let Some(point) = self.point() {
            assert!(lease::lease_again(point, &self.hold.queue), "a prefix holds too many leases");
        }
        Self { point: self.point, len_tokens: self.len_tokens, counted: false, hold: self.hold.clone() }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Some(point) = self.point() {
            lease::release(point, &self.hold.queue);
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
    /// Tokens that are cached: whole blocks.
    pub fn len_tokens(&self) -> usize {
        self.lease.len_tokens()
    }

    /// The blocks of the prefix: the `i`-th holds tokens `i * block_size..(i + 1) * block_size`.
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
