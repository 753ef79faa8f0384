//! Policies that are an order: the candidate with the smallest key goes first, and demoted candidates before all others.
//!
//! Filing in order costs the same however many candidates there are, filing between others the logarithm ([`Order`]); no
//! entry is ever stale. The serial number orders equal keys, so two replicas with the same log evict the same. Candidates of a
//! group are in a map too, by group and key.

use std::collections::BTreeMap;
use std::fmt;

use super::candidate::{CandidateEntry, CandidateId, Policy, QuotaGroup, Standing};
use super::order::{CandidateRank, Order, RankKey};

/// The key of a standing, where so many uses are many.
pub(super) type RankBy = fn(Standing, u32) -> (u64, u64);

impl RankKey {
    /// Its key among the candidates of its group: the demoted ones first.
    fn in_group(&self) -> Option<(QuotaGroup, bool, CandidateRank)> {
        self.group.map(|group| (group, !self.demoted, self.rank))
    }
}

/// Candidates in the order that `rank_by` gives.
pub(super) struct RankedCandidates {
    rank_by: RankBy,
    /// What `rank_by` counts as many uses.
    uses: u32,
    order: Order,
    /// Those of groups, each group in the same order.
    grouped: BTreeMap<(QuotaGroup, bool, CandidateRank), CandidateId>,
}

impl fmt::Debug for RankedCandidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankedCandidates").field("filed", &self.len()).finish_non_exhaustive()
    }
}

impl RankedCandidates {
    pub(super) fn by(rank_by: RankBy, uses: u32) -> Self {
        Self { rank_by, uses, order: Order::default(), grouped: BTreeMap::new() }
    }

    fn key(&self, standing: Standing, entry: CandidateEntry) -> RankKey {
        RankKey {
            rank: ((self.rank_by)(standing, self.uses), entry.serial),
            demoted: standing.demoted,
            group: entry.group,
        }
    }
}

impl Policy for RankedCandidates {
    fn file(&mut self, candidate: CandidateId, standing: Standing, entry: CandidateEntry) {
        let key = self.key(standing, entry);
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

    fn remove(&mut self, candidate: CandidateId) {
        if let Some(in_group) = self.order.key(candidate).and_then(RankKey::in_group) {
            self.grouped.remove(&in_group);
        }
        self.order.remove(candidate);
    }

    fn choose(&mut self) -> Option<CandidateId> {
        self.order.first()
    }

    fn behind(&self, candidate: CandidateId, places: usize) -> Option<CandidateId> {
        self.order.behind(candidate, places)
    }

    fn prefetch(&self, candidate: CandidateId) {
        self.order.prefetch(candidate);
    }

    fn prefetch_place(&self, candidate: CandidateId) {
        self.order.prefetch_place(candidate);
    }

    fn prefetch_ends(&self) {
        self.order.prefetch_ends();
    }

    fn choose_of(&self, group: QuotaGroup) -> Option<CandidateId> {
        let mut from = self.grouped.range((group, false, CandidateRank::default())..);
        from.next().filter(|((of, ..), _)| *of == group).map(|(_, candidate)| *candidate)
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn discard(&mut self, candidates: usize) -> bool {
        for _ in 0..candidates {
            if self.grouped.pop_first().is_none() {
                break;
            }
        }
        self.order.discard(candidates) && self.grouped.is_empty()
    }

    fn is_filed(&self, candidate: CandidateId, standing: Standing, entry: CandidateEntry) -> bool {
        let key = self.key(standing, entry);
        let grouped = key.in_group().is_none_or(|in_group| self.grouped.get(&in_group) == Some(&candidate));
        self.order.key(candidate) == Some(&key) && grouped
    }

    fn is_sound(&self) -> bool {
        let key = |candidate| self.order.key(candidate);
        let in_groups = self.order.iter().filter(|candidate| key(*candidate).is_some_and(|key| key.group.is_some()));
        in_groups.count() == self.grouped.len()
            && self.order.is_sound()
            && self.grouped.iter().all(|(place, candidate)| key(*candidate).and_then(RankKey::in_group) == Some(*place))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn entry(serial: u64, group: usize) -> CandidateEntry {
        CandidateEntry { serial, group: group.checked_sub(1).map(QuotaGroup::at) }
    }

    fn used_at(last: u64) -> Standing {
        Standing { last, hits: 1, born: 0, level: 1, priority: 0, demoted: false }
    }

    /// Each candidate but the last of three structures has one behind it, which comes after it.
    fn check_followers(ranked: &RankedCandidates, order: &[((bool, u64), CandidateId)]) {
        let rank: HashMap<_, _> = order.iter().map(|(rank, candidate)| (*candidate, *rank)).collect();
        let mut distinct = HashSet::new();
        for (own, candidate) in order {
            let behind = [1, 2, 4].map(|places| ranked.behind(*candidate, places));
            let ranks = behind.iter().flatten().map(|other| rank[other]);
            assert!(std::iter::once(*own).chain(ranks).is_sorted_by(|one, other| one < other));
            distinct.extend(behind[0]);
        }
        assert!(distinct.len() + 3 >= order.len(), "three structures");
    }

    #[test]
    fn equals_an_ordered_map_under_random_filing() {
        let mut ranked = RankedCandidates::by(|s, _| (s.last, 0), 0);
        let mut model = BTreeMap::new();
        let mut dice = fastrand::Rng::with_seed(1);
        for step in 0..20_000 {
            // One of two after all others, as a use files it.
            let latest = if dice.bool() { 1 << 14 } else { dice.u64(..1 << 14) };
            let (candidate, last) = (CandidateId::at(dice.usize(..300)), latest * 20_000 + step);
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
                check_followers(&ranked, &order);
            }
        }
        assert!(ranked.is_sound());
    }

    #[test]
    fn equal_keys_leave_by_their_serial_numbers() {
        let mut ranked = RankedCandidates::by(|_, _| (0, 0), 0);
        (0..50).for_each(|i| ranked.file(CandidateId::at(i * 7 % 50), used_at(0), entry(i as u64, 0)));
        for i in 0..50 {
            let candidate = ranked.choose().expect("not empty");
            assert_eq!(candidate, CandidateId::at(i * 7 % 50));
            ranked.remove(candidate);
        }
    }

    #[test]
    fn what_is_discarded_in_slices_is_gone_in_the_end() {
        let mut ranked = RankedCandidates::by(|s, _| (s.last, 0), 0);
        let of = |i: usize| (CandidateId::at(i), used_at(i as u64), entry(i as u64, i % 3));
        (0..5_000).map(of).for_each(|(candidate, standing, entry)| ranked.file(candidate, standing, entry));
        let slices = (1..).find(|_| ranked.discard(100)).expect("it ends");
        assert!((33..100).contains(&slices), "{slices}");
        assert_eq!((ranked.len(), ranked.choose()), (0, None));
    }
}
