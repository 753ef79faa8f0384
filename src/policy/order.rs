//! The candidates of a policy in the order of their ranks, demoted ones first.
//!
//! Most candidates are filed in order: under the policy `lru`, each one after all others. These are
//! in a [`Chain`], where filing, removing and finding the first take constant time. A candidate
//! whose rank is between the ranks of others, or which is demoted, is filed in an ordered map. The
//! first candidate is the first of either.

use std::collections::BTreeMap;

use super::candidate::{CandidateId, QuotaGroup};
use super::chain::{Chain, ChunkId};
use super::table::Table;

/// A key, and the candidate's serial number, which is unique and breaks ties.
pub(super) type CandidateRank = ((u64, u64), u64);

/// Candidates by a number and a rank. All ordered tables of candidates have this type, because each
/// type of key and value has its own copy of the B-tree's code.
pub(crate) type CandidateTable = BTreeMap<(u64, CandidateRank), CandidateId>;

/// The key under which a candidate is filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankKey {
    pub(super) rank: CandidateRank,
    pub(super) demoted: bool,
    pub(super) group: Option<QuotaGroup>,
}

impl RankKey {
    /// Its place in the order of all candidates, demoted ones first.
    pub(super) fn place(&self) -> (u64, CandidateRank) {
        (u64::from(!self.demoted), self.rank)
    }
}

/// The entry of a filed candidate.
#[derive(Debug, Clone, Copy)]
struct Filed {
    key: RankKey,
    place: Place,
}

/// The structure that holds a candidate.
#[derive(Debug, Clone, Copy)]
enum Place {
    Chained(ChunkId),
    Mapped,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    filed: Table<Filed>,
    chain: Chain,
    /// The candidates that are not in the chain, by their place.
    mapped: CandidateTable,
}

impl Order {
    /// The key under which `candidate` is filed.
    pub(super) fn key(&self, candidate: CandidateId) -> Option<&RankKey> {
        self.filed.get(candidate.index()).map(|filed| &filed.key)
    }

    /// Files a candidate, or files it again under a new key; returns the key before.
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

    /// Moves a candidate to the end of the chain; false if it is not in the chain or does not
    /// belong there.
    fn move_to_end(&mut self, candidate: CandidateId, key: RankKey) -> bool {
        let Some(last) = self.chain.last().filter(|last| !key.demoted && self.rank(*last) <= key.rank) else {
            return false;
        };
        let Some(&Filed { place: Place::Chained(chunk), .. }) = self.filed.get(candidate.index()) else { return false };
        let chunk = if candidate == last {
            chunk
        } else {
            self.unchain(candidate, chunk);
            self.chain.push(candidate)
        };
        if let Some(filed) = self.filed.get_mut(candidate.index()) {
            *filed = Filed { key, place: Place::Chained(chunk) };
        }
        true
    }

    /// Files a candidate that is not filed.
    fn insert(&mut self, candidate: CandidateId, key: RankKey) {
        let is_after = |end: Option<CandidateId>| end.is_none_or(|end| self.rank(end) < key.rank);
        let place = if !key.demoted && is_after(self.chain.last()) {
            Place::Chained(self.chain.push(candidate))
        } else if !key.demoted && !is_after(self.chain.first()) {
            Place::Chained(self.chain.push_first(candidate))
        } else {
            self.mapped.insert(key.place(), candidate);
            Place::Mapped
        };
        self.filed.set(candidate.index(), Filed { key, place });
    }

    fn rank(&self, candidate: CandidateId) -> CandidateRank {
        self.key(candidate).expect("chained candidates are filed").rank
    }

    /// Removes a candidate from the chain.
    fn unchain(&mut self, candidate: CandidateId, chunk: ChunkId) {
        let Self { chain, filed, .. } = self;
        chain.remove(candidate, chunk, |moved, to| {
            let moved = filed.get_mut(moved.index()).expect("chained candidates are filed");
            moved.place = Place::Chained(to);
        });
    }

    /// Removes a candidate, if it is filed.
    #[inline]
    pub(super) fn remove(&mut self, candidate: CandidateId) {
        let Some(Filed { key, place }) = self.filed.get(candidate.index()) else { return };
        match *place {
            Place::Chained(chunk) => self.unchain(candidate, chunk),
            Place::Mapped => _ = self.mapped.remove(&key.place()),
        }
        self.filed.take(candidate.index());
    }

    pub(super) fn first(&self) -> Option<CandidateId> {
        let chained = self.chain.first();
        match self.mapped.first_key_value() {
            Some((place, mapped)) if chained.is_none_or(|chained| *place < (1, self.rank(chained))) => Some(*mapped),
            _ => chained,
        }
    }

    /// All candidates, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = CandidateId> {
        let mut chained = self.chain.iter().peekable();
        let mut mapped = self.mapped.iter().peekable();
        std::iter::from_fn(move || match (chained.peek(), mapped.peek()) {
            (Some(one), Some((place, _))) if (1, self.rank(*one)) < **place => chained.next(),
            (Some(_), None) => chained.next(),
            (_, _) => mapped.next().map(|(_, candidate)| *candidate),
        })
    }

    /// The candidate that is `places` (at least one) behind this one, in the chain or in the map.
    #[inline]
    pub(super) fn behind(&self, candidate: CandidateId, places: usize) -> Option<CandidateId> {
        if self.chain.first() == Some(candidate) {
            return self.chain.behind_first(places);
        }
        let Filed { key, place } = self.filed.get(candidate.index())?;
        if let Place::Chained(chunk) = place {
            return self.chain.behind(candidate, *chunk, places);
        }
        // Starting from the first entry needs no search.
        if self.mapped.first_key_value().is_some_and(|(_, first)| *first == candidate) {
            return self.mapped.values().nth(places).copied();
        }
        self.mapped.range(key.place()..).nth(places).map(|(_, candidate)| *candidate)
    }

    pub(super) fn prefetch(&self, candidate: CandidateId) {
        self.filed.prefetch(candidate.index());
    }

    /// Prefetches the data at both ends of the chain, for writing.
    pub(super) fn prefetch_ends(&self) {
        self.chain.prefetch_ends();
        let ends = [self.chain.first(), self.chain.last()];
        ends.into_iter().flatten().for_each(|end| self.filed.prefetch_to_write(end.index()));
    }

    /// Prefetches the chunk of a candidate in the chain, for writing.
    pub(super) fn prefetch_place(&self, candidate: CandidateId) {
        if let Some(Filed { place: Place::Chained(chunk), .. }) = self.filed.get(candidate.index()) {
            self.chain.prefetch_to_write(*chunk);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.chain.len() + self.mapped.len()
    }

    /// Frees the data of up to `candidates` candidates, in any order; returns whether all is freed.
    pub(super) fn discard(&mut self, candidates: usize) -> bool {
        self.chain.forget();
        for _ in 0..candidates {
            if self.mapped.pop_first().is_none() {
                break;
            }
        }
        let chained = self.chain.discard(candidates);
        !self.filed.free_last(candidates) && !chained && self.len() == 0
    }

    fn is_chained(&self, candidate: CandidateId) -> bool {
        let filed = self.filed.get(candidate.index());
        filed.is_some_and(
            |Filed { place, .. }| matches!(place, Place::Chained(chunk) if self.chain.has(candidate, *chunk)),
        )
    }

    /// Whether the structure's own invariants hold.
    pub(super) fn is_sound(&self) -> bool {
        let place = |candidate: CandidateId| self.key(candidate).map(RankKey::place);
        let places: Vec<_> = self.iter().filter_map(place).collect();
        places.is_sorted_by(|a, b| a < b)
            && places.len() == self.len()
            && self.filed.iter().count() == self.len()
            && self.chain.is_sound()
            && self.chain.iter().all(|one| self.is_chained(one))
            && self.mapped.iter().all(|(at, candidate)| place(*candidate) == Some(*at))
    }
}

#[cfg(test)]
mod tests;
