//! Candidates: the idle ends of runs, filed with the policy.

use super::Evictor;
use crate::policy::{Policy, Slot, Standing};
use crate::reclaim::{Link, Ref};
use crate::tree::Point;

/// The policy, and which point stands in which of its slots.
#[derive(Debug)]
pub(in crate::cache) struct Ranking {
    pub(in crate::cache) policy: Box<dyn Policy>,
    candidates: Vec<Option<Link<Point>>>,
    vacant: Vec<Slot>,
}

impl Ranking {
    pub(super) fn new(policy: Box<dyn Policy>) -> Self {
        Self { policy, candidates: Vec::new(), vacant: Vec::new() }
    }

    /// The best victim; it stays filed.
    pub(super) fn choose(&mut self) -> Option<Link<Point>> {
        let slot = self.policy.choose()?;
        self.at(slot)
    }

    /// The point in `slot`.
    pub(in crate::cache) fn at(&self, slot: Slot) -> Option<Link<Point>> {
        self.candidates.get(slot.index()).copied().flatten()
    }

    /// Which point stands in which slot.
    pub(in crate::cache) fn slots(&self) -> &[Option<Link<Point>>] {
        &self.candidates
    }

    /// Slots without a point.
    pub(in crate::cache) fn vacant(&self) -> &[Slot] {
        &self.vacant
    }

    /// Both tables, to be written over.
    #[cfg(test)]
    pub(in crate::cache) fn tables(&mut self) -> (&mut Vec<Option<Link<Point>>>, &mut Vec<Slot>) {
        (&mut self.candidates, &mut self.vacant)
    }

    fn occupy(&mut self, point: Link<Point>) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.candidates.push(None);
            Slot::at(self.candidates.len() - 1)
        });
        self.candidates[slot.index()] = Some(point);
        slot
    }

    fn vacate(&mut self, slot: Slot) {
        self.policy.remove(slot);
        self.candidates[slot.index()] = None;
        self.vacant.push(slot);
    }
}

impl Evictor {
    /// Files `point`, or files it anew under its present standing.
    pub(super) fn file(&mut self, point: Ref<'_, Point>) {
        let slot = match point.account.get(&self.owner).slot {
            Some(slot) => slot,
            None => {
                let slot = self.ranking.occupy(point.link());
                point.account.with_mut(&mut self.owner, |account| account.slot = Some(slot));
                slot
            }
        };
        self.ranking.policy.file(slot, standing(point));
    }

    /// Takes `point` out of the ranking if it stands in it.
    pub(super) fn unfile(&mut self, point: Ref<'_, Point>) {
        let slot = point.account.with_mut(&mut self.owner, |account| account.slot.take());
        if let Some(slot) = slot {
            self.ranking.vacate(slot);
        }
    }
}

/// What the policy is told of a point.
pub(in crate::cache) fn standing(point: Ref<'_, Point>) -> Standing {
    let tally = point.statistics.read();
    Standing { last: tally.last, hits: tally.hits, born: point.run().born() }
}
