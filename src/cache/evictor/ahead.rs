//! Prefetching the memory of the next victims while other victims are trimmed, and of the next entries of the queue while
//! others are taken out.
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
//!
//! An entry's point was used a moment ago; what the policy has on it, and on its neighbours in the order, was not. Eight entries
//! ahead its run and its place in the order are prefetched, four entries ahead the neighbours.

use super::{Evictor, Resources};
use crate::policy::CandidateId;
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::prefetch;
use crate::tree::Point;

/// With at most this many candidates, their points, runs and arrays stay in a core's own cache. One where tests and sanitizers
/// look for reads of freed memory.
const FEW: usize = if cfg!(any(test, radixkv_heap)) { 1 } else { 1024 };

/// Candidates whose own place was prefetched, and whose neighbours' places were not.
#[derive(Debug, Default)]
pub(super) struct Soon {
    candidates: [Option<CandidateId>; 4],
    next: usize,
}

impl Soon {
    /// Puts a candidate in the place of the oldest one.
    fn replace_oldest(&mut self, candidate: Option<CandidateId>) -> Option<CandidateId> {
        self.next = (self.next + 1) % self.candidates.len();
        std::mem::replace(&mut self.candidates[self.next], candidate)
    }
}

impl Evictor {
    /// Prefetches what the entries after the next one need.
    pub(super) fn look_into_backlog(&mut self, resources: Resources<'_>) {
        if self.ranking.policy.len() <= FEW {
            return;
        }
        while let Some(point) = self.backlog.ahead(resources.guard) {
            // Relaxed: the evictor alone ends points; a dead one's run may have been freed.
            if point.word.load(Relaxed).is_dead() {
                continue;
            }
            prefetch(point.run().as_ptr());
            let candidate = point.account.get(&self.owner).candidate;
            candidate.into_iter().for_each(|candidate| self.ranking.policy.prefetch(candidate));
            if let Some(earlier) = self.soon.replace_oldest(candidate) {
                self.ranking.policy.prefetch_neighbours(earlier);
            }
        }
    }

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
