//! Quotas: how much of the cache a namespace may have, so that one tenant cannot hold all of it.

use super::evictor::{Evictor, Resources};
use super::{Inner, Namespace, PrefixCache, Reservation, ReserveError, Session};
use crate::sync::Arc;
use crate::tree::Holdings;

/// How many blocks a namespace may have; [`PrefixCache::set_quota`].
///
/// With both limits a namespace never has more than their sum in leases and reservations at once, whatever its requests
/// do: blocks are cached only out of reservations, which `pinned_blocks` bounds, and leases are only on what is cached,
/// which `cached_blocks` bounds as soon as nothing protects it. With `cached_blocks` alone its reservations are not
/// bounded, with `pinned_blocks` alone it can lease all that it has cached in the course of time.
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

/// Numbers of one namespace; [`PrefixCache::namespace_stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NamespaceStats {
    /// Blocks cached, as of the last settling.
    pub cached_blocks: usize,
    /// Those of them that a lease protects.
    pub protected_blocks: usize,
    /// Blocks of reservations made with [`Session::reserve_in`], or inserted from them since the last settling.
    pub reserved_blocks: usize,
    /// What it may have.
    pub quota: Quota,
}

/// The blocks of a reservation, counted with a namespace until they are cached or given back.
#[derive(Debug, Default)]
pub(super) struct QuotaCharge {
    holdings: Option<Arc<Holdings>>,
    blocks: usize,
}

impl QuotaCharge {
    /// A claim on some of the same blocks; of as many as it has.
    pub(super) fn split(&mut self, blocks: usize) -> Self {
        let Some(holdings) = &self.holdings else {
            return Self::default();
        };
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Self { holdings: Some(Arc::clone(holdings)), blocks }
    }

    /// A claim on the same blocks, which count once more: whoever lets go of them last is not known before.
    pub(super) fn fork(&self) -> Self {
        if let Some(holdings) = &self.holdings {
            holdings.reserve(self.blocks);
        }
        Self { holdings: self.holdings.clone(), blocks: self.blocks }
    }

    /// Whether both can be one claim: they count with one namespace, or one of them with none.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        other.holdings.as_ref().is_none_or(|theirs| self.holdings.is_none() || self.is_of(theirs))
    }

    /// Takes over another's blocks; the two [go](Self::goes_with) together.
    pub(super) fn append(&mut self, mut other: Self) {
        let Some(holdings) = other.holdings.take() else { return };
        self.holdings = Some(holdings);
        self.blocks += other.blocks;
    }

    /// Blocks that it counts with `holdings`.
    pub(super) fn blocks_of(&self, holdings: &Arc<Holdings>) -> usize {
        if self.is_of(holdings) { self.blocks } else { 0 }
    }

    /// Whether it counts with `holdings`.
    pub(super) fn is_of(&self, holdings: &Arc<Holdings>) -> bool {
        self.holdings.as_ref().is_some_and(|own| Arc::ptr_eq(own, holdings))
    }

    /// So many of the blocks are cached now; `handed_over` if their run goes on counting them until it is in the
    /// accounts.
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
    /// Limits what a namespace may have, from now on.
    ///
    /// What is cached beyond the limit goes at the next insert into a namespace with such a limit, at the next eviction
    /// (which takes victims there before all others), and with [`settle`](Self::settle) or
    /// [`run_once`](Self::run_once); a background evictor is called at once. Of several namespaces beyond their limits
    /// the one that was limited first pays first. A namespace with a quota is not forgotten when it is empty. Clearing
    /// keeps the quota, and blocks of before that are still leased count; dropping ends both.
    ///
    /// Waits its turn if another thread is evicting. Limiting a namespace in which something is cached sorts the
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

    /// Numbers of one namespace. Never waits; settles the accounts first if no other thread is evicting.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
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
    /// [`reserve`](Self::reserve) for what will be inserted into `namespace`: the blocks count against its
    /// [`Quota::pinned_blocks`] until they are cached there or given back.
    ///
    /// Where that is limited it takes the evictor's lock, so that the answer is exact; else as `reserve`.
    ///
    /// # Errors
    ///
    /// [`ReserveError::OverQuota`] if the namespace would have more in leases and reservations than it may; nothing was
    /// evicted. Else as `reserve`.
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
    /// Counts blocks that are about to be reserved, if the namespace may have them.
    fn charge(&self, holdings: &Arc<Holdings>, blocks: usize) -> Result<QuotaCharge, ReserveError> {
        match holdings.pinned_limit() {
            None => holdings.reserve(blocks),
            Some(limit) => {
                self.evicting(|evictor, resources| charge_within(limit, holdings, blocks, evictor, resources))?;
            }
        }
        Ok(QuotaCharge { holdings: Some(Arc::clone(holdings)), blocks })
    }

    /// Sees to it that no namespace has more cached than it may, if nobody else does.
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
    // All of it, whoever evicts: a lease that was not taken in yet would not count.
    evictor.settle(resources);
    // Read once: reservations may be let go between two looks.
    let pinned = holdings.protected() + holdings.reserved();
    if pinned + requested > limit {
        return Err(ReserveError::OverQuota { requested, pinned, limit });
    }
    holdings.reserve(requested);
    Ok(())
}
