//! Policies that are an order: the candidate with the smallest key goes first, and demoted candidates before all others.
//!
//! An ordered map from key to candidate. The victims are at its left edge, the last used at its right, so that evicting and
//! filing touch the same few nodes again and again, however many candidates there are; re-filing any other candidate is
//! logarithmic, and no entry is ever stale. The serial number orders equal keys, so two replicas with the same log evict
//! the same. Candidates of a group are in a second map too, by group and key.
//!
//! Tried an indexed 4-ary heap: every level of a removal writes the place of another candidate, ten cold lines at a
//! million candidates, and evicting a leaf took half as long again.

use std::collections::BTreeMap;
use std::fmt;

use super::candidate::{CandidateEntry, CandidateId, Policy, QuotaGroup, Standing};
use super::table::Table;

type RankBy = fn(Standing) -> (u64, u64);

/// A key, and the candidate's serial number, which breaks ties.
type CandidateRank = ((u64, u64), u64);

/// What a candidate is filed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankKey {
    rank: CandidateRank,
    demoted: bool,
    group: Option<QuotaGroup>,
}

impl RankKey {
    /// Its key among the candidates of its group: the demoted ones first.
    fn in_group(&self) -> Option<(QuotaGroup, bool, CandidateRank)> {
        self.group.map(|group| (group, !self.demoted, self.rank))
    }
}

/// Candidates in the order that `rank_by` gives.
pub(super) struct RankedCandidates {
    rank_by: RankBy,
    order: BTreeMap<CandidateRank, CandidateId>,
    /// The demoted ones, in the same order.
    demoted: BTreeMap<CandidateRank, CandidateId>,
    /// Those of groups, each group in the same order.
    grouped: BTreeMap<(QuotaGroup, bool, CandidateRank), CandidateId>,
    keys: Table<RankKey>,
}

impl fmt::Debug for RankedCandidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankedCandidates").field("filed", &self.len()).finish_non_exhaustive()
    }
}

impl RankedCandidates {
    pub(super) fn by(rank_by: RankBy) -> Self {
        let (order, demoted, grouped) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { rank_by, order, demoted, grouped, keys: Table::default() }
    }

    fn key(&self, standing: Standing, entry: CandidateEntry) -> RankKey {
        RankKey { rank: ((self.rank_by)(standing), entry.serial), demoted: standing.demoted, group: entry.group }
    }

    fn strike(&mut self, key: RankKey) {
        self.among(key.demoted).remove(&key.rank);
        if let Some(in_group) = key.in_group() {
            self.grouped.remove(&in_group);
        }
    }

    fn among(&mut self, demoted: bool) -> &mut BTreeMap<CandidateRank, CandidateId> {
        if demoted { &mut self.demoted } else { &mut self.order }
    }
}

impl Policy for RankedCandidates {
    fn file(&mut self, candidate: CandidateId, standing: Standing, entry: CandidateEntry) {
        let key = self.key(standing, entry);
        let before = self.keys.at(candidate.index()).replace(key);
        if before == Some(key) {
            return;
        }
        if let Some(before) = before {
            self.strike(before);
        }
        self.among(key.demoted).insert(key.rank, candidate);
        if let Some(in_group) = key.in_group() {
            self.grouped.insert(in_group, candidate);
        }
    }

    fn remove(&mut self, candidate: CandidateId) {
        if let Some(key) = self.keys.take(candidate.index()) {
            self.strike(key);
        }
    }

    fn choose(&mut self) -> Option<CandidateId> {
        let first = self.demoted.first_key_value().or_else(|| self.order.first_key_value());
        first.map(|(_, candidate)| *candidate)
    }

    fn following(&self) -> [Option<CandidateId>; 6] {
        let mut following = self.demoted.values().chain(self.order.values()).skip(1);
        std::array::from_fn(|_| following.next().copied())
    }

    fn prefetch(&self, candidate: CandidateId) {
        self.keys.prefetch(candidate.index());
    }

    fn choose_of(&self, group: QuotaGroup) -> Option<CandidateId> {
        let mut from = self.grouped.range((group, false, CandidateRank::default())..);
        from.next().filter(|((of, ..), _)| *of == group).map(|(_, candidate)| *candidate)
    }

    fn len(&self) -> usize {
        self.order.len() + self.demoted.len()
    }

    fn discard(&mut self, candidates: usize) -> bool {
        for _ in 0..candidates {
            let first = self.order.pop_first().or_else(|| self.demoted.pop_first());
            if first.is_none() && self.grouped.pop_first().is_none() {
                break;
            }
        }
        !self.keys.free_last(candidates) && self.len() == 0 && self.grouped.is_empty()
    }

    fn is_filed(&self, candidate: CandidateId, standing: Standing, entry: CandidateEntry) -> bool {
        let key = self.key(standing, entry);
        let grouped = key.in_group().is_none_or(|in_group| self.grouped.get(&in_group) == Some(&candidate));
        let order = if key.demoted { &self.demoted } else { &self.order };
        self.keys.get(candidate.index()) == Some(&key) && order.get(&key.rank) == Some(&candidate) && grouped
    }

    fn is_sound(&self) -> bool {
        let stands = |order: &BTreeMap<CandidateRank, CandidateId>, demoted| {
            order.iter().all(|(rank, candidate)| {
                self.keys.get(candidate.index()).is_some_and(|key| (key.rank, key.demoted) == (*rank, demoted))
            })
        };
        let placed = |place, candidate: &CandidateId| {
            self.keys.get(candidate.index()).is_some_and(|key| key.in_group() == Some(place))
        };
        let in_groups = self.keys.iter().filter(|(_, key)| key.group.is_some()).count();
        self.keys.iter().count() == self.len()
            && in_groups == self.grouped.len()
            && stands(&self.order, false)
            && stands(&self.demoted, true)
            && self.grouped.iter().all(|(key, candidate)| placed(*key, candidate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(serial: u64, group: usize) -> CandidateEntry {
        CandidateEntry { serial, group: group.checked_sub(1).map(QuotaGroup::at) }
    }

    fn used_at(last: u64) -> Standing {
        Standing { last, hits: 1, born: 0, level: 1, priority: 0, demoted: false }
    }

    #[test]
    fn equals_an_ordered_map_under_random_filing() {
        let mut ranked = RankedCandidates::by(|s| (s.last, 0));
        let mut model = BTreeMap::new();
        let mut dice = fastrand::Rng::with_seed(1);
        for step in 0..20_000 {
            let (candidate, last) = (CandidateId::at(dice.usize(..300)), dice.u64(..1 << 14) * 20_000 + step);
            let group = dice.usize(..3);
            if dice.u8(..4) == 0 {
                ranked.remove(candidate);
                model.remove(&candidate);
            } else {
                let demoted = dice.u8(..8) == 0;
                ranked.file(candidate, Standing { demoted, ..used_at(last) }, entry(step, group));
                model.insert(candidate, ((!demoted, last), group));
            }
            let least = |of: &dyn Fn(usize) -> bool| {
                let members = model.iter().filter(|(_, (_, group))| of(*group));
                members.min_by_key(|(_, (rank, _))| *rank).map(|(candidate, _)| *candidate)
            };
            assert_eq!(ranked.choose(), least(&|_| true));
            for group in [1, 2] {
                assert_eq!(ranked.choose_of(QuotaGroup::at(group - 1)), least(&|of| of == group));
            }
            assert_eq!(ranked.len(), model.len());
            if step % 100 == 0 {
                let mut order: Vec<_> = model.iter().map(|(candidate, (rank, _))| (*rank, *candidate)).collect();
                order.sort_unstable();
                let following = std::array::from_fn(|i| order.get(i + 1).map(|(_, candidate)| *candidate));
                assert_eq!(ranked.following(), following);
            }
        }
        assert!(ranked.is_sound());
    }

    #[test]
    fn equal_keys_leave_by_their_serial_numbers() {
        let mut ranked = RankedCandidates::by(|_| (0, 0));
        (0..50).for_each(|i| ranked.file(CandidateId::at(i * 7 % 50), used_at(0), entry(i as u64, 0)));
        for i in 0..50 {
            let candidate = ranked.choose().expect("not empty");
            assert_eq!(candidate, CandidateId::at(i * 7 % 50));
            ranked.remove(candidate);
        }
    }

    #[test]
    fn what_is_discarded_in_slices_is_gone_in_the_end() {
        let mut ranked = RankedCandidates::by(|s| (s.last, 0));
        let of = |i: usize| (CandidateId::at(i), used_at(i as u64), entry(i as u64, i % 3));
        (0..5_000).map(of).for_each(|(candidate, standing, entry)| ranked.file(candidate, standing, entry));
        let slices = (1..).find(|_| ranked.discard(100)).expect("it ends");
        assert!((50..100).contains(&slices), "{slices}");
        assert_eq!((ranked.len(), ranked.choose()), (0, None));
    }
}
