//! A policy is an order of candidates: the smallest key is evicted first, and demoted candidates
//! before all others.
//!
//! Filing at an end of the order takes constant time, filing between others logarithmic time
//! ([`Order`]). Filing again replaces the entry, so a candidate has only one. The serial number
//! orders equal keys, so replicas with the same log make the same evictions. Candidates of a group
//! are also in a map by group and key.

use std::fmt;

use super::candidate::{CandidateEntry, CandidateId, CandidateStats, QuotaGroup};
use super::order::{CandidateRank, CandidateTable, Order, RankKey};

/// Computes a key from the stats; the number is the threshold of `slru`.
pub(crate) type RankBy = fn(CandidateStats, u32) -> (u64, u64);

impl RankKey {
    /// Its key in `grouped`, demoted ones first in a group.
    fn in_group(&self) -> Option<(u64, CandidateRank)> {
        self.group.map(|group| (group.number() << 1 | u64::from(!self.demoted), self.rank))
    }
}

/// The order in which idle prefixes are evicted: by the key that `rank_by` computes, demoted ones
/// before all others.
///
/// A candidate is the end point of a run, idle or silent. The evictor files it once, files it again
/// when its stats have changed, and removes it before a trim or when it turns out to be held.
pub(crate) struct Policy {
    rank_by: RankBy,
    /// The threshold of `slru`, for `rank_by`.
    uses: u32,
    order: Order,
    /// The candidates that have a group, by group and then in the same order.
    grouped: CandidateTable,
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("filed", &self.len()).finish_non_exhaustive()
    }
}

impl Policy {
    pub(crate) fn by(rank_by: RankBy, uses: u32) -> Self {
        Self { rank_by, uses, order: Order::default(), grouped: CandidateTable::new() }
    }

    fn key(&self, stats: CandidateStats, entry: CandidateEntry) -> RankKey {
        RankKey { rank: ((self.rank_by)(stats, self.uses), entry.serial), demoted: stats.demoted, group: entry.group }
    }

    /// Files `candidate`, or files it again under its present stats.
    pub(crate) fn file(&mut self, candidate: CandidateId, stats: CandidateStats, entry: CandidateEntry) {
        let key = self.key(stats, entry);
        let before = self.order.file(candidate, key);
        if before == Some(key) {
            return;
        }
        if let Some(in_group) = before.and_then(|before| before.in_group()) {
            self.grouped.remove(&in_group);
        }
        if let Some(in_group) = key.in_group() {
            self.grouped.insert(in_group, candidate);
        }
    }

    /// Removes `candidate`; does nothing if it is not filed.
    #[inline]
    pub(crate) fn remove(&mut self, candidate: CandidateId) {
        if let Some(in_group) = self.order.key(candidate).and_then(RankKey::in_group) {
            self.grouped.remove(&in_group);
        }
        self.order.remove(candidate);
    }

    /// The candidate to evict next; it stays filed.
    #[inline]
    pub(crate) fn choose(&self) -> Option<CandidateId> {
        self.order.first()
    }

    /// The first `most` candidates in the order; they stay filed.
    pub(crate) fn first(&self, most: usize) -> impl Iterator<Item = CandidateId> {
        self.order.iter().take(most)
    }

    /// Whether `candidate` is filed under these stats.
    #[inline]
    pub(crate) fn is_under(&self, candidate: CandidateId, stats: CandidateStats, entry: CandidateEntry) -> bool {
        self.order.key(candidate) == Some(&self.key(stats, entry))
    }

    /// The rank of `candidate`, comparable with ranks in other orders of the same kind.
    pub(crate) fn place(&self, candidate: CandidateId) -> Option<(bool, CandidateRank)> {
        self.order.key(candidate).map(|key| (!key.demoted, key.rank))
    }

    /// The candidate that is `places` (at least one) behind `candidate`, among those in the same
    /// structure.
    #[inline]
    pub(crate) fn behind(&self, candidate: CandidateId, places: usize) -> Option<CandidateId> {
        self.order.behind(candidate, places)
    }

    /// Prefetches the data of `candidate`.
    #[inline]
    pub(crate) fn prefetch(&self, candidate: CandidateId) {
        self.order.prefetch(candidate);
    }

    /// Prefetches the place of `candidate` in the order, which changes when it is filed again.
    pub(crate) fn prefetch_place(&self, candidate: CandidateId) {
        self.order.prefetch_place(candidate);
    }

    /// Prefetches the data of the first and the last candidate in the order, for writing.
    #[inline]
    pub(crate) fn prefetch_ends(&self) {
        self.order.prefetch_ends();
    }

    /// The first candidate of a group; it stays filed.
    pub(crate) fn choose_of(&self, group: QuotaGroup) -> Option<CandidateId> {
        let mut from = self.grouped.range((group.number() << 1, CandidateRank::default())..);
        from.next().filter(|((of, _), _)| of >> 1 == group.number()).map(|(_, candidate)| *candidate)
    }

    /// Number of filed candidates.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Frees the data of up to `candidates` candidates, of a policy that was replaced; returns
    /// whether all is freed.
    pub(crate) fn discard(&mut self, candidates: usize) -> bool {
        for _ in 0..candidates {
            if self.grouped.pop_first().is_none() {
                break;
            }
        }
        self.order.discard(candidates) && self.grouped.is_empty()
    }

    /// Whether `candidate` is filed under `stats`, or, if it `may_be_early`, under an earlier key.
    /// For `validate`.
    pub(crate) fn is_filed(
        &self,
        candidate: CandidateId,
        stats: CandidateStats,
        entry: CandidateEntry,
        may_be_early: bool,
    ) -> bool {
        let key = self.key(stats, entry);
        self.order.key(candidate).is_some_and(|filed| {
            let is_grouped = || filed.in_group().is_none_or(|place| self.grouped.get(&place) == Some(&candidate));
            let is_early = || (!filed.demoted, filed.rank) <= (!key.demoted, key.rank) && filed.group == key.group;
            (*filed == key || (may_be_early && is_early())) && is_grouped()
        })
    }

    /// Files `candidate` under a group that its key does not name. For tests of `validate`.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self, candidate: CandidateId) {
        self.grouped.insert((QuotaGroup::at(0).number() << 1 | 1, CandidateRank::default()), candidate);
    }

    /// Whether the structure's own invariants hold. For `validate`.
    pub(crate) fn is_sound(&self) -> bool {
        let key = |candidate| self.order.key(candidate);
        let in_groups = self.order.iter().filter(|candidate| key(*candidate).is_some_and(|key| key.group.is_some()));
        in_groups.count() == self.grouped.len()
            && self.order.is_sound()
            && self.grouped.iter().all(|(place, candidate)| key(*candidate).and_then(RankKey::in_group) == Some(*place))
    }
}

#[cfg(test)]
mod tests;
