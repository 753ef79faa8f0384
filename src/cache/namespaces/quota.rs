//! Quotas: how many blocks a namespace may have and for how long, so that one tenant cannot take
//! the whole cache. Reservations and inserts charge namespaces here; the evictor enforces the limit
//! on cached blocks (`evictor::listeners::quota`).
//!
//! # What is charged
//!
//! The blocks of a namespace are counted over all generations of its tree
//! (`tree::namespace_account`). A reservation names the namespace that pays for it. If it names
//! none, the default namespace pays, whose reservations are counted only while it has a limit. A
//! run takes over the charge for its blocks when it is inserted, and gives it up when it enters the
//! accounts, so each block is counted at every moment. An insert into a limited namespace charges
//! it for blocks that another namespace paid for, or is refused. A forked block is charged once,
//! until its last fork is dropped. A charge ends before its blocks are given back (E21).
//!
//! An insert into a limited namespace evicts the blocks beyond the limit before it returns, unless
//! another thread is evicting or there is a background evictor. A lookup never evicts. Matches are
//! not limited; [`Quota`] says why the blocks that they lease are bounded.

mod verbs;

pub(in crate::cache) use verbs::{OverQuota, set_quota};

use std::time::Duration;

use crate::cache::matching::lookup_stats::LookupStats;
use crate::sync::Arc;
use crate::tree::NamespaceAccount;

/// The limits of a namespace: how many blocks it may have, and for how long; set by
/// [`Namespace::set_quota`](crate::Namespace::set_quota).
///
/// With both limits, a namespace never has more blocks in leases and reservations at once than the
/// sum of the limits: blocks get cached only from reservations, which `pinned_blocks` bounds, and
/// only cached blocks can be leased, which `cached_blocks` bounds as soon as no lease protects
/// them. With only `cached_blocks` its reservations are not bounded; with only `pinned_blocks` it
/// can cache and lease any number of blocks over time. `set_quota` changes both at once. A limit of
/// 2^32 - 1 or more is no limit, because no cache has that many blocks.
///
/// # Examples
///
/// ```
/// use radixkv::Quota;
///
/// let quota = Quota::default().cached_blocks(256).pinned_blocks(64);
/// assert_eq!((quota.cached_blocks, quota.pinned_blocks), (Some(256), Some(64)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Quota {
    /// The maximum number of cached blocks; no limit if `None`. If the namespace has more, its own
    /// blocks are evicted before those of other namespaces, in the policy's order; blocks that
    /// leases protect stay.
    pub cached_blocks: Option<usize>,
    /// The maximum number of blocks that its leases protect and its reservations
    /// ([`BlockRequest::paid_by`](crate::BlockRequest::paid_by)) hold; no limit if `None`. A block
    /// that several forks of a reservation have counts once. A reservation beyond the limit is
    /// refused, and so is an insert of blocks that another namespace paid for; a match is not.
    pub pinned_blocks: Option<usize>,
    /// How long its prefixes may stay without a use, if that is shorter than the time for all
    /// namespaces ([`Builder::time_to_idle`](crate::Builder::time_to_idle)), and with the same
    /// accuracy; no limit if `None`.
    pub time_to_idle: Option<Duration>,
}

impl Quota {
    /// Limits the cached blocks.
    #[must_use]
    pub const fn cached_blocks(mut self, blocks: usize) -> Self {
        self.cached_blocks = Some(blocks);
        self
    }

    /// Limits the blocks that its leases protect and its reservations hold.
    #[must_use]
    pub const fn pinned_blocks(mut self, blocks: usize) -> Self {
        self.pinned_blocks = Some(blocks);
        self
    }

    /// Limits how long its prefixes may stay without a use.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use radixkv::{Clock, PrefixCache, Quota};
    /// let cache = PrefixCache::builder(2, 8).clock(Clock::Logical).build()?;
    /// let (session, tenant) = (cache.session(), cache.namespace(&["tenant-7"]));
    /// tenant.set_quota(Quota::default().time_to_idle(Duration::from_nanos(10)));
    /// for space in [&tenant, &cache.default_namespace()] {
    ///     let start = session.acquire(space, &[1, 2], 0)?;
    ///     drop(session.insert(start.hit.lease(), &[1, 2], start.blocks)?);
    /// }
    /// cache.set_time(10);
    /// cache.settle();
    /// let left = [&tenant, &cache.default_namespace()].map(|space| session.peek(space, &[1, 2]));
    /// assert_eq!((left, cache.stats().aged_blocks), ([0, 2], 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn time_to_idle(mut self, duration: Duration) -> Self {
        self.time_to_idle = Some(duration);
        self
    }
}

/// The statistics of one namespace; made by [`Namespace::stats`](crate::Namespace::stats).
///
/// # Examples
///
/// ```
/// # use radixkv::BlockRequest;
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let tenant = cache.namespace(&["tenant-7"]);
/// let filling = cache.session().reserve(BlockRequest::new(3).paid_by(&tenant))?;
/// let stats = tenant.stats();
/// assert_eq!((stats.cached_blocks, stats.reserved_blocks), (0, 3));
/// # drop(filling);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NamespaceStats {
    /// Cached blocks, as of the last [`settle`](crate::PrefixCache::settle).
    pub cached_blocks: usize,
    /// Cached blocks that a lease protects.
    pub protected_blocks: usize,
    /// Blocks of reservations that it pays for, or inserted from them since the last
    /// [`settle`](crate::PrefixCache::settle). The default namespace pays for requests that name no
    /// other one; these count only while it has a limit on pinned blocks.
    pub reserved_blocks: usize,
    /// The limits of the namespace.
    pub quota: Quota,
    /// The hits and misses of its lookups; `None` if it was created while there were many
    /// namespaces ([`lookups_by_namespace`](crate::PrefixCache::lookups_by_namespace)).
    pub lookups: Option<LookupStats>,
}

/// The charge for the blocks of a reservation: counts them for a namespace until they are cached or
/// given back.
#[derive(Debug, Default)]
pub(in crate::cache) struct QuotaCharge {
    account: Option<Arc<NamespaceAccount>>,
    blocks: usize,
}

impl QuotaCharge {
    /// Charges `blocks` blocks to a namespace. The caller has checked its limit.
    pub(in crate::cache) fn of(account: &Arc<NamespaceAccount>, blocks: usize) -> Self {
        account.reserve(blocks);
        Self { account: Some(Arc::clone(account)), blocks }
    }

    /// Splits off the charge for `blocks` of its blocks, or for as many as it has.
    pub(in crate::cache) fn split(&mut self, blocks: usize) -> Self {
        let Some(account) = &self.account else {
            return Self::default();
        };
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Self { account: Some(Arc::clone(account)), blocks }
    }

    /// Whether the two charges can be joined: both are charged to the same namespace, or one of
    /// them to none.
    pub(in crate::cache) fn goes_with(&self, other: &Self) -> bool {
        other.account.as_ref().is_none_or(|theirs| self.account.is_none() || self.is_of(theirs))
    }

    /// Adds the blocks of `other`, which [goes with](Self::goes_with) this charge.
    pub(in crate::cache) fn append(&mut self, mut other: Self) {
        let Some(account) = other.account.take() else { return };
        self.account = Some(account);
        self.blocks += other.blocks;
    }

    /// Number of blocks that it charges to `account`.
    pub(in crate::cache) fn blocks_of(&self, account: &Arc<NamespaceAccount>) -> usize {
        if self.is_of(account) { self.blocks } else { 0 }
    }

    /// Whether it charges `account`.
    pub(in crate::cache) fn is_of(&self, account: &Arc<NamespaceAccount>) -> bool {
        self.account.as_ref().is_some_and(|own| Arc::ptr_eq(own, account))
    }

    /// Ends the charge for `blocks` blocks, which are cached now. `handed_over` if their run
    /// charges them instead until the evictor counts them as cached.
    pub(in crate::cache) fn spend(&mut self, blocks: usize, handed_over: bool) {
        let mut spent = self.split(blocks);
        if handed_over {
            spent.blocks = 0;
        }
    }

    /// Ends the charge; returns the account if any block was charged.
    #[inline]
    pub(in crate::cache) fn end(&mut self) -> Option<&NamespaceAccount> {
        let (account, blocks) = (self.account.as_deref()?, std::mem::take(&mut self.blocks));
        account.unreserve(blocks);
        (blocks > 0).then_some(account)
    }
}

impl Drop for QuotaCharge {
    #[inline]
    fn drop(&mut self) {
        _ = self.end();
    }
}
