//! Retained prefixes: the cache itself holds a lease on them until a deadline.
//!
//! It is an ordinary lease, counted in the point's word. So a retained prefix is protected, also in
//! the accounts, and no other part of the cache needs to know about retention. A session takes the
//! lease, writes the deadline to the point's marks (tree/marks.rs) and announces the point through
//! the queue (`cache::leases::retention`). The evictor keeps one lease and the latest deadline for
//! each point, and releases the lease after the deadline.

use std::ops::Bound;

use super::{Evictor, Resources, Shard};
use crate::reclaim::{Link, Ref};
use crate::tree::{Point, PointTable, Space};

/// A deadline, and a serial number that distinguishes equal deadlines.
type Deadline = (u64, u64);

/// Retained points. Each owns one lease, which keeps it alive.
///
/// The table is a B-tree, because a hash table of a million points is copied at once when it grows.
#[derive(Debug, Default)]
pub(in crate::cache) struct Retained {
    /// Each point has three entries, which end with its deadline: they begin with [`ALL`], with the
    /// address of the point, and with the address of its space.
    table: PointTable,
    entered: u64,
    /// Number of requests that were taken over; it wraps.
    pub(in crate::cache) taken: usize,
}

/// Begins one key of every point. No address is zero, so these are the first keys.
const ALL: u64 = 0;

impl Retained {
    /// Retains `point` until `until`, or until its current deadline if that is later. Returns true
    /// if it was already retained; the caller then has one lease too many.
    pub(in crate::cache) fn enter(&mut self, point: Ref<'_, Point>, until: u64) -> bool {
        let before = self.deadline(point);
        if before.is_none_or(|(deadline, _)| deadline < until) {
            self.remove(point);
            let keys = keys(point, (until, self.entered));
            self.entered += 1;
            keys.into_iter().for_each(|key| _ = self.table.insert(key, point.link()));
        }
        before.is_some()
    }

    /// Removes an entry; the caller releases its lease. Returns false if `point` is not retained.
    fn remove(&mut self, point: Ref<'_, Point>) -> bool {
        let Some(deadline) = self.deadline(point) else { return false };
        keys(point, deadline).into_iter().for_each(|key| _ = self.table.remove(&key));
        true
    }

    /// The earliest deadline under the address of a point or a space, and its point.
    fn first_of(&self, address: u64) -> Option<(Deadline, Link<Point>)> {
        let from = (Bound::Included((address, 0, 0)), Bound::Unbounded);
        let (&(of, until, serial), &point) = self.table.range(from).next()?;
        (of == address).then_some(((until, serial), point))
    }

    fn deadline(&self, point: Ref<'_, Point>) -> Option<Deadline> {
        self.first_of(point.link().address()).map(|(deadline, _)| deadline)
    }

    /// The point with the earliest deadline, if that is not after `now`.
    fn first(&self, now: u64) -> Option<Link<Point>> {
        self.table.first_key_value().filter(|((_, deadline, _), _)| *deadline <= now).map(|(_, point)| *point)
    }

    /// The point in `space` with the earliest deadline.
    pub(super) fn first_in(&self, space: Link<Space>) -> Option<Link<Point>> {
        self.first_of(space.address()).map(|(_, point)| point)
    }

    /// The earliest deadline.
    pub(in crate::cache) fn next(&self) -> Option<u64> {
        self.table.first_key_value().map(|((_, deadline, _), _)| *deadline)
    }

    pub(in crate::cache) fn contains(&self, point: Ref<'_, Point>) -> bool {
        self.deadline(point).is_some()
    }

    /// The number of retained points, for `validate`; `None` if the entries disagree.
    pub(in crate::cache) fn count(&self) -> Option<usize> {
        let sound = self.table.iter().all(|(&(_, until, serial), point)| {
            self.table.get(&(ALL, until, serial)) == Some(point)
                && self.table.contains_key(&(point.address(), until, serial))
        });
        let count = self.table.keys().take_while(|(of, ..)| *of == ALL).count();
        (sound && 3 * count == self.table.len()).then_some(count)
    }

    /// The table, for tests to overwrite.
    #[cfg(test)]
    pub(in crate::cache) fn table(&mut self) -> &mut PointTable {
        &mut self.table
    }
}

/// The keys of a point with this deadline.
fn keys(point: Ref<'_, Point>, (until, serial): Deadline) -> [(u64, u64, u64); 3] {
    [ALL, point.link().address(), point.run().space().link().address()].map(|of| (of, until, serial))
}

impl Evictor<'_> {
    /// Ends retentions whose deadline has passed, and refiles candidates whose priority has
    /// expired. Makes at most `steps` such changes, which it subtracts from `steps`.
    pub(super) fn keep_time(&mut self, steps: &mut usize, resources: Resources<'_>) {
        while *steps > 0 && self.one_change_of_time(resources) {
            *steps -= 1;
        }
    }

    fn one_change_of_time(&mut self, resources: Resources<'_>) -> bool {
        if let Some(point) = self.common.retained.first(self.now) {
            self.release_retention(point.get(resources.guard), resources);
        } else if let Some(slot) = self.ranking.due.first(self.now) {
            // Refiling sets the next time, or none.
            let candidate = self.ranking.at(slot).expect("a slot with a time has a candidate");
            self.file(candidate.get(resources.guard), resources);
        } else {
            return false;
        }
        true
    }

    /// Whether no retention and no candidate is due at `now`.
    pub(super) fn is_on_time(&self) -> bool {
        self.common.retained.first(self.now).is_none()
            && self.first().is_on_time()
            && self.others().all(Shard::is_on_time)
    }

    /// Takes over the retentions that sessions have written to the marks of `point`, with their
    /// leases.
    pub(super) fn take_retention_in(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) {
        if !self.has_all() {
            // Requested after the entry was checked: a turn of all takes it over.
            if point.marks.asked(resources.guard).is_some() {
                self.needs_all = true;
                self.defer(point);
            }
            return;
        }
        let Some(asked) = point.marks.take_asked(resources.guard) else {
            return;
        };
        self.common.retained.taken = self.common.retained.taken.wrapping_add(asked.leases as usize);
        // A prefix that no lookup can find is not retained: all its leases are released.
        let too_many = point.is_cut_off(resources.guard) || self.common.retained.enter(point, asked.until);
        for _ in u32::from(!too_many)..asked.leases {
            self.give_back(point, resources);
        }
        // The deadline may have passed already.
        if self.common.retained.deadline(point).is_some_and(|(deadline, _)| deadline <= self.now) {
            self.release_retention(point, resources);
        }
    }

    pub(super) fn release_retention(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) {
        if self.common.retained.remove(point) {
            self.give_back(point, resources);
        }
    }

    /// Ends the retention of `point`.
    pub(in crate::cache) fn end_retention(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) {
        self.take_retention_in(point, resources);
        self.release_retention(point, resources);
    }

    /// Releases a lease that the cache itself holds.
    fn give_back(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) {
        self.common.has_released = true;
        if point.word.release().push {
            self.of_mut(point.run()).backlog.push(point);
        } else {
            self.deflate_spare(point, resources);
        }
    }
}
