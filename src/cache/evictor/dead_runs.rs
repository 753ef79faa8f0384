//! Runs that have died in a turn of the evictor, on their way out of the tree.
//!
//! Under the lock a run dies: its length becomes zero, its blocks and its part in the accounts go,
//! and the point that it hangs on loses a child (trim.rs). From then on every operation takes it
//! for absent. What is left needs no lock and comes after it: the run is taken out of the map that
//! leads to it, and its memory is retired. Until then an insert puts its own run in the dead one's
//! place, as always.
//!
//! A part of the run may belong to others: a dead point to an entry of the queue, arrays to a draft
//! for subscribers. Another thread's turn may retire it as soon as this one has given up the lock,
//! and what can be reached must not be retired. Such a run is unlinked under the lock.
//!
//! The point that a dead run hangs on may end before the run is unlinked, under the same lock or in
//! another thread's turn. It stays readable because the turn's guard was pinned before the run
//! died, and is dropped after the run is unlinked.
//!
//! Several threads may unlink in one map at once: a change is one compare-and-swap and a count, and
//! a change in the map of a dead point affects no one. A walk over children under the lock may meet
//! a run that died in another thread's turn: it skips runs of length zero.

use std::cell::{Cell, RefCell};

use smallvec::SmallVec;

use crate::cache::matching::seen::{Mark, SeenBlocks};
use crate::reclaim::{Guard, Link, Ref};
use crate::tree::{Arrays, Point, Run};

/// How many runs ahead the way to a run is prefetched behind how many branches: those before are
/// few, and stay in the caches.
const WAY: [(usize, u32); 3] = [(6, 3), (4, 4), (2, 5)];

/// What most turns come to: one victim, or few.
const FEW: usize = 4;
/// What a turn with more victims has room for at once.
const MANY: usize = 128;

/// What has died in one turn.
#[derive(Debug, Default)]
pub(in crate::cache) struct DeadRuns {
    dead: RefCell<Dead>,
    marks: RefCell<Marks>,
    /// What leads to them is in no core's own cache.
    are_far: Cell<bool>,
}

#[derive(Debug, Default)]
struct Dead {
    runs: SmallVec<[DeadRun; FEW]>,
    /// Points of theirs that no queue entry owns, beside one of each run.
    points: SmallVec<[Link<Point>; FEW]>,
}

/// What is left of evicted blocks.
type Marks = SmallVec<[Mark; FEW]>;

#[derive(Debug)]
struct DeadRun {
    run: Link<Run>,
    /// Nothing if a draft names them, which ends them.
    arrays: Option<Link<Arrays>>,
    /// A point of it that no queue entry owns.
    point: Option<Link<Point>>,
}

/// Unlinks the dead runs of a turn when it is dropped, after the lock, and leaves their marks.
#[derive(Debug)]
pub(in crate::cache) struct Unlinking<'a> {
    dead: &'a DeadRuns,
    seen: &'a SeenBlocks,
    guard: &'a Guard<'a>,
}

impl DeadRuns {
    /// Adds a run of length zero, and its dead points that no queue entry owns.
    pub(super) fn add<'g>(
        &self,
        run: Ref<'g, Run>,
        arrays: Option<Ref<'g, Arrays>>,
        mut points: impl Iterator<Item = Ref<'g, Point>>,
    ) {
        let mut dead = self.dead.borrow_mut();
        let point = points.next().map(Ref::link);
        push(&mut dead.runs, DeadRun { run: run.link(), arrays: arrays.map(Ref::link), point });
        points.for_each(|point| push(&mut dead.points, point.link()));
    }

    /// What leads to the runs of this turn is to be prefetched.
    pub(super) fn note_far(&self) {
        self.are_far.set(true);
    }

    /// A mark that is to be left when the lock was given up. Under it, the next read-modify-write
    /// would wait for its place.
    pub(super) fn mark(&self, mark: Mark) {
        push(&mut self.marks.borrow_mut(), mark);
    }

    /// Unlinks and retires what has died so far.
    pub(super) fn unlink(&self, guard: &Guard<'_>) {
        let Dead { runs, points } = &mut *self.dead.borrow_mut();
        let ways = if self.are_far.get() && runs.len() > 1 { &WAY[..] } else { &[] };
        for (at, DeadRun { run, .. }) in runs.iter().enumerate() {
            for (ahead, branches) in ways {
                let later = runs.get(at + ahead);
                later.into_iter().for_each(|later| later.run.get(guard).prefetch_way(*branches, guard));
            }
            let run = run.get(guard);
            if let Some(parent) = run.parent() {
                crate::sync::failpoint!("trim::unlink");
                // If this fails, an insert has put a live run in its place, or this was done before
                // a panic.
                parent.as_ref().children.remove(run, guard);
            }
        }
        // With their runs the points are out of reach, and need not be taken out of their maps.
        let mut retiring = guard.retire_many();
        for DeadRun { run, arrays, point } in runs.iter() {
            arrays.iter().for_each(|arrays| retiring.add(arrays.get(guard)));
            retiring.add(run.get(guard));
            point.iter().for_each(|point| retiring.add(point.get(guard)));
        }
        points.iter().for_each(|point| retiring.add(point.get(guard)));
        runs.clear();
        points.clear();
    }

    /// The end of a turn that pinned `guard` before any run died in it.
    pub(in crate::cache) fn unlink_by<'a>(&'a self, guard: &'a Guard<'a>, seen: &'a SeenBlocks) -> Unlinking<'a> {
        Unlinking { dead: self, seen, guard }
    }
}

/// Adds to what is few, or many at once.
#[inline]
fn push<T>(list: &mut SmallVec<[T; FEW]>, item: T) {
    if list.len() == FEW {
        list.reserve_exact(MANY);
    }
    list.push(item);
}

impl Drop for Unlinking<'_> {
    fn drop(&mut self) {
        self.dead.unlink(self.guard);
        self.dead.marks.borrow_mut().drain(..).for_each(|mark| self.seen.leave(mark));
    }
}
