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
//! Only a hint: the policy names a dozen victims at once, and may choose another one when a turn comes.
//!
//! An entry's point was used a moment ago; what the policy has on it, and on its neighbours in the order, was not. Eight entries
//! ahead its run and its place in the order are prefetched, four entries ahead the neighbours.

use super::{Evictor, Resources};
use crate::policy::{CandidateId, FirstOnes, NAMED};
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

/// How many victims ahead the first step is.
const FURTHEST: usize = 6;

/// Victims that the policy has named.
#[derive(Debug, Default)]
pub(super) struct Upcoming {
    named: FirstOnes,
    /// The present one of them.
    at: usize,
}

impl Upcoming {
    /// Goes on to `victim`; false if the policy must name others first.
    fn go_to(&mut self, victim: Option<CandidateId>) -> bool {
        let further = self.named[self.at..].iter().take(2).position(|named| *named == victim);
        self.at += further.unwrap_or(0);
        further.is_some() && self.at + FURTHEST < NAMED
    }

    /// The victim so many after the present one.
    fn ahead(&self, victims: usize) -> Option<CandidateId> {
        *self.named.get(self.at + victims)?
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

    /// Prefetches the parts of the victims after `victim`, which the policy has chosen.
    pub(super) fn look_ahead(&mut self, victim: Ref<'_, Point>, resources: Resources<'_>) {
        if self.ranking.policy.len() <= FEW {
            return;
        }
        if !self.upcoming.go_to(victim.account.get(&self.owner).candidate) {
            self.upcoming = Upcoming { named: self.ranking.policy.first_ones(), at: 0 };
        }
        if let Some(slot) = self.upcoming.ahead(FURTHEST) {
            self.ranking.policy.prefetch(slot);
            self.ranking.slots().prefetch(slot.index());
        }
        if let Some(point) = self.victim(4, resources) {
            prefetch(point.as_ptr());
        }
        if let Some(point) = self.victim(2, resources) {
            prefetch(point.run().as_ptr());
        }
        if let Some(arrays) = self.victim(1, resources).and_then(|point| point.run().arrays(resources.guard)) {
            prefetch(arrays.as_ptr());
        }
    }

    /// The point that was named so many victims ahead, or another one that has its slot by now; it is alive, because only the
    /// evictor ends points.
    fn victim<'g>(&self, ahead: usize, resources: Resources<'g>) -> Option<Ref<'g, Point>> {
        Some(self.ranking.at(self.upcoming.ahead(ahead)?)?.get(resources.guard))
    }
}
