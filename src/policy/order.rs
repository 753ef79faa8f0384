//! The candidates of a policy in the order of their ranks, demoted ones first.
//!
//! Most candidates are filed in order: under the policy `lru`, each one after all others. These are
//! in a [`Chain`], where filing, removing and finding the first take constant time. A candidate
//! whose rank is between the ranks of others is filed in an ordered map. The first candidate is the
//! first of either.

use std::collections::BTreeMap;

use super::candidate::{CandidateId, QuotaGroup};
use super::chain::{Chain, ChunkId};
use super::table::Table;

/// A key, and the candidate's serial number, which is unique and breaks ties.
pub(super) type CandidateRank = ((u64, u64), u64);

/// The key under which a candidate is filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankKey {
    pub(super) rank: CandidateRank,
    pub(super) demoted: bool,
    pub(super) group: Option<QuotaGroup>,
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
    between: BTreeMap<CandidateRank, CandidateId>,
    demoted: BTreeMap<CandidateRank, CandidateId>,
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
        let place = if key.demoted {
            self.demoted.insert(key.rank, candidate);
            Place::Mapped
        } else {
            self.place(candidate, key.rank)
        };
        self.filed.set(candidate.index(), Filed { key, place });
    }

    fn place(&mut self, candidate: CandidateId, rank: CandidateRank) -> Place {
        let is_after = |end: Option<CandidateId>| end.is_none_or(|end| self.rank(end) < rank);
        if is_after(self.chain.last()) {
            Place::Chained(self.chain.push(candidate))
        } else if !is_after(self.chain.first()) {
            Place::Chained(self.chain.push_first(candidate))
        } else {
            self.between.insert(rank, candidate);
            Place::Mapped
        }
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
            Place::Mapped if key.demoted => _ = self.demoted.remove(&key.rank),
            Place::Mapped => _ = self.between.remove(&key.rank),
        }
        self.filed.take(candidate.index());
    }

    pub(super) fn first(&self) -> Option<CandidateId> {
        if let Some((_, demoted)) = self.demoted.first_key_value() {
            return Some(*demoted);
        }
        let chained = self.chain.first();
        match self.between.first_key_value() {
            Some((rank, between)) if chained.is_none_or(|chained| *rank < self.rank(chained)) => Some(*between),
            _ => chained,
        }
    }

    /// All candidates, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = CandidateId> {
        let mut chained = self.chain.iter().peekable();
        let mut between = self.between.iter().peekable();
        let others = std::iter::from_fn(move || match (chained.peek(), between.peek()) {
            (Some(one), Some((rank, _))) if self.rank(*one) > **rank => between.next().map(|(_, candidate)| *candidate),
            (Some(_), _) => chained.next(),
            (None, _) => between.next().map(|(_, candidate)| *candidate),
        });
        self.demoted.values().copied().chain(others)
    }

    /// The candidate that is `places` (at least one) behind this one, in the same chain or map.
    #[inline]
    pub(super) fn behind(&self, candidate: CandidateId, places: usize) -> Option<CandidateId> {
        if self.chain.first() == Some(candidate) {
            return self.chain.behind_first(places);
        }
        let Filed { key, place } = self.filed.get(candidate.index())?;
        let map = match place {
            Place::Chained(chunk) => return self.chain.behind(candidate, *chunk, places),
            Place::Mapped if key.demoted => &self.demoted,
            Place::Mapped => &self.between,
        };
        // Starting from the first entry needs no search.
        if map.first_key_value().is_some_and(|(_, first)| *first == candidate) {
            return map.values().nth(places).copied();
        }
        map.range(key.rank..).nth(places).map(|(_, candidate)| *candidate)
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
        self.chain.len() + self.between.len() + self.demoted.len()
    }

    /// Frees the data of up to `candidates` candidates, in any order; returns whether all is freed.
    pub(super) fn discard(&mut self, candidates: usize) -> bool {
        self.chain.forget();
        for _ in 0..candidates {
            if self.between.pop_first().or_else(|| self.demoted.pop_first()).is_none() {
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
        let key = |candidate: &CandidateId| self.key(*candidate);
        let ranks: Vec<_> =
            self.iter().filter_map(|candidate| key(&candidate).map(|key| (!key.demoted, key.rank))).collect();
        let stands = |map: &BTreeMap<CandidateRank, CandidateId>, demoted| {
            map.iter().all(|(rank, at)| key(at).is_some_and(|key| (key.rank, key.demoted) == (*rank, demoted)))
        };
        ranks.is_sorted_by(|a, b| a < b)
            && ranks.len() == self.len()
            && self.filed.iter().count() == self.len()
            && self.chain.is_sound()
            && self.chain.iter().all(|one| self.is_chained(one))
            && stands(&self.between, false)
            && stands(&self.demoted, true)
    }
}

#[cfg(test)]
mod tests;
