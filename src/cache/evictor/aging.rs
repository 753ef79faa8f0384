//! What nobody has used for so long goes, whether its blocks are needed or not.
//!
//! Where that is asked for the candidates stand in a second order, by last use. The oldest goes with all that only it
//! holds; what is left of its path was used no earlier, and is looked at in its turn.

use super::exchange::SLICE;
use super::{Evictor, Ranking, Resources};
use crate::policy::{Entry, Policy, PolicyKind, Slot, Standing};
use crate::reclaim::Link;
use crate::tree::Point;

/// Candidates by last use; nothing where none is dropped for its age.
#[derive(Debug, Default)]
pub(in crate::cache) struct Aging(Option<Box<dyn Policy>>);

impl Aging {
    pub(super) fn new(wanted: bool) -> Self {
        Self(wanted.then(|| PolicyKind::Lru.build()))
    }

    pub(super) fn file(&mut self, slot: Slot, standing: Standing, entry: Entry) {
        if let Some(order) = &mut self.0 {
            order.file(slot, Standing { demoted: false, ..standing }, Entry { group: None, ..entry });
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        if let Some(order) = &mut self.0 {
            order.remove(slot);
        }
    }

    fn oldest(&mut self) -> Option<Slot> {
        self.0.as_mut()?.choose()
    }

    /// The order, to be written over.
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
    /// Drops a slice of what was last used at `idle_since` or before; true if more is left. Takes in up to `entries`
    /// changes meanwhile, less those then.
    pub(super) fn age(&mut self, idle_since: u64, entries: &mut usize, resources: Resources<'_>) -> bool {
        let dropped = self.evict_by(SLICE, entries, resources, |evictor| {
            let oldest = evictor.ranking.oldest()?;
            let last = oldest.get(resources.guard).statistics.last();
            (last <= idle_since).then_some((oldest, usize::MAX))
        });
        self.totals.aged += dropped as u64;
        dropped == SLICE
    }
}
