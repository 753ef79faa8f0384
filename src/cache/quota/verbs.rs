//! Setting quotas, and reserving within them.

use super::{NamespaceStats, Quota, QuotaCharge};
use crate::cache::block_request::BlockRequest;
use crate::cache::evictor::{Evictor, QuotaPass, Resources};
use crate::cache::inner::{Inner, Patience, STEP};
use crate::cache::namespace::Namespace;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::reservation::{Reservation, ReserveError};
use crate::cache::session::Session;
use crate::sync::Arc;
use crate::tree::Holdings;

impl PrefixCache {
    /// Sets the limits of a namespace, from now on.
    ///
    /// Blocks cached beyond a limit are evicted by the next insert into a namespace with such a limit, by the next
    /// eviction (before all other victims), and by [`settle`](Self::settle) or [`run_once`](Self::run_once); a background
    /// evictor is called at once. Of several namespaces beyond their limits, the one whose limit was set first loses
    /// blocks first. A namespace with a quota is kept when it is empty. Clearing it keeps the quota, and its old blocks
    /// that are still leased count; dropping it ends both.
    ///
    /// A request that waits for blocks is refused if the new limit is lower than what it asks for; a request of a
    /// scheduler (feature `scheduler`) that has become too long for its namespace waits until it is aborted or the limit is raised.
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
        // A request that waits for its quota may have it now.
        self.inner.ring();
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
        self.inner.settle_by(Patience::Tries);
        let holdings = &namespace.0.holdings;
        let (cached_blocks, pinned_blocks) = holdings.both_limits();
        NamespaceStats {
            cached_blocks: holdings.cached(),
            protected_blocks: holdings.protected(),
            reserved_blocks: holdings.reserved(),
            quota: Quota { cached_blocks, pinned_blocks, time_to_idle: holdings.time_to_idle() },
            lookups: self.inner.lookups_of(holdings),
        }
    }
}

impl Session {
    /// [`reserve`](Self::reserve) of a request that `namespace` pays for: `BlockRequest::new(blocks).paid_by(namespace)`.
    ///
    /// # Errors
    ///
    /// As `reserve`.
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
    /// cache.set_quota(&tenant, Quota::default().pinned_blocks(64));
    /// let session = cache.session();
    /// let filling = session.reserve_in(&tenant, 60)?;
    /// let refused = session.reserve_in(&tenant, 5).unwrap_err();
    /// assert_eq!(refused, ReserveError::OverQuota { requested: 5, pinned: 60, limit: 64 });
    /// # drop(filling);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve_in(&self, namespace: &Namespace, blocks: usize) -> Result<Reservation, ReserveError> {
        self.reserve(BlockRequest::new(blocks).paid_by(namespace))
    }
}

impl Inner {
    /// Charges so many blocks that were taken to a namespace, if it may have them.
    fn charge_to(&self, holdings: &Arc<Holdings>, blocks: usize) -> Result<QuotaCharge, OverQuota> {
        if holdings.pinned_limit().is_none() {
            return Ok(QuotaCharge::of(holdings, blocks));
        }
        let turn = |evictor: &mut Evictor, resources: Resources<'_>| {
            let may = evictor.may_charge(holdings, blocks, resources)?;
            Ok(may.then(|| QuotaCharge::of(holdings, blocks)))
        };
        let mut charged = self.settled(turn)?;
        loop {
            if let Some(charge) = charged {
                // As in `take_within`.
                self.ring();
                return Ok(charge);
            }
            charged = self.in_turn(turn)?;
        }
    }

    /// Whether the limit of a waiter's namespace allows what it asks for.
    pub(in crate::cache) fn look_at_quota(&self, holdings: &Holdings, blocks: usize) -> Result<(), OverQuota> {
        self.evicting(|evictor, resources| {
            evictor.settle_for_waiter(resources);
            holdings.check_charge(blocks)
        })
    }

    /// Wakes those that wait for a quota, after a charge has ended without blocks being given back. Called with no lock held.
    #[cold]
    pub(in crate::cache) fn charge_ended(&self) {
        // The releaser's side of E16 and E21.
        self.sink().free_for_waiter();
        self.ring();
    }

    /// Lets the namespace with these counts pay for all blocks of a reservation, if it has a limit on them: before they are
    /// inserted there. Nothing if there is nothing to move.
    #[inline]
    pub(in crate::cache) fn move_charge(
        &self,
        reservation: &mut Reservation,
        holdings: &Arc<Holdings>,
    ) -> Result<Option<Moved>, OverQuota> {
        if reservation.is_plain() && holdings.pinned_limit().is_none() {
            return Ok(None);
        }
        self.move_charge_of(reservation, holdings).map(Some)
    }

    fn move_charge_of(&self, reservation: &mut Reservation, holdings: &Arc<Holdings>) -> Result<Moved, OverQuota> {
        let charge = &mut reservation.charge;
        let here = charge.is_of(holdings);
        let unpaid = reservation.blocks.len() - charge.blocks_of(holdings);
        if unpaid == 0 || holdings.pinned_limit().is_none() {
            // Without a limit nothing is counted here; where another namespace paid, that ends.
            let from = (!here && charge.blocks > 0).then(|| std::mem::take(charge));
            return Ok(Moved { from, added: 0 });
        }
        let moved = self.charge_to(holdings, unpaid)?;
        if here || charge.blocks == 0 {
            charge.append(moved);
            return Ok(Moved { from: None, added: unpaid });
        }
        Ok(Moved { from: Some(std::mem::replace(charge, moved)), added: unpaid })
    }

    /// Evicts what namespaces have beyond their quotas by the changes made before the call, in turns, unless another thread is
    /// evicting.
    #[cold]
    pub(in crate::cache) fn keep_to_quotas(&self) {
        if let Some(background) = self.background.get() {
            background.changes_pending();
            return;
        }
        let (mut goal, mut pass) = (None, QuotaPass::default());
        let turn = |evictor: &mut Evictor, resources: Resources<'_>| {
            let mut entries = usize::MAX;
            !evictor.settle_towards(&mut goal, STEP, resources)
                || evictor.keep_to_quotas(&mut pass, &mut entries, resources)
        };
        self.while_evicting(turn);
    }
}

/// A charge that was moved to the namespace into which blocks are inserted.
#[must_use]
pub(in crate::cache) struct Moved {
    /// What another namespace had paid.
    from: Option<QuotaCharge>,
    /// Blocks that were charged in addition.
    added: usize,
}

impl Reservation {
    /// Whether no namespace pays for any of its blocks, and none was forked.
    #[inline]
    fn is_plain(&self) -> bool {
        self.charge.holdings.is_none() && self.shared.0.is_empty()
    }

    /// Nothing was inserted: those pay that paid before.
    pub(in crate::cache) fn undo(&mut self, moved: Option<Moved>) {
        match moved {
            Some(Moved { from: Some(from), .. }) => self.charge = from,
            Some(Moved { from: None, added }) => drop(self.charge.split(added)),
            None => {}
        }
    }

    /// What is left in it was not needed for an insert: those pay for it that paid before. Whether a charge has ended that was
    /// not taken over.
    #[inline]
    pub(in crate::cache) fn keep_for_duplicates(&mut self, moved: Option<Moved>) -> bool {
        moved.is_some_and(|moved| self.keep_moved(moved))
    }

    fn keep_moved(&mut self, moved: Moved) -> bool {
        let of_inserted = self.shared.split_off(self.blocks.len());
        let counted = self.shared.counted();
        let ends = moved.from.is_some() || of_inserted.counted() > 0;
        match moved.from {
            Some(mut from) => self.charge = from.split(self.blocks.len() - counted),
            None if moved.added > 0 => drop(self.charge.split(counted)),
            None => {}
        }
        ends
    }
}

/// More blocks than a namespace may have in leases and reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) struct OverQuota {
    pub(in crate::cache) requested: usize,
    pub(in crate::cache) pinned: usize,
    pub(in crate::cache) limit: usize,
}

impl From<OverQuota> for ReserveError {
    fn from(OverQuota { requested, pinned, limit }: OverQuota) -> Self {
        Self::OverQuota { requested, pinned, limit }
    }
}

impl Evictor {
    /// Whether a namespace may be charged for so many blocks, once what it has cached beyond its other limit is evicted: that
    /// might be leased afterwards. False if more turns are needed for that.
    pub(in crate::cache) fn may_charge(
        &mut self,
        holdings: &Holdings,
        blocks: usize,
        resources: Resources<'_>,
    ) -> Result<bool, OverQuota> {
        self.look_again(resources, |_| holdings.check_charge(blocks))?;
        if self.keep_to_quota(holdings, resources) {
            return Ok(false);
        }
        // Again: a victim may have been leased.
        holdings.check_charge(blocks).map(|()| true)
    }
}

impl Holdings {
    /// Refuses what the limit can never allow.
    pub(in crate::cache) fn check_limit(&self, requested: usize) -> Result<(), OverQuota> {
        match self.pinned_limit() {
            Some(limit) if requested > limit => {
                Err(OverQuota { requested, pinned: self.protected() + self.reserved(), limit })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a charge that the limit does not allow; under the evictor's lock.
    pub(in crate::cache) fn check_charge(&self, requested: usize) -> Result<(), OverQuota> {
        // Each read once: reservations may be dropped between two reads.
        let (pinned, limit) = (self.protected() + self.reserved(), self.pinned_limit().unwrap_or(usize::MAX));
        if requested > limit.saturating_sub(pinned) {
            return Err(OverQuota { requested, pinned, limit });
        }
        Ok(())
    }
}
