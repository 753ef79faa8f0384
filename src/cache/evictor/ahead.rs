//! Prefetching the memory of the next victims while other victims are trimmed.
//!
//! A victim was last touched long ago. With many candidates its data is in main memory and not in a cache of the processor,
//! and each part of it holds the address of the next part. So the next victims are prefetched in steps, each step when the
//! part before has arrived:
//!
//! | victims ahead | prefetched |
//! |---|---|
//! | 6 | its entries in the tables of ranking and policy |
//! | 4 | its point |
//! | 2 | its run |
//! | 1 | its run's arrays |
//!
//! Only a hint: the policy may choose another victim when its turn comes.

use super::{Evictor, Resources};
use crate::policy::CandidateId;
use crate::reclaim::Ref;
use crate::sync::prefetch;
use crate::tree::Point;

/// With at most this many candidates, their points, runs and arrays stay in a core's own cache.
const FEW: usize = 1024;

impl Evictor {
    /// Prefetches the parts of the victims after the next one.
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

    /// The point that is filed in `slot`; it is alive, because only the evictor ends points.
    fn victim<'g>(&self, slot: Option<CandidateId>, resources: Resources<'g>) -> Option<Ref<'g, Point>> {
        Some(self.ranking.at(slot?)?.get(resources.guard))
    }
}
