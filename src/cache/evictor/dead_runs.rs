//! Runs that died in a turn of the evictor and are still to be unlinked and retired.
//!
//! A run dies under the lock: its length becomes zero, its blocks leave the accounts, and its
//! parent point loses a child (trim.rs). From then on every operation treats it as absent. The rest
//! is done after the lock is released: the run is removed from its parent point's map, and its
//! memory is retired. Until then an insert may replace the dead run in the map by its own.
//!
//! A part of the run may have another owner: a queue entry owns a dead point, a draft for
//! subscribers owns arrays. Another thread's turn may retire that part as soon as this turn has
//! released the lock, and a node that can still be reached must not be retired. So such a run is
//! unlinked under the lock.
//!
//! The parent point of a dead run may die before the run is unlinked, in the same turn or in
//! another thread's. It stays readable because the turn's guard was pinned before the run died, and
//! is dropped after the run is unlinked.
//!
//! Several threads may unlink in one map at once: a change is one compare-and-swap and a count, and
//! a change in the map of a dead point affects no one. A walk over children under the lock may meet
//! a run that died in another thread's turn: it skips runs of length zero.

use std::cell::RefCell;

use smallvec::SmallVec;

use crate::cache::matching::ghost_table::{GhostTable, Mark};
use crate::reclaim::{Guard, Link, Ref};
use crate::tree::{Arrays, Point, Run};

/// Inline capacity of the lists, enough for most turns: one victim, or few.
const FEW: usize = 4;
/// How many more items a full inline list reserves at once.
const MANY: usize = 128;

/// The runs that died in one turn, and the marks to leave for their blocks.
#[derive(Debug, Default)]
pub(in crate::cache) struct DeadRuns {
    dead: RefCell<Dead>,
    marks: RefCell<Marks>,
}

#[derive(Debug, Default)]
struct Dead {
    runs: SmallVec<[DeadRun; FEW]>,
    /// Points of these runs that no queue entry owns, except the one that is in [`DeadRun`].
    points: SmallVec<[Link<Point>; FEW]>,
}

type Marks = SmallVec<[Mark; FEW]>;

#[derive(Debug)]
struct DeadRun {
    run: Link<Run>,
    /// `None` if a draft names them: they are retired when the draft ends.
    arrays: Option<Link<Arrays>>,
    /// A point of it that no queue entry owns.
    point: Option<Link<Point>>,
}

/// Unlinks the dead runs of a turn and leaves their marks when it is dropped, after the lock is
/// released.
#[derive(Debug)]
pub(in crate::cache) struct Unlinking<'a> {
    dead: &'a DeadRuns,
    seen: &'a GhostTable,
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

    /// Keeps a mark, to be left after the lock is released. Under the lock, the next
    /// read-modify-write would have to wait for the mark's cache line.
    pub(super) fn mark(&self, mark: Mark) {
        push(&mut self.marks.borrow_mut(), mark);
    }

    /// Unlinks and retires the runs that have died so far.
    pub(super) fn unlink(&self, guard: &Guard<'_>) {
        let Dead { runs, points } = &mut *self.dead.borrow_mut();
        for DeadRun { run, .. } in runs.iter() {
            let run = run.get(guard);
            if let Some(parent) = run.parent() {
                crate::sync::failpoint!("trim::unlink");
                // If this fails, an insert has put a live run in its place, or the run was unlinked
                // before a panic.
                parent.as_ref().children.remove(run, guard);
            }
        }
        // Nothing leads to the points of an unlinked run, so they stay in its map.
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

    /// Returns a value that unlinks the runs when it is dropped. The turn must have pinned `guard`
    /// before any run died in it.
    pub(in crate::cache) fn unlink_by<'a>(&'a self, guard: &'a Guard<'a>, seen: &'a GhostTable) -> Unlinking<'a> {
        Unlinking { dead: self, seen, guard }
    }
}

/// Adds an item; a full inline list reserves room for [`MANY`] more.
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
