//! Setting quotas, and charging namespaces for blocks.

use super::{Quota, QuotaCharge};
use crate::cache::blocks::reservation::{Reservation, ReserveError};
use crate::cache::evictor::{Evictor, QuotaPass, Resources, SortGoal, runs_below};
use crate::cache::inner::{Inner, STEP};
use crate::cache::namespaces::namespace::Namespace;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::session::Near;
use crate::cache::turn::LockMode;
use crate::sync::Arc;
use crate::tree::NamespaceAccount;

pub(in crate::cache) fn set_quota(cache: &PrefixCache, namespace: &Namespace, quota: Quota) {
    cache.inner.evicting(|evictor, resources| {
        if namespace.0.root(resources.guard).is_some() {
            evictor.set_quota(&namespace.0.account, quota, resources);
        }
    });
    if quota.pinned_blocks.is_some() {
        cache.inner.listen_to_namespace(namespace);
    }
    if let Some(background) = cache.inner.background.get() {
        background.changes_pending();
    }
    // A request that waits for its quota may be allowed now.
    cache.inner.ring();
}

impl Inner {
    /// Charges `blocks` blocks, which are taken already, to a namespace if its limit allows it.
    fn charge_to(&self, account: &Arc<NamespaceAccount>, blocks: usize) -> Result<QuotaCharge, OverQuota> {
        if account.pinned_limit().is_none() {
            return Ok(QuotaCharge::of(account, blocks));
        }
        let mut sorting = SortGoal::default();
        let mut turn = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
            let may = evictor.may_charge(account, blocks, &mut sorting, resources)?;
            Ok(may.then(|| QuotaCharge::of(account, blocks)))
        };
        let mut charged = self.settled(&mut turn)?;
        loop {
            if let Some(charge) = charged {
                // For the reason given in `reserve_with_quota`.
                self.ring();
                return Ok(charge);
            }
            charged = self.in_turn(&mut turn)?;
        }
    }

    /// Puts every lease of a namespace into the accounts; from then on the evictor must learn of
    /// its leases.
    pub(in crate::cache) fn listen_to_namespace(&self, namespace: &Namespace) {
        let participant = self.participant();
        // Pinned throughout: runs that other threads evict meanwhile stay readable.
        let guard = participant.pin();
        let Some(root) = namespace.0.root(&guard) else { return };
        let (runs, _) = runs_below(root, usize::MAX, &guard);
        let runs: Vec<_> = runs.into_iter().map(|run| run.link()).collect();
        for slice in runs.chunks(STEP) {
            self.in_turn(|evictor, resources| {
                evictor.listen_to_all(slice.iter().map(|run| run.get(resources.guard)), resources);
            });
        }
    }

    /// Returns an error if the limit of a waiter's namespace does not allow its request.
    pub(in crate::cache) fn look_at_quota(&self, account: &NamespaceAccount, blocks: usize) -> Result<(), OverQuota> {
        self.evicting(|evictor, resources| {
            evictor.settle_for_waiter(resources);
            account.check_charge(blocks)
        })
    }

    /// Wakes requests that wait for a quota, after a charge has ended without blocks being given
    /// back. Called with no lock held.
    #[cold]
    pub(in crate::cache) fn charge_ended(&self) {
        // The releaser's side of E16 and E21.
        self.sink().free_for_waiter();
        self.ring();
    }

    /// Wakes requests that wait for the quota of `account`, after the charge for an attempt that took
    /// no block has ended. Only if it has a limit, which was set after the attempt was charged: a
    /// waiter without one must not wake itself.
    #[cold]
    pub(in crate::cache) fn charge_refused(&self, account: &NamespaceAccount) {
        // The releaser's side of E21. A waiter that looked before this has seen the charge and the
        // limit, so this thread sees the limit and the waiter.
        self.sink().free_for_waiter();
        if account.pinned_limit().is_some() {
            self.ring();
        }
    }

    /// Charges all blocks of a reservation to the namespace with this account, if that has a limit,
    /// before they are inserted there. `None` if there is nothing to move.
    #[inline]
    pub(in crate::cache) fn move_charge(
        &self,
        reservation: &mut Reservation,
        account: &Arc<NamespaceAccount>,
    ) -> Result<Option<Moved>, OverQuota> {
        if reservation.is_plain() && account.pinned_limit().is_none() {
            return Ok(None);
        }
        self.move_charge_of(reservation, account).map(Some)
    }

    fn move_charge_of(
        &self,
        reservation: &mut Reservation,
        account: &Arc<NamespaceAccount>,
    ) -> Result<Moved, OverQuota> {
        let charge = &mut reservation.charge;
        let here = charge.is_of(account);
        let unpaid = reservation.blocks.len() - charge.blocks_of(account);
        if unpaid == 0 || account.pinned_limit().is_none() {
            // Without a limit nothing is charged here, and a charge to another namespace ends.
            let from = (!here && charge.blocks > 0).then(|| std::mem::take(charge));
            return Ok(Moved { from, added: 0 });
        }
        let moved = self.charge_to(account, unpaid)?;
        if here || charge.blocks == 0 {
            charge.append(moved);
            return Ok(Moved { from: None, added: unpaid });
        }
        Ok(Moved { from: Some(std::mem::replace(charge, moved)), added: unpaid })
    }

    /// Takes in the changes made before the call and evicts blocks beyond quotas, in turns; leaves
    /// it to the background evictor, or to a thread that is evicting.
    #[cold]
    pub(in crate::cache) fn keep_to_quotas(&self) {
        if let Some(background) = self.background.get() {
            background.changes_pending();
            return;
        }
        let (mut goal, mut pass) = (None, QuotaPass::default());
        let mut turn = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
            let mut entries = usize::MAX;
            !evictor.settle_towards(&mut goal, STEP, resources)
                || evictor.keep_to_quotas(&mut pass, &mut entries, resources)
        };
        while self.turn(Near::default(), LockMode::Tries, &mut turn, |more| *more) == Some(true) {}
    }
}

/// A charge that was moved to the namespace into which blocks are inserted.
#[must_use]
pub(in crate::cache) struct Moved {
    /// The charge that another namespace had.
    from: Option<QuotaCharge>,
    /// Number of blocks that were charged in addition.
    added: usize,
}

impl Reservation {
    /// Whether no namespace pays for any of its blocks, and none was forked.
    #[inline]
    fn is_plain(&self) -> bool {
        self.charge.account.is_none() && self.shared.0.is_empty()
    }

    /// Restores the previous charge, after an insert that was refused.
    pub(in crate::cache) fn undo(&mut self, moved: Option<Moved>) {
        match moved {
            Some(Moved { from: Some(from), .. }) => self.charge = from,
            Some(Moved { from: None, added }) => drop(self.charge.split(added)),
            None => {}
        }
    }

    /// Restores the previous charge for the blocks that an insert did not need and that are left in
    /// the reservation. Returns whether a charge has ended that no run took over.
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

/// The error of a charge that exceeds a namespace's limit on blocks in leases and reservations.
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

impl Evictor<'_> {
    /// Checks whether a namespace may be charged for `blocks` blocks, and evicts its blocks beyond
    /// the limit on cached blocks, because they might be leased afterwards. `Ok(false)` if the
    /// eviction needs more turns.
    pub(in crate::cache) fn may_charge(
        &mut self,
        account: &NamespaceAccount,
        blocks: usize,
        sorting: &mut SortGoal,
        resources: Resources<'_>,
    ) -> Result<bool, OverQuota> {
        self.look_again(resources, |_| account.check_charge(blocks))?;
        if self.keep_to_quota(account, sorting, resources) {
            return Ok(false);
        }
        // Again: a victim may have been leased.
        account.check_charge(blocks).map(|()| true)
    }
}

impl NamespaceAccount {
    /// Refuses a request that the limit can never allow.
    pub(in crate::cache) fn check_limit(&self, requested: usize) -> Result<(), OverQuota> {
        match self.pinned_limit() {
            Some(limit) if requested > limit => {
                Err(OverQuota { requested, pinned: self.protected() + self.reserved(), limit })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a charge that the limit does not allow now; call it under the evictor's lock.
    pub(in crate::cache) fn check_charge(&self, requested: usize) -> Result<(), OverQuota> {
        // Each read once: reservations may be dropped between two reads.
        let (pinned, limit) = (self.protected() + self.reserved(), self.pinned_limit().unwrap_or(usize::MAX));
        if requested > limit.saturating_sub(pinned) {
            return Err(OverQuota { requested, pinned, limit });
        }
        Ok(())
    }
}
