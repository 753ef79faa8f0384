//! Candidates by rank, the demoted ones before all others.
//!
//! Most candidates are filed in order: under the policy `lru` each one after all others. These lie in a *chain*, linked to
//! their neighbours, where filing, removing and finding the first cost the same however many there are. A candidate whose rank
//! lies between those of others goes into an ordered map. The first of all is the first of either.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::candidate::{CandidateId, QuotaGroup};
use super::table::Table;

/// A key, and the candidate's serial number, which breaks ties: no two candidates have the same.
pub(super) type CandidateRank = ((u64, u64), u64);

/// What a candidate is filed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankKey {
    pub(super) rank: CandidateRank,
    pub(super) demoted: bool,
    pub(super) group: Option<QuotaGroup>,
}

/// A candidate that is filed.
#[derive(Debug, Clone, Copy)]
struct Filed {
    key: RankKey,
    place: Place,
}

/// Where a candidate is filed.
#[derive(Debug, Clone, Copy)]
enum Place {
    Chained { before: Option<CandidateId>, after: Option<CandidateId> },
    Mapped,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    filed: Table<Filed>,
    /// The chain's first and last.
    ends: Option<(CandidateId, CandidateId)>,
    chained: usize,
    between: BTreeMap<CandidateRank, CandidateId>,
    demoted: BTreeMap<CandidateRank, CandidateId>,
}

impl Order {
    /// What `candidate` is filed under.
    pub(super) fn key(&self, candidate: CandidateId) -> Option<&RankKey> {
        self.filed.get(candidate.index()).map(|filed| &filed.key)
    }

    /// Files a candidate, or files it anew; what it was filed under before.
    pub(super) fn file(&mut self, candidate: CandidateId, key: RankKey) -> Option<RankKey> {
        let Some(before) = self.key(candidate).copied() else {
            self.insert(candidate, key);
            return None;
        };
        if before != key && !self.move_to_end(candidate, key) {
            self.remove(candidate);
            self.insert(candidate, key);
        }
        Some(before)
    }

    /// Files a candidate of the chain anew after all others there, where it stands; false if it is none or belongs elsewhere.
    fn move_to_end(&mut self, candidate: CandidateId, key: RankKey) -> bool {
        let Some((first, last)) = self.ends.filter(|(_, last)| !key.demoted && self.rank(*last) <= key.rank) else {
            return false;
        };
        let Some(filed) = self.filed.get_mut(candidate.index()) else { return false };
        let Place::Chained { before, after } = filed.place else { return false };
        filed.key = key;
        if candidate == last {
            return true;
        }
        filed.place = Place::Chained { before: Some(last), after: None };
        self.tie(before, after);
        self.tie(Some(last), Some(candidate));
        self.ends = Some((if first == candidate { after.unwrap_or(last) } else { first }, candidate));
        true
    }

    /// Files a candidate that is not filed.
    fn insert(&mut self, candidate: CandidateId, key: RankKey) {
        let place = if key.demoted {
            self.demoted.insert(key.rank, candidate);
            Place::Mapped
        } else {
            self.place(candidate, key.rank)
        };
        self.filed.set(candidate.index(), Filed { key, place });
    }

    fn place(&mut self, candidate: CandidateId, rank: CandidateRank) -> Place {
        let (before, after) = match self.ends {
            None => (None, None),
            Some((_, last)) if self.rank(last) < rank => (Some(last), None),
            Some((first, _)) if rank < self.rank(first) => (None, Some(first)),
            Some(_) => {
                self.between.insert(rank, candidate);
                return Place::Mapped;
            }
        };
        self.tie(before, Some(candidate));
        self.tie(Some(candidate), after);
        let (first, last) = self.ends.unwrap_or((candidate, candidate));
        self.ends =
            Some((if before.is_none() { candidate } else { first }, if after.is_none() { candidate } else { last }));
        self.chained += 1;
        Place::Chained { before, after }
    }

    fn rank(&self, candidate: CandidateId) -> CandidateRank {
        self.key(candidate).expect("what is in the chain is filed").rank
    }

    /// Makes two candidates neighbours, of which one may not be filed yet.
    fn tie(&mut self, one: Option<CandidateId>, other: Option<CandidateId>) {
        if let Some(Place::Chained { after, .. }) = self.place_of(one) {
            *after = other;
        }
        if let Some(Place::Chained { before, .. }) = self.place_of(other) {
            *before = one;
        }
    }

    fn place_of(&mut self, candidate: Option<CandidateId>) -> Option<&mut Place> {
        self.filed.get_mut(candidate?.index()).map(|filed| &mut filed.place)
    }

    /// Takes a candidate out, if it is filed.
    pub(super) fn remove(&mut self, candidate: CandidateId) {
        let Some(&Filed { ref key, place }) = self.filed.get(candidate.index()) else { return };
        match place {
            Place::Mapped if key.demoted => _ = self.demoted.remove(&key.rank),
            Place::Mapped => _ = self.between.remove(&key.rank),
            Place::Chained { before, after } => {
                self.tie(before, after);
                self.chained -= 1;
                self.ends = self.ends.and_then(|(first, last)| {
                    let first = if first == candidate { after } else { Some(first) };
                    let last = if last == candidate { before } else { Some(last) };
                    first.zip(last)
                });
            }
        }
        self.filed.take(candidate.index());
    }

    pub(super) fn first(&self) -> Option<CandidateId> {
        if let Some((_, demoted)) = self.demoted.first_key_value() {
            return Some(*demoted);
        }
        let chained = self.ends.map(|(first, _)| first);
        match self.between.first_key_value() {
            Some((rank, between)) if chained.is_none_or(|chained| *rank < self.rank(chained)) => Some(*between),
            _ => chained,
        }
    }

    /// The candidates in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = CandidateId> {
        let mut chained = self.ends.map(|(first, _)| first);
        let mut between = self.between.iter().peekable();
        let others = std::iter::from_fn(move || {
            let next = chained.and_then(|candidate| self.filed.get(candidate.index()));
            match (chained, between.peek()) {
                (Some(candidate), rival)
                    if rival.is_none_or(|(rank, _)| next.is_some_and(|next| next.key.rank < **rank)) =>
                {
                    chained = next.and_then(|next| next.after());
                    Some(candidate)
                }
                _ => between.next().map(|(_, candidate)| *candidate),
            }
        });
        self.demoted.values().copied().chain(others)
    }

    /// The candidate after this one in the chain, or in the map that it lies in.
    pub(super) fn after(&self, candidate: CandidateId) -> Option<CandidateId> {
        let Filed { key, place } = self.filed.get(candidate.index())?;
        let map = match place {
            Place::Chained { after, .. } => return *after,
            Place::Mapped if key.demoted => &self.demoted,
            Place::Mapped => &self.between,
        };
        map.range((Bound::Excluded(key.rank), Bound::Unbounded)).next().map(|(_, candidate)| *candidate)
    }

    pub(super) fn prefetch(&self, candidate: CandidateId) {
        self.filed.prefetch(candidate.index());
    }

    /// Prefetches the data of both ends of the chain, to be changed.
    pub(super) fn prefetch_ends(&self) {
        if let Some((first, last)) = self.ends {
            self.filed.prefetch_to_write(first.index());
            self.filed.prefetch_to_write(last.index());
        }
    }

    pub(super) fn prefetch_neighbours(&self, candidate: CandidateId) {
        if let Some(Filed { place: Place::Chained { before, after }, .. }) = self.filed.get(candidate.index()) {
            [*before, *after].into_iter().flatten().for_each(|neighbour| self.prefetch(neighbour));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.chained + self.between.len() + self.demoted.len()
    }

    /// Frees the data of up to `candidates` candidates, without regard to the order; whether all is freed.
    pub(super) fn discard(&mut self, candidates: usize) -> bool {
        (self.ends, self.chained) = (None, 0);
        for _ in 0..candidates {
            if self.between.pop_first().or_else(|| self.demoted.pop_first()).is_none() {
                break;
            }
        }
        !self.filed.free_last(candidates) && self.len() == 0
    }

    /// Whether the structure's own invariants hold.
    pub(super) fn is_sound(&self) -> bool {
        let key = |candidate: &CandidateId| self.key(*candidate);
        let ranks: Vec<_> =
            self.iter().filter_map(|candidate| key(&candidate).map(|key| (!key.demoted, key.rank))).collect();
        let stands = |map: &BTreeMap<CandidateRank, CandidateId>, demoted| {
            map.iter().all(|(rank, at)| key(at).is_some_and(|key| (key.rank, key.demoted) == (*rank, demoted)))
        };
        let ends = self.ends.map(|(first, last)| [first, last].map(|end| self.filed.get(end.index())));
        let closed = ends.is_none_or(|[first, last]| {
            first.is_some_and(|first| matches!(first.place, Place::Chained { before: None, .. }))
                && last.is_some_and(|last| matches!(last.place, Place::Chained { after: None, .. }))
        });
        ranks.is_sorted_by(|a, b| a < b)
            && ranks.len() == self.len()
            && self.filed.iter().count() == self.len()
            && closed
            && stands(&self.between, false)
            && stands(&self.demoted, true)
    }
}

impl Filed {
    fn after(&self) -> Option<CandidateId> {
        match self.place {
            Place::Chained { after, .. } => after,
            Place::Mapped => None,
        }
    }
}
