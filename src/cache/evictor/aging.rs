//! Dropping prefixes that were not used for a time, whether their blocks are needed or not.
//!
//! If that is configured, the candidates are ordered a second time, by last use. The oldest is trimmed as a victim of the
//! policy would be; what is left of its path was used no earlier, and is a candidate of its own then.

use super::exchange::SLICE;
use super::{Choice, Evictor, Ranking, Resources};
use crate::cache::events::EvictionReason;
use crate::policy::{CandidateEntry, CandidateId, Policy, PolicyKind, Standing};
use crate::reclaim::Link;
use crate::tree::Point;

/// Candidates by last use; `None` if nothing is dropped for its age.
#[derive(Debug, Default)]
pub(in crate::cache) struct Aging(Option<Box<dyn Policy>>);

impl Aging {
    pub(super) fn new(wanted: bool) -> Self {
        Self(wanted.then(|| PolicyKind::Lru.build()))
    }

    pub(super) fn file(&mut self, slot: CandidateId, standing: Standing, entry: CandidateEntry) {
        if let Some(order) = &mut self.0 {
            order.file(slot, Standing { demoted: false, ..standing }, CandidateEntry { group: None, ..entry });
        }
    }

    pub(super) fn remove(&mut self, slot: CandidateId) {
        if let Some(order) = &mut self.0 {
            order.remove(slot);
        }
    }

    fn oldest(&mut self) -> Option<CandidateId> {
        self.0.as_mut()?.choose()
    }

    /// The order, for tests to overwrite.
    #[cfg(test)]
    pub(in crate::cache) fn order_mut(&mut self) -> &mut dyn Policy {
        &mut **self.0.as_mut().expect("built with an age")
    }

    /// The order, for `validate`.
    pub(in crate::cache) fn order(&self) -> Option<&dyn Policy> {
        self.0.as_deref()
    }
}

impl Ranking {
    fn oldest(&mut self) -> Option<Link<Point>> {
        let slot = self.aging.oldest()?;
        self.at(slot)
    }
}

impl Evictor {
    /// Drops a slice of the prefixes that were last used at `idle_since` or before; true if more is left. Takes in at most
    /// `entries` changes meanwhile, from which it subtracts what it took.
    pub(super) fn age(&mut self, idle_since: u64, entries: &mut usize, resources: Resources<'_>) -> bool {
        let dropped = self.evict_by(SLICE, entries, resources, |evictor| {
            let oldest = evictor.ranking.oldest()?;
            let last = oldest.get(resources.guard).statistics.last();
            let reason = EvictionReason::Age;
            (last <= idle_since).then_some(Choice { victim: oldest, most: usize::MAX, reason })
        });
        dropped == SLICE
    }
}
