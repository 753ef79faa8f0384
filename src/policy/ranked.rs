//! Policies that are an order: the candidate with the smallest key goes first.
//!
//! An ordered map from key to candidate. The victims stand at its left edge, what was used last at its right, so that
//! evicting and filing touch the same few nodes again and again however many candidates there are; re-filing any other
//! is logarithmic, and nothing is ever stale. Equal keys go in the order in which they were filed, so that two replicas
//! fed the same log evict the same.
//!
//! Tried an indexed 4-ary heap: every level of a removal writes the place of another candidate, ten cold lines at a
//! million candidates, and evicting a leaf took half as long again.

use std::collections::BTreeMap;
use std::fmt;

use super::{Policy, Slot, Standing};

type Key = fn(Standing) -> (u64, u64);

/// A key, and a serial number that breaks ties: filed earlier, evicted earlier.
type Rank = ((u64, u64), u64);

/// Candidates in the order of `key`.
pub(super) struct Ranked {
    key: Key,
    order: BTreeMap<Rank, Slot>,
    /// Where each slot stands in the order.
    ranks: Vec<Option<Rank>>,
    filed: u64,
}

impl fmt::Debug for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranked").field("filed", &self.order.len()).finish_non_exhaustive()
    }
}

impl Ranked {
    pub(super) fn by(key: Key) -> Self {
        Self { key, order: BTreeMap::new(), ranks: Vec::new(), filed: 0 }
    }

    fn rank(&self, slot: Slot) -> Option<Rank> {
        self.ranks.get(slot.index()).copied().flatten()
    }
}

impl Policy for Ranked {
    fn file(&mut self, slot: Slot, standing: Standing) {
        let key = (self.key)(standing);
        if let Some(rank) = self.rank(slot) {
            if rank.0 == key {
                return;
            }
            self.order.remove(&rank);
        }
        if self.ranks.len() <= slot.index() {
            self.ranks.resize(slot.index() + 1, None);
        }
        let rank = (key, self.filed);
        self.filed += 1;
        self.ranks[slot.index()] = Some(rank);
        self.order.insert(rank, slot);
    }

    fn remove(&mut self, slot: Slot) {
        if let Some(rank) = self.ranks.get_mut(slot.index()).and_then(Option::take) {
            self.order.remove(&rank);
        }
    }

    fn choose(&mut self) -> Option<Slot> {
        self.order.first_key_value().map(|(_, slot)| *slot)
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn is_filed(&self, slot: Slot, standing: Standing) -> bool {
        self.rank(slot).is_some_and(|rank| rank.0 == (self.key)(standing) && self.order.get(&rank) == Some(&slot))
    }

    fn is_sound(&self) -> bool {
        let ranked = self.ranks.iter().flatten().count();
        ranked == self.order.len() && self.order.iter().all(|(rank, slot)| self.rank(*slot) == Some(*rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn equals_an_ordered_map_under_random_filing() {
        let mut ranked = Ranked::by(|s| (s.last, 0));
        let mut model = BTreeMap::new();
        let mut state = 1_u64;
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (slot, last) = (Slot::at((state >> 33) as usize % 300), (state >> 50) * 20_000 + step);
            if state >> 62 == 0 {
                ranked.remove(slot);
                model.remove(&slot);
            } else {
                ranked.file(slot, Standing { last, hits: 1, born: 0 });
                model.insert(slot, last);
            }
            let least = model.iter().min_by_key(|(_, last)| **last).map(|(slot, _)| *slot);
            assert_eq!(ranked.choose(), least);
            assert_eq!(ranked.len(), model.len());
        }
        assert!(ranked.is_sound());
    }

    #[test]
    fn equal_keys_leave_in_the_order_they_came() {
        let mut ranked = Ranked::by(|_| (0, 0));
        (0..50).for_each(|i| ranked.file(Slot::at(i * 7 % 50), Standing { last: 0, hits: 1, born: 0 }));
        for i in 0..50 {
            let slot = ranked.choose().expect("not empty");
            assert_eq!(slot, Slot::at(i * 7 % 50));
            ranked.remove(slot);
        }
    }
}
