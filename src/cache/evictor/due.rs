//! The times at which a candidate's stats change without a use.
//!
//! The priority of a candidate may expire. Before a choice, the evictor files every candidate again
//! whose time has come. The times are from a separate clock, in nanoseconds, because the tick
//! length of the counter that stamps last uses is unknown.

use crate::policy::{CandidateId, CandidateTable, Table};

/// Slots by the time at which their candidates must be filed again; a slot has at most one time.
#[derive(Debug, Default)]
pub(in crate::cache) struct Due {
    /// By time and slot.
    order: CandidateTable,
    /// The time of each slot.
    times: Table<u64>,
}

impl Due {
    /// Sets the slot's time, or removes it.
    #[inline]
    pub(in crate::cache) fn set(&mut self, slot: CandidateId, time: Option<u64>) {
        if time.is_some() || !self.order.is_empty() {
            self.change(slot, time);
        }
    }

    fn change(&mut self, slot: CandidateId, time: Option<u64>) {
        let before = self.at(slot);
        if before == time {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&key(before, slot));
        }
        match time {
            Some(time) => {
                self.times.set(slot.index(), time);
                self.order.insert(key(time, slot), slot);
            }
            None => _ = self.times.take(slot.index()),
        }
    }

    pub(in crate::cache) fn at(&self, slot: CandidateId) -> Option<u64> {
        self.times.get(slot.index()).copied()
    }

    /// The slot with the earliest time, if that is not after `now`.
    pub(super) fn first(&self, now: u64) -> Option<CandidateId> {
        self.order.first_key_value().filter(|((time, _), _)| *time <= now).map(|(_, slot)| *slot)
    }

    /// The times by slot, for tests to overwrite.
    #[cfg(test)]
    pub(in crate::cache) fn times(&mut self) -> &mut Table<u64> {
        &mut self.times
    }

    /// The number of slots that have a time, for `validate`; `None` if the fields disagree.
    pub(in crate::cache) fn count(&self) -> Option<usize> {
        let sound = self.order.iter().all(|((time, _), slot)| self.at(*slot) == Some(*time));
        let count = self.times.iter().count();
        (sound && count == self.order.len()).then_some(count)
    }
}

fn key(time: u64, slot: CandidateId) -> (u64, ((u64, u64), u64)) {
    (time, ((slot.index() as u64, 0), 0))
}
