//! Policies that are an order: the candidate with the smallest key goes first.
//!
//! An indexed 4-ary heap: filing at the far end, where most recency policies file, costs no moves; removal and re-filing
//! of any candidate are logarithmic; nothing is ever stale. Equal keys go in the order in which they were filed, so that
//! two replicas fed the same log evict the same.

use std::fmt;

use super::{Policy, Slot, Standing};

/// Children of a heap's place: four keys of 32 bytes lie in two cache lines.
const ARITY: usize = 4;

/// Marks a slot that is not filed.
const NOWHERE: u32 = u32::MAX;

type Key = fn(Standing) -> (u64, u64);

/// Candidates in the order of `key`.
pub(super) struct Ranked {
    key: Key,
    heap: Vec<Entry>,
    /// Where each slot stands in the heap.
    places: Vec<u32>,
    filed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: (u64, u64),
    /// Breaks ties: filed earlier, evicted earlier.
    serial: u64,
    slot: Slot,
}

impl fmt::Debug for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranked").field("filed", &self.heap.len()).finish_non_exhaustive()
    }
}

impl Ranked {
    pub(super) fn by(key: Key) -> Self {
        Self { key, heap: Vec::new(), places: Vec::new(), filed: 0 }
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        self.places.get(slot.index()).filter(|&&place| place != NOWHERE).map(|&place| place as usize)
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.places[entry.slot.index()] = at as u32;
    }

    /// Moves `entry` from the hole at `at` towards the root as far as it belongs.
    fn rise(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    /// Moves `entry` from the hole at `at` towards the leaves as far as it belongs.
    fn sink(&mut self, mut at: usize, entry: Entry) {
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else {
                break;
            };
            if entry <= self.heap[least] {
                break;
            }
            self.put(at, self.heap[least]);
            at = least;
        }
        self.put(at, entry);
    }

    fn settle(&mut self, at: usize, entry: Entry) {
        if at > 0 && entry < self.heap[(at - 1) / ARITY] {
            self.rise(at, entry);
        } else {
            self.sink(at, entry);
        }
    }
}

impl Policy for Ranked {
    fn file(&mut self, slot: Slot, standing: Standing) {
        let key = (self.key)(standing);
        if let Some(at) = self.place(slot) {
            if self.heap[at].key != key {
                let entry = Entry { key, ..self.heap[at] };
                self.settle(at, entry);
            }
            return;
        }
        if self.places.len() <= slot.index() {
            self.places.resize(slot.index() + 1, NOWHERE);
        }
        let entry = Entry { key, serial: self.filed, slot };
        self.filed += 1;
        self.heap.push(entry);
        self.rise(self.heap.len() - 1, entry);
    }

    fn remove(&mut self, slot: Slot) {
        let Some(at) = self.place(slot) else { return };
        self.places[slot.index()] = NOWHERE;
        let Some(last) = self.heap.pop() else { return };
        if at < self.heap.len() {
            self.settle(at, last);
        }
    }

    fn choose(&mut self) -> Option<Slot> {
        self.heap.first().map(|entry| entry.slot)
    }

    fn len(&self) -> usize {
        self.heap.len()
    }

    fn is_filed(&self, slot: Slot, standing: Standing) -> bool {
        self.place(slot).is_some_and(|at| self.heap[at].slot == slot && self.heap[at].key == (self.key)(standing))
    }

    fn is_sound(&self) -> bool {
        let ordered = (1..self.heap.len()).all(|at| self.heap[(at - 1) / ARITY] < self.heap[at]);
        let placed = self.heap.iter().enumerate().all(|(at, entry)| self.place(entry.slot) == Some(at));
        ordered && placed && self.places.iter().filter(|&&place| place != NOWHERE).count() == self.heap.len()
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
            let (slot, last) = (Slot((state >> 33) as u32 % 300), (state >> 50) * 20_000 + step);
            if state >> 62 == 0 {
                ranked.remove(slot);
                model.remove(&slot);
            } else {
                ranked.file(slot, Standing::new(last, 1, 0));
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
        (0..50).for_each(|i| ranked.file(Slot(i * 7 % 50), Standing::new(0, 1, 0)));
        for i in 0..50 {
            let slot = ranked.choose().expect("not empty");
            assert_eq!(slot, Slot(i * 7 % 50));
            ranked.remove(slot);
        }
    }
}
