//! Quotas: how much of the cache a namespace may have, so that one tenant cannot hold all of it.

use super::evictor::{Evictor, Resources};
use super::{Inner, Namespace, PrefixCache, Reservation, ReserveError, Session};
use crate::sync::Arc;
use crate::tree::Holdings;

/// How many blocks a namespace may have; [`PrefixCache::set_quota`].
///
/// With both limits, a namespace never has more blocks in leases and reservations at once than the sum of the limits:
/// blocks get cached only from reservations, which `pinned_blocks` bounds, and only cached blocks can be leased, which
/// `cached_blocks` bounds as soon as no lease protects them. With `cached_blocks` alone its reservations are not bounded;
/// with `pinned_blocks` alone it can, in the course of time, cache and lease any number of blocks.
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
    /// The most blocks that it may have cached; no limit if `None`. When it has more, its own blocks are evicted
    /// before those of other namespaces, in the policy's order; blocks that leases protect stay.
    pub cached_blocks: Option<usize>,
    /// The most blocks that its leases may protect and its reservations ([`Session::reserve_in`]) hold; no limit if
    /// `None`. Each fork of a reservation counts. A reservation beyond the limit is refused; a match is not.
    pub pinned_blocks: Option<usize>,
}

impl Quota {
    /// Limits the blocks that it may have cached.
    #[must_use]
    pub const fn cached_blocks(mut self, blocks: usize) -> Self {
        self.cached_blocks = Some(blocks);
        self
    }

    /// Limits the blocks that its leases may protect and its reservations hold.
    #[must_use]
    pub const fn pinned_blocks(mut self, blocks: usize) -> Self {
        self.pinned_blocks = Some(blocks);
        self
    }
}

/// Numbers of one namespace; made by [`PrefixCache::namespace_stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NamespaceStats {
    /// Blocks cached, as of the last [`settle`](PrefixCache::settle).
    pub cached_blocks: usize,
    /// Cached blocks that a lease protects.
    pub protected_blocks: usize,
    /// Blocks of reservations made with [`Session::reserve_in`], or inserted from them since the last
    /// [`settle`](PrefixCache::settle).
    pub reserved_blocks: usize,
    /// Its limits.
    pub quota: Quota,
}

/// The blocks of a reservation, counted with a namespace until they are cached or given back.
#[derive(Debug, Default)]
pub(super) struct QuotaCharge {
    holdings: Option<Arc<Holdings>>,
    blocks: usize,
}

impl QuotaCharge {
    /// Splits off the charge for `blocks` of its blocks, or for as many as it has.
    pub(super) fn split(&mut self, blocks: usize) -> Self {
        let Some(holdings) = &self.holdings else {
            return Self::default();
        };
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Self { holdings: Some(Arc::clone(holdings)), blocks }
    }

    /// A second charge for the same blocks, which then count twice: which fork is dropped last is not known.
    pub(super) fn fork(&self) -> Self {
        if let Some(holdings) = &self.holdings {
            holdings.reserve(self.blocks);
        }
        Self { holdings: self.holdings.clone(), blocks: self.blocks }
    }

    /// Whether the two can be joined: both are charged to one namespace, or one of them to none.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        other.holdings.as_ref().is_none_or(|theirs| self.holdings.is_none() || self.is_of(theirs))
    }

    /// Adds the blocks of `other`, which [goes with](Self::goes_with) this charge.
    pub(super) fn append(&mut self, mut other: Self) {
        let Some(holdings) = other.holdings.take() else { return };
        self.holdings = Some(holdings);
        self.blocks += other.blocks;
    }

    /// Blocks that it charges to `holdings`.
    pub(super) fn blocks_of(&self, holdings: &Arc<Holdings>) -> usize {
        if self.is_of(holdings) { self.blocks } else { 0 }
    }

    /// Whether it charges `holdings`.
    pub(super) fn is_of(&self, holdings: &Arc<Holdings>) -> bool {
        self.holdings.as_ref().is_some_and(|own| Arc::ptr_eq(own, holdings))
    }

    /// Ends the charge for `blocks` blocks, which are cached now. `handed_over` if their run charges them instead until
    /// the evictor counts them as cached.
    pub(super) fn spend(&mut self, blocks: usize, handed_over: bool) {
        let mut spent = self.split(blocks);
        if handed_over {
            spent.blocks = 0;
        }
    }
}

impl Drop for QuotaCharge {
    fn drop(&mut self) {
        if let Some(holdings) = &self.holdings {
            holdings.unreserve(self.blocks);
        }
    }
}

impl PrefixCache {
    /// Sets the limits of a namespace, from now on.
    ///
    /// Blocks cached beyond a limit are evicted by the next insert into a namespace with such a limit, by the next
    /// eviction (before all other victims), and by [`settle`](Self::settle) or [`run_once`](Self::run_once); a background
    /// evictor is called at once. Of several namespaces beyond their limits, the one whose limit was set first loses
    /// blocks first. A namespace with a quota is kept when it is empty. Clearing it keeps the quota, and its old blocks
    /// that are still leased count; dropping it ends both.
    ///
    /// Waits its turn if another thread is evicting. The first limit of a namespace that has cached blocks sorts all
    /// candidates for eviction anew, in slices, as [`set_policy`](Self::set_policy) does.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PrefixCache, Quota, ReserveError};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// let tenant = cache.namespace(&["tenant-7"]);
    /// cache.set_quota(&tenant, Quota::default().cached_blocks(256).pinned_blocks(64));
    ///
    /// let session = cache.session();
    /// let fill = session.reserve_in(&tenant, 60).expect("within the quota");
    /// let refused = session.reserve_in(&tenant, 5).expect_err("beyond it");
    /// assert_eq!(refused, ReserveError::OverQuota { requested: 5, pinned: 60, limit: 64 });
    /// # drop(fill);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn set_quota(&self, namespace: &Namespace, quota: Quota) {
        self.inner.namespaces.check(namespace);
        self.inner.evicting(|evictor, resources| {
            if namespace.0.root(resources.guard).is_some() {
                evictor.set_quota(&namespace.0.holdings, quota, resources);
            }
        });
        if let Some(background) = self.inner.background.get() {
            background.changes_pending();
        }
    }

    /// Numbers of one namespace. Never waits; brings the counts up to date first, unless another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let tenant = cache.namespace(&["tenant-7"]);
    /// let filling = cache.session().reserve_in(&tenant, 3)?;
    /// let stats = cache.namespace_stats(&tenant);
    /// assert_eq!((stats.cached_blocks, stats.reserved_blocks), (0, 3));
    /// # drop(filling);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespace_stats(&self, namespace: &Namespace) -> NamespaceStats {
        self.inner.namespaces.check(namespace);
        self.inner.settle_by(|| self.inner.evictor.try_lock());
        let holdings = &namespace.0.holdings;
        NamespaceStats {
            cached_blocks: holdings.cached(),
            protected_blocks: holdings.protected(),
            reserved_blocks: holdings.reserved(),
            quota: Quota { cached_blocks: holdings.cached_limit(), pinned_blocks: holdings.pinned_limit() },
        }
    }
}

impl Session {
    /// As [`reserve`](Self::reserve), for blocks that will be inserted into `namespace`: they count against its
    /// [`Quota::pinned_blocks`] until they are cached there or given back. See [`PrefixCache::set_quota`] for an example.
    ///
    /// If the namespace has that limit, this takes the evictor's lock, so that the answer is exact.
    ///
    /// # Errors
    ///
    /// [`ReserveError::OverQuota`] if the namespace would have more blocks in leases and reservations than its limit;
    /// nothing was evicted. Else as `reserve`.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    pub fn reserve_in(&self, namespace: &Namespace, blocks: usize) -> Result<Reservation, ReserveError> {
        let inner = &**self.strong_refs.inner();
        inner.namespaces.check(namespace);
        inner.check_request(blocks)?;
        let charge = inner.charge(&namespace.0.holdings, blocks)?;
        crate::sync::point!("quota::charged");
        let mut reservation = self.reserve(blocks)?;
        reservation.charge = charge;
        Ok(reservation)
    }
}

impl Inner {
    /// Charges blocks that are about to be reserved to the namespace, if it may have them.
    fn charge(&self, holdings: &Arc<Holdings>, blocks: usize) -> Result<QuotaCharge, ReserveError> {
        match holdings.pinned_limit() {
            None => holdings.reserve(blocks),
            Some(limit) => {
                self.evicting(|evictor, resources| charge_within(limit, holdings, blocks, evictor, resources))?;
            }
        }
        Ok(QuotaCharge { holdings: Some(Arc::clone(holdings)), blocks })
    }

    /// Evicts what namespaces have beyond their quotas, unless another thread is evicting.
    #[cold]
    pub(super) fn keep_to_quotas(&self, entries: usize) {
        if let Some(background) = self.background.get() {
            background.changes_pending();
        } else {
            self.try_evicting(|evictor, resources| {
                let mut entries = entries;
                evictor.drain(&mut entries, resources);
                evictor.keep_to_quotas(&mut entries, resources);
            });
        }
    }
}

fn charge_within(
    limit: usize,
    holdings: &Holdings,
    requested: usize,
    evictor: &mut Evictor,
    resources: Resources<'_>,
) -> Result<(), ReserveError> {
    // All changes, even with a background evictor: a lease that was not taken in yet would not count.
    evictor.settle(resources);
    // Read once: reservations may be dropped between two reads.
    let pinned = holdings.protected() + holdings.reserved();
    if pinned + requested > limit {
        return Err(ReserveError::OverQuota { requested, pinned, limit });
    }
    holdings.reserve(requested);
    Ok(())
}
