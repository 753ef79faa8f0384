//! What the next victims are made of, asked for while others are trimmed.
//!
//! A victim was last touched long ago. Among many candidates all that makes one lies in memory, in places that lead
//! from one to the next. So the ones that come up are asked for in steps, each when what it starts from has arrived:
//!
//! | victims ahead | asked for |
//! |---|---|
//! | 6 | its entries in the tables of ranking and policy |
//! | 4 | its point |
//! | 2 | its run |
//! | 1 | its run's arrays |
//!
//! A hint and no more: what is chosen and when is the policy's, and it may choose otherwise by then.

use super::{Evictor, Resources};
use crate::policy::Slot;
use crate::prefetch::prefetch;
use crate::reclaim::Ref;
use crate::tree::Point;

/// Candidates whose tables, points and runs stay in a core's own cache.
const FEW: usize = 4096;

impl Evictor {
    /// Asks for what the victims after the next one are made of.
    pub(super) fn look_ahead(&self, resources: Resources<'_>) {
        if self.ranking.policy.len() <= FEW {
            return;
        }
        let [first, second, _, fourth, _, sixth] = self.ranking.policy.following();
        if let Some(slot) = sixth {
            self.ranking.policy.prefetch(slot);
            self.ranking.slots().prefetch(slot.index());
        }
        if let Some(point) = self.victim(fourth, resources) {
            prefetch(point.as_ptr());
        }
        if let Some(point) = self.victim(second, resources) {
            prefetch(point.run().as_ptr());
        }
        if let Some(arrays) = self.victim(first, resources).and_then(|point| point.run().arrays(resources.guard)) {
            prefetch(arrays.as_ptr());
        }
    }

    /// The point that is filed in `slot`: the evictor alone ends points, so it is alive.
    fn victim<'g>(&self, slot: Option<Slot>, resources: Resources<'g>) -> Option<Ref<'g, Point>> {
        Some(self.ranking.at(slot?)?.get(resources.guard))
    }
}
