//! When the passing of time alone changes a candidate's standing.

use std::collections::BTreeSet;

use crate::policy::{CandidateId, Table};

/// Slots by the moment at which they must be filed anew; a slot has one moment at most.
#[derive(Debug, Default)]
pub(in crate::cache) struct Due {
    order: BTreeSet<(u64, CandidateId)>,
    /// The moment of each slot.
    moments: Table<u64>,
}

impl Due {
    /// Sets the slot's moment, or removes it.
    pub(in crate::cache) fn set(&mut self, slot: CandidateId, moment: Option<u64>) {
        let before = self.at(slot);
        if before == moment {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, slot));
        }
        *self.moments.at(slot.index()) = moment;
        if let Some(moment) = moment {
            self.order.insert((moment, slot));
        }
    }

    /// The slot's moment.
    pub(in crate::cache) fn at(&self, slot: CandidateId) -> Option<u64> {
        self.moments.get(slot.index()).copied()
    }

    /// The first slot whose moment has come at `now`.
    pub(super) fn first(&self, now: u64) -> Option<CandidateId> {
        self.order.first().filter(|(moment, _)| *moment <= now).map(|(_, slot)| *slot)
    }

    /// The moments by slot, for tests to overwrite.
    #[cfg(test)]
    pub(in crate::cache) fn moments(&mut self) -> &mut Table<u64> {
        &mut self.moments
    }

    /// Slots that have a moment, for `validate`; `None` if the structure contradicts itself.
    pub(in crate::cache) fn count(&self) -> Option<usize> {
        let sound = self.order.iter().all(|&(moment, slot)| self.at(slot) == Some(moment));
        let count = self.moments.iter().count();
        (sound && count == self.order.len()).then_some(count)
    }
}
