//! What is retained: prefixes that the cache itself keeps a lease on, until a deadline.
//!
//! Retaining is a lease like any other, counted in the point's word; so what is retained is protected, in the accounts
//! too, and nothing else of the cache has to know of it. A session takes the lease and leaves a note; the evictor keeps
//! one lease and one deadline for each point, the latest, and lets go when it is over.

use std::collections::{BTreeMap, HashMap};

use crossbeam_queue::SegQueue;

use super::{Evictor, Works};
use crate::reclaim::{Link, Ref};
use crate::tree::{Point, Space};

/// A point on which a session has taken a lease for the evictor to give back.
#[derive(Debug)]
pub(in crate::cache) struct Note {
    pub(in crate::cache) point: Link<Point>,
    /// When, by the clock that deadlines go by.
    pub(in crate::cache) until: u64,
}

/// Notes on their way to the evictor.
pub(in crate::cache) type Notes = SegQueue<Note>;

/// A deadline, and a serial number that keeps equal ones apart.
type Deadline = (u64, u64);

/// Retained points by their deadlines. Each entry owns one lease, which keeps its point.
#[derive(Debug, Default)]
pub(in crate::cache) struct Retained {
    order: BTreeMap<Deadline, Link<Point>>,
    deadlines: HashMap<Link<Point>, Deadline>,
    entered: u64,
}

impl Retained {
    /// Takes a note in; true if the point was retained already, so that the note's lease is one too many.
    pub(in crate::cache) fn enter(&mut self, note: &Note) -> bool {
        let before = self.deadlines.get(&note.point).copied();
        if before.is_none_or(|(deadline, _)| deadline < note.until) {
            if let Some(before) = before {
                self.order.remove(&before);
            }
            let deadline = (note.until, self.entered);
            self.entered += 1;
            self.order.insert(deadline, note.point);
            self.deadlines.insert(note.point, deadline);
        }
        before.is_some()
    }

    /// Takes an entry out; the caller gives its lease back. False if the point is not retained.
    fn remove(&mut self, point: Link<Point>) -> bool {
        let deadline = self.deadlines.remove(&point);
        deadline.is_some_and(|deadline| self.order.remove(&deadline).is_some())
    }

    /// The first point whose deadline has come at `now`.
    fn first(&self, now: u64) -> Option<Link<Point>> {
        self.order.first_key_value().filter(|((deadline, _), _)| *deadline <= now).map(|(_, point)| *point)
    }

    /// The first deadline.
    pub(in crate::cache) fn next(&self) -> Option<u64> {
        self.order.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Whether `point` is retained.
    pub(in crate::cache) fn contains(&self, point: Ref<'_, Point>) -> bool {
        self.deadlines.contains_key(&point.link())
    }

    /// Retained points, for `validate`; nothing if the structure contradicts itself.
    pub(in crate::cache) fn count(&self) -> Option<usize> {
        let sound = self.order.iter().all(|(deadline, point)| self.deadlines.get(point) == Some(deadline));
        (sound && self.order.len() == self.deadlines.len()).then_some(self.order.len())
    }

    /// The table by point, to be written over.
    #[cfg(test)]
    pub(in crate::cache) fn table(&mut self) -> &mut HashMap<Link<Point>, Deadline> {
        &mut self.deadlines
    }
}

impl Evictor {
    /// Brings what time changes up to date, in at most `limit` steps; how many it took.
    ///
    /// Takes notes in, lets go of what is retained no longer, and files candidates anew whose priority has expired.
    pub(super) fn keep_time(&mut self, limit: usize, works: Works<'_>) -> usize {
        self.now = self.now.max(works.now);
        let mut taken = 0;
        while taken < limit && self.one_change_of_time(works) {
            taken += 1;
        }
        taken
    }

    fn one_change_of_time(&mut self, works: Works<'_>) -> bool {
        // A look first: to pop from an empty queue is to pay for a fence.
        let note = if works.notes.is_empty() { None } else { works.notes.pop() };
        if let Some(note) = note {
            let point = note.point.get(works.guard);
            // A detached space is not found again: there is nothing to keep it for.
            if point.run().space().is_detached() || self.retained.enter(&note) {
                self.give_back(point, works);
            }
        } else if let Some(point) = self.retained.first(self.now) {
            self.let_go(point, works);
        } else if let Some(slot) = self.ranking.due.first(self.now) {
            // A slot with a moment has a candidate; filing it gives the slot its next moment or none.
            let candidate = self.ranking.at(slot).expect("filed with its moment");
            self.file(candidate.point.get(works.guard));
        } else {
            return false;
        }
        true
    }

    /// Whether nothing is left that has changed by `now`.
    pub(super) fn is_on_time(&self, works: Works<'_>) -> bool {
        let (retained, due) = (self.retained.first(self.now), self.ranking.due.first(self.now));
        works.notes.is_empty() && retained.is_none() && due.is_none()
    }

    fn let_go(&mut self, point: Link<Point>, works: Works<'_>) {
        if self.retained.remove(point) {
            self.give_back(point.get(works.guard), works);
        }
    }

    /// `point` is retained no longer.
    pub(in crate::cache) fn end_retention(&mut self, point: Ref<'_, Point>, works: Works<'_>) {
        self.keep_time(usize::MAX, works);
        self.let_go(point.link(), works);
    }

    /// Gives back a lease that counts on the point's word.
    fn give_back(&mut self, point: Ref<'_, Point>, works: Works<'_>) {
        self.has_let_go = true;
        if point.word.release() {
            works.queue.push(point);
        }
    }

    /// Nothing in `space` is retained any longer.
    pub(super) fn end_retentions(&mut self, space: Ref<'_, Space>, works: Works<'_>) {
        let all = self.retained.deadlines.keys().copied();
        let of_it: Vec<_> = all.filter(|point| point.get(works.guard).run().space() == space).collect();
        of_it.into_iter().for_each(|point| self.let_go(point, works));
    }
}
