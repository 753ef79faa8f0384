//! Policies that are an order: the candidate with the smallest key goes first, among the demoted ones as long as there
//! are any.
//!
//! An ordered map from key to candidate. The victims stand at its left edge, what was used last at its right, so that
//! evicting and filing touch the same few nodes again and again however many candidates there are; re-filing any other
//! is logarithmic, and nothing is ever stale. Equal keys go by the candidates' serial numbers, so that two replicas fed
//! the same log evict the same. Candidates of a group stand in a second map too, by group and key.
//!
//! Tried an indexed 4-ary heap: every level of a removal writes the place of another candidate, ten cold lines at a
//! million candidates, and evicting a leaf took half as long again.

use std::collections::BTreeMap;
use std::fmt;

use super::table::Table;
use super::{Entry, Group, Policy, Slot, Standing};

type Key = fn(Standing) -> (u64, u64);

/// A key, and the candidate's serial number, which breaks ties.
type Rank = ((u64, u64), u64);

/// Where a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    rank: Rank,
    demoted: bool,
    group: Option<Group>,
}

impl Place {
    /// Where it stands in its group: the demoted ones first.
    fn in_group(&self) -> Option<(Group, bool, Rank)> {
        self.group.map(|group| (group, !self.demoted, self.rank))
    }
}

/// Candidates in the order of `key`.
pub(super) struct Ranked {
    key: Key,
    order: BTreeMap<Rank, Slot>,
    /// The demoted ones, in the same order.
    demoted: BTreeMap<Rank, Slot>,
    /// Those of groups, each group in the same order.
    grouped: BTreeMap<(Group, bool, Rank), Slot>,
    places: Table<Place>,
}

impl fmt::Debug for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranked").field("filed", &self.len()).finish_non_exhaustive()
    }
}

impl Ranked {
    pub(super) fn by(key: Key) -> Self {
        let (order, demoted, grouped) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { key, order, demoted, grouped, places: Table::default() }
    }

    fn place(&self, standing: Standing, entry: Entry) -> Place {
        Place { rank: ((self.key)(standing), entry.serial), demoted: standing.demoted, group: entry.group }
    }

    fn strike(&mut self, place: Place) {
        self.among(place.demoted).remove(&place.rank);
        if let Some(in_group) = place.in_group() {
            self.grouped.remove(&in_group);
        }
    }

    fn among(&mut self, demoted: bool) -> &mut BTreeMap<Rank, Slot> {
        if demoted { &mut self.demoted } else { &mut self.order }
    }
}

impl Policy for Ranked {
    fn file(&mut self, slot: Slot, standing: Standing, entry: Entry) {
        let place = self.place(standing, entry);
        let before = self.places.at(slot.index()).replace(place);
        if before == Some(place) {
            return;
        }
        if let Some(before) = before {
            self.strike(before);
        }
        self.among(place.demoted).insert(place.rank, slot);
        if let Some(in_group) = place.in_group() {
            self.grouped.insert(in_group, slot);
        }
    }

    fn remove(&mut self, slot: Slot) {
        if let Some(place) = self.places.take(slot.index()) {
            self.strike(place);
        }
    }

    fn choose(&mut self) -> Option<Slot> {
        let first = self.demoted.first_key_value().or_else(|| self.order.first_key_value());
        first.map(|(_, slot)| *slot)
    }

    fn following(&self) -> [Option<Slot>; 6] {
        let mut following = self.demoted.values().chain(self.order.values()).skip(1);
        std::array::from_fn(|_| following.next().copied())
    }

    fn prefetch(&self, slot: Slot) {
        self.places.prefetch(slot.index());
    }

    fn choose_of(&self, group: Group) -> Option<Slot> {
        let mut from = self.grouped.range((group, false, Rank::default())..);
        from.next().filter(|((of, ..), _)| *of == group).map(|(_, slot)| *slot)
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
        !self.places.free_last(candidates) && self.len() == 0 && self.grouped.is_empty()
    }

    fn is_filed(&self, slot: Slot, standing: Standing, entry: Entry) -> bool {
        let place = self.place(standing, entry);
        let grouped = place.in_group().is_none_or(|in_group| self.grouped.get(&in_group) == Some(&slot));
        let order = if place.demoted { &self.demoted } else { &self.order };
        self.places.get(slot.index()) == Some(&place) && order.get(&place.rank) == Some(&slot) && grouped
    }

    fn is_sound(&self) -> bool {
        let stands = |order: &BTreeMap<Rank, Slot>, demoted| {
            order.iter().all(|(rank, slot)| {
                self.places.get(slot.index()).is_some_and(|place| (place.rank, place.demoted) == (*rank, demoted))
            })
        };
        let placed =
            |key, slot: &Slot| self.places.get(slot.index()).is_some_and(|place| place.in_group() == Some(key));
        let in_groups = self.places.iter().filter(|(_, place)| place.group.is_some()).count();
        self.places.iter().count() == self.len()
            && in_groups == self.grouped.len()
            && stands(&self.order, false)
            && stands(&self.demoted, true)
            && self.grouped.iter().all(|(key, slot)| placed(*key, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(serial: u64, group: usize) -> Entry {
        Entry { serial, group: group.checked_sub(1).map(Group::at) }
    }

    fn used_at(last: u64) -> Standing {
        Standing { last, hits: 1, born: 0, level: 1, priority: 0, demoted: false }
    }

    #[test]
    fn equals_an_ordered_map_under_random_filing() {
        let mut ranked = Ranked::by(|s| (s.last, 0));
        let mut model = BTreeMap::new();
        let mut dice = fastrand::Rng::with_seed(1);
        for step in 0..20_000 {
            let (slot, last) = (Slot::at(dice.usize(..300)), dice.u64(..1 << 14) * 20_000 + step);
            let group = dice.usize(..3);
            if dice.u8(..4) == 0 {
                ranked.remove(slot);
                model.remove(&slot);
            } else {
                let demoted = dice.u8(..8) == 0;
                ranked.file(slot, Standing { demoted, ..used_at(last) }, entry(step, group));
                model.insert(slot, ((!demoted, last), group));
            }
            let least = |of: &dyn Fn(usize) -> bool| {
                let members = model.iter().filter(|(_, (_, group))| of(*group));
                members.min_by_key(|(_, (rank, _))| *rank).map(|(slot, _)| *slot)
            };
            assert_eq!(ranked.choose(), least(&|_| true));
            for group in [1, 2] {
                assert_eq!(ranked.choose_of(Group::at(group - 1)), least(&|of| of == group));
            }
            assert_eq!(ranked.len(), model.len());
            if step % 100 == 0 {
                let mut order: Vec<_> = model.iter().map(|(slot, (rank, _))| (*rank, *slot)).collect();
                order.sort_unstable();
                let following = std::array::from_fn(|i| order.get(i + 1).map(|(_, slot)| *slot));
                assert_eq!(ranked.following(), following);
            }
        }
        assert!(ranked.is_sound());
    }

    #[test]
    fn equal_keys_leave_by_their_serial_numbers() {
        let mut ranked = Ranked::by(|_| (0, 0));
        (0..50).for_each(|i| ranked.file(Slot::at(i * 7 % 50), used_at(0), entry(i as u64, 0)));
        for i in 0..50 {
            let slot = ranked.choose().expect("not empty");
            assert_eq!(slot, Slot::at(i * 7 % 50));
            ranked.remove(slot);
        }
    }

    #[test]
    fn what_is_discarded_in_slices_is_gone_in_the_end() {
        let mut ranked = Ranked::by(|s| (s.last, 0));
        let of = |i: usize| (Slot::at(i), used_at(i as u64), entry(i as u64, i % 3));
        (0..5_000).map(of).for_each(|(slot, standing, entry)| ranked.file(slot, standing, entry));
        let slices = (1..).find(|_| ranked.discard(100)).expect("it ends");
        assert!((50..100).contains(&slices), "{slices}");
        assert_eq!((ranked.len(), ranked.choose()), (0, None));
    }
}
