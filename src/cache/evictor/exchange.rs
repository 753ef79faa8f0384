//! Exchanging the eviction policy while the cache is in use.
//!
//! The new order is built beside the old one, a slice at each turn of the evictor. Candidates are
//! moved by *slot*, the number under which the ranking keeps them ([`CandidateId`]). Until the new
//! order is complete, every choice uses the old one. A candidate whose slot has been moved is filed
//! with both policies and removed from both; one whose slot has not been moved yet is filed with
//! the new policy when its slot is reached. So both have the same candidates when the last slot has
//! been moved; then the new policy takes effect. Its order is as if the cache had always had it,
//! because candidates with equal stats are ordered by serial number, which no policy changes. (With
//! several shards, `level` may rank runs as too shallow: `take_run_in`.) The replaced policy is
//! freed in slices as well.
//!
//! There are never more slots than blocks, so an exchange ends, however many candidates are filed
//! and unfiled meanwhile.
//!
//! `cache::settings` begins an exchange. Each reservation that evicts does a slice of it, as do
//! `settle`, `run_once` and the background evictor. So an exchange needs no thread of its own, and
//! with one thread its progress depends only on the calls.

use super::{Evictor, Ranking, Resources};
use crate::cache::numbers::stats::Total;
use crate::policy::{CandidateEntry, CandidateId, CandidateStats, Policy, PolicyKind};
use crate::sync::model_size;

/// How many candidates one slice moves: several hundred microseconds of work among a million of
/// them. Other work has slices of the same size.
pub(in crate::cache) const SLICE: usize = if cfg!(radixkv_chaos) { 4 } else { model_size(64, 1) };

/// The most slices in which `set_policy` completes an exchange itself: 256 candidates.
pub(in crate::cache) const FEW_SLICES: usize = model_size(4, 1);

/// The exchange in progress, and the policies that are still to be freed.
#[derive(Debug, Default)]
pub(in crate::cache) struct Exchange {
    pub(in crate::cache) incoming: Option<Incoming>,
    /// Policies that were replaced, or abandoned halfway.
    spent: Vec<Policy>,
    /// Exchanges begun so far.
    pub(in crate::cache) begun: u64,
}

/// The policy that candidates are being moved to.
#[derive(Debug)]
pub(in crate::cache) struct Incoming {
    kind: PolicyKind,
    pub(in crate::cache) policy: Policy,
    /// Slots below this have been moved.
    pub(in crate::cache) moved: usize,
}

impl Exchange {
    /// The incoming policy, if `slot` has been moved to it.
    fn incoming(&mut self, slot: CandidateId) -> Option<&mut Policy> {
        let incoming = self.incoming.as_mut().filter(|incoming| slot.index() < incoming.moved)?;
        Some(&mut incoming.policy)
    }

    pub(super) fn file(&mut self, slot: CandidateId, stats: CandidateStats, entry: CandidateEntry) {
        if let Some(policy) = self.incoming(slot) {
            policy.file(slot, stats, entry);
        }
    }

    pub(super) fn remove(&mut self, slot: CandidateId) {
        if let Some(policy) = self.incoming(slot) {
            policy.remove(slot);
        }
    }

    /// The number of candidates in policies that were replaced or abandoned.
    #[cfg(test)]
    pub(in crate::cache) fn spent(&self) -> usize {
        self.spent.iter().map(|policy| policy.len()).sum()
    }

    /// Whether work is left.
    pub(in crate::cache) fn is_pending(&self) -> bool {
        self.incoming.is_some() || !self.spent.is_empty()
    }
}

impl Ranking {
    /// The active policy after the exchange in progress.
    pub(super) fn coming(&self) -> PolicyKind {
        self.exchange.incoming.as_ref().map_or(self.kind, |incoming| incoming.kind)
    }

    fn begin(&mut self, kind: PolicyKind) {
        if self.coming() == kind {
            return;
        }
        self.exchange.begun += 1;
        self.exchange.spent.extend(self.exchange.incoming.take().map(|given_up| given_up.policy));
        if self.kind != kind {
            self.exchange.incoming = Some(Incoming { kind, policy: kind.build(), moved: 0 });
        }
    }

    /// Whether every slot has been moved to the incoming policy.
    fn is_moved(&self) -> bool {
        self.exchange.incoming.as_ref().is_some_and(|incoming| incoming.moved >= self.slots().len())
    }

    /// Makes the incoming policy the active one.
    fn conclude(&mut self) {
        if let Some(incoming) = self.exchange.incoming.take() {
            self.kind = incoming.kind;
            self.exchange.spent.push(std::mem::replace(&mut self.policy, incoming.policy));
        }
    }
}

impl Evictor<'_> {
    /// Begins an exchange for `kind`.
    pub(in crate::cache) fn begin_exchange(&mut self, kind: PolicyKind) {
        self.shards_mut().for_each(|shard| shard.ranking.begin(kind));
        self.conclude();
    }

    /// In each shard, moves up to `candidates` slots and frees up to twice as many candidates of
    /// replaced policies; returns true if more is left.
    pub(in crate::cache) fn advance_exchange(&mut self, candidates: usize, resources: Resources<'_>) -> bool {
        let mut keeps = false;
        for place in 0..self.len() {
            // Twice as many are freed as are moved, so replaced policies do not pile up however
            // often policies change.
            let spent = &mut self.at_mut(place).ranking.exchange.spent;
            if spent.last_mut().is_some_and(|policy| policy.discard(2 * candidates)) {
                spent.pop();
            }
            keeps |= self.at_mut(place).ranking.discard_spent(2 * candidates);
            self.work_on(place);
            self.move_candidates(candidates, resources);
        }
        self.conclude();
        self.shards().any(|shard| shard.ranking.exchange.is_pending()) || keeps
    }

    /// Makes the incoming policy the active one if every slot of every shard has been moved.
    fn conclude(&mut self) {
        if self.shards().all(|shard| shard.ranking.is_moved()) {
            self.shards_mut().for_each(|shard| {
                shard.ranking.conclude();
                shard.totals.set(Total::Policy, shard.ranking.kind.code());
            });
        }
    }

    fn move_candidates(&mut self, candidates: usize, resources: Resources<'_>) {
        for _ in 0..candidates {
            let Some(incoming) = &self.ranking.exchange.incoming else { return };
            let at = incoming.moved;
            if at >= self.ranking.slots().len() {
                return;
            }
            let slot = CandidateId::at(at);
            // A leased candidate is unfiled, which vacates its slot.
            let candidate = self.ranking.at(slot).map(|candidate| candidate.get(resources.guard));
            let candidate = candidate.filter(|point| self.silence(*point, resources));
            let filed = candidate.map(|point| (self.candidate_stats(point, resources).0, self.entry(point)));
            if let Some((stats, entry)) = filed.filter(|_| !self.ranking.is_lazy()) {
                // Also in the old order: a candidate that is not silent must be filed under its
                // current key.
                self.ranking.file(slot, stats, entry);
            }
            if let Some(incoming) = &mut self.ranking.exchange.incoming {
                if let Some((stats, entry)) = filed {
                    incoming.policy.file(slot, stats, entry);
                }
                incoming.moved += 1;
            }
        }
    }
}
