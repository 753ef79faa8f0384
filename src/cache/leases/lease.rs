//! Leases: while a lease lives, the blocks of its prefix are not evicted. Lookups and inserts make
//! leases; a point of the tree counts them (`tree::lease`).

use std::fmt;

use super::strong_ref::StrongRef;
use crate::block::{BlockId, BlockLayout};
use crate::cache::inner::Inner;
use crate::reclaim::Link;
use crate::tree::lease::release;
use crate::tree::{HeldLease, Point, StripeRef};

/// Protects the blocks of a prefix: while it lives, they are not evicted, rewritten or handed out.
///
/// It protects its own prefix and nothing beyond. Dropping it is O(1), may happen on any thread and
/// during a panic, and is lock-free while no thread, task or background evictor waits for blocks;
/// else it may take the wait list's lock, to wake the first waiter.
/// [`try_clone`](Self::try_clone) makes a second lease on the same prefix.
///
/// A lease keeps the cache alive. If it is the last handle, dropping it frees the index, which
/// takes about 3 s for a million runs. A lease that is forgotten ([`std::mem::forget`]) protects
/// its prefix for ever, even if the namespace is cleared, and keeps the whole cache alive.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 2).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
/// let inserted = session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?;
/// assert!(session.reserve(1).is_err()); // the lease protects both blocks
/// drop(inserted.lease);
/// assert!(session.reserve(1).is_ok());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Lease {
    /// The point that counts the lease, and that therefore stays (reclaim, I3); `None` for an empty
    /// lease that no point counts.
    point: Option<Link<Point>>,
    pub(in crate::cache) len_tokens: usize,
    pub(in crate::cache) counted_on: StripeRef,
    /// The offset of the namespace's layout.
    offset: u8,
    /// Whether the point's statistics count the request as a use.
    pub(in crate::cache) counted: bool,
    /// Whether the lookup of its sequence was counted.
    pub(in crate::cache) queried: bool,
    pub(in crate::cache) cache: StrongRef<Inner>,
}

impl Lease {
    /// Makes the public handle of a lease that the caller has taken.
    #[inline]
    pub(in crate::cache) fn new(
        held: HeldLease<'_>,
        counted: bool,
        layout: BlockLayout,
        cache: StrongRef<Inner>,
    ) -> Self {
        let len_tokens = layout.filled(held.point.end());
        let offset = layout.offset() as u8;
        let (point, counted_on) = (Some(held.point.link()), held.counted_on);
        Self { point, len_tokens, counted_on, offset, counted, queried: counted, cache }
    }

    /// The empty lease of a namespace that was removed, or can count no more leases.
    pub(in crate::cache) fn of_nothing(layout: BlockLayout, cache: StrongRef<Inner>) -> Self {
        let offset = layout.offset() as u8;
        let (counted_on, counted, queried) = (StripeRef::word(0), false, false);
        Self { point: None, len_tokens: 0, counted_on, offset, counted, queried, cache }
    }

    /// The block boundaries in its namespace's sequences.
    pub(in crate::cache) fn layout(&self, inner: &Inner) -> BlockLayout {
        inner.layout.with_offset(u32::from(self.offset))
    }

    /// The lease on its point; `None` if no point counts it.
    pub(in crate::cache) fn held(&self) -> Option<HeldLease<'_>> {
        self.point.map(|point| HeldLease { point: point.get(self), counted_on: self.counted_on })
    }

    /// Releases the lease without waking a waiter.
    pub(in crate::cache) fn release_quietly(mut self) {
        if let Some(held) = self.held() {
            _ = release(held, self.cache.context(self.counted_on.stripe()));
        }
        self.point = None;
    }

    /// Makes its point hot, as contention would; returns whether it is hot now.
    #[cfg(any(test, radixkv_loom, radixkv_shuttle))]
    pub(crate) fn inflate(&self) -> bool {
        self.held().is_some_and(|held| {
            self.cache.hot.inflate(held.point);
            // Relaxed: for tests, which look only at the word.
            held.point.word.load(crate::sync::atomic::Ordering::Relaxed).is_open()
        })
    }
}

/// The prefix has the maximum number of leases, 2^28: retry once some are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TooManyLeases;

impl fmt::Display for TooManyLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the prefix holds 2^28 leases: retry once some are dropped")
    }
}

impl std::error::Error for TooManyLeases {}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Some(held) = self.held() {
            if release(held, self.cache.context(self.counted_on.stripe())) {
                self.cache.ring();
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("len_tokens", &self.len_tokens).finish_non_exhaustive()
    }
}

/// The longest cached prefix of a sequence, leased. A miss is an empty match.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// let miss = session.match_prefix(&space, &[1, 2, 3]);
/// assert_eq!((miss.len_tokens(), miss.blocks()), (0, &[][..]));
/// let lease = miss.into_lease(); // an insert starts from it
/// # drop(lease);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a match releases its lease"]
pub struct PrefixMatch {
    pub(in crate::cache) lease: Lease,
    pub(in crate::cache) blocks: Vec<BlockId>,
}
