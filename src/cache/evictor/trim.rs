//! Trimming: freeing blocks from the end of a run.
//!
//! The evictor unfiles a victim, or the end of a run that must be removed in any case, and trims
//! it:
//!
//! 1. Load the run word.
//! 2. Publish a point at the target depth if no live one is there: at rest, a run ends at a point
//!    (tree, T3).
//! 3. Kill the idle points beyond the target, deepest first, up to the first that is held.
//! 4. Set the length by a compare-and-swap against the word of step 1. If that fails because
//!    another thread has made a point, go back to 3. If the run has grown, nothing is cut, and its
//!    old end gets a point.
//! 5. The evictor now owns the blocks beyond; the statistics of dead points flow to the last point
//!    left.
//! 6. The last point is ranked again, and the dead ones are removed from the run's map. A run of
//!    length zero is unlinked together with its points, after the turn has released the lock
//!    (dead_runs.rs).
//!
//! A run can have as many points as tokens, so step 3 uses the evictor's list of known points
//! (`tree::known`) if it is complete (`Points::are_known`). The end of a run is an ordinary point:
//! if it dies and a reader makes it again before step 4, the run keeps its length.
//!
//! # Statistics flow down
//!
//! A match writes only to the point where it ends. When a point dies, its statistics are added to
//! the next point *below* it: the point before it on its run, or the parent point of the run.
//!
//! ```text
//! below.last  = max(below.last, dead.last)
//! below.hits += dead.hits - 1
//! ```
//!
//! Every point begins with one hit, for the insert that cached its block. The point below has its
//! own, so one hit of the dead point is left out. A point becomes a candidate only when nothing is
//! beyond it, so by then its statistics are as if each use had been counted at every block of its
//! path.

use std::ops::Range;

use smallvec::SmallVec;

use super::listeners::retire_unless_drafted;
use super::{Evictor, Resources};
use crate::cache::numbers::stats::Total;
use crate::reclaim::{Link, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::tree::{Point, Run, RunWord, Tally, Word, sort_by_depth};

impl Evictor<'_> {
    /// Frees up to `want` blocks from `last`, the end of its run; returns how many: none if `last`
    /// was leased meanwhile, or is not the end any more. If `want` is zero, removes a last point
    /// that has no whole block of its own.
    pub(super) fn trim<'g>(&mut self, last: Ref<'g, Point>, want: usize, resources: Resources<'g>) -> usize {
        let run = last.run();
        self.go_to(run);
        let word = run.word();
        let len = word.len();
        if len != last.depth() {
            // The run has grown, and its new end is in the queue.
            return 0;
        }
        self.take_growth_in(run, len, resources);
        let target = self.target(last, want, resources);
        if target > 0 {
            publish_idle(run, target, resources);
        }
        crate::sync::failpoint!("trim::begun");
        let mut dead = Dead::default();
        if target == 0 && self.is_only_point(last) {
            if let Some(killed) = kill(last) {
                if run.shorten(word, 0).is_ok() {
                    let tally = killed.tally(run.parent().is_some_and(keeps_statistics), resources);
                    // The run's list of known points is freed with the run.
                    self.strike_from_accounts(last, resources);
                    crate::sync::failpoint!("trim::shortened");
                    return self.end_run(run, len, tally, &[killed], resources);
                }
                self.strike(last, resources);
                dead.add((killed, killed.tally(true, resources)));
            }
        }
        self.trim_to(target, run, word, dead, resources)
    }

    /// Does steps 3 to 6 for a run whose word was `word`; `dead` has the points killed so far.
    fn trim_to<'g>(
        &mut self,
        target: u32,
        run: Ref<'g, Run>,
        mut word: RunWord,
        mut dead: Dead<'g>,
        resources: Resources<'g>,
    ) -> usize {
        let len = word.len();
        let end = loop {
            let end = self.kill_beyond(run, target..len, &mut dead, resources);
            // The last point is held: nothing can be cut.
            if end == len {
                break end;
            }
            match run.shorten(word, end) {
                Ok(()) => break end,
                // The run grew. A point at its old end keeps the statistics of the blocks up to it.
                Err(found) if found.len() != len => {
                    publish_idle(run, len, resources);
                    break len;
                }
                Err(found) => word = found,
            }
        };
        crate::sync::failpoint!("trim::shortened");
        if end == 0 {
            return self.end_run(run, len, dead.flowing, &dead.points, resources);
        }
        let freed = self.free_beyond(run, end, len, resources);
        if let Some(now_last) = run.as_ref().points.get(end, resources.guard) {
            flow(now_last, dead.flowing, resources);
            self.first_mut().revisit.push(now_last.link());
        }
        dead.points.into_iter().for_each(|dead| take_out(dead, resources));
        if end > target && target > 0 {
            self.withdraw(run, target, resources);
        }
        // A run that was not shortened may be growing into its spare room.
        let spare = if end < len { run.as_ref().shrink(end, resources.layout_of(run), resources.guard) } else { None };
        if let Some(arrays) = spare {
            retire_unless_drafted(arrays, resources.guard);
        }
        freed
    }

    /// The depth at which the run should end: the block boundary that frees `want` blocks, but no
    /// lower than the next known point: the blocks below are evicted when that point's turn comes.
    /// If no block would remain, that point's depth, or zero.
    fn target(&self, last: Ref<'_, Point>, want: usize, resources: Resources<'_>) -> u32 {
        let run = last.run();
        let below = self.point_below(last).map_or(0, |below| below.depth());
        let layout = resources.layout_of(run);
        let blocks = run.blocks_to(last.depth(), layout);
        let keep = blocks.saturating_sub(want).max(run.blocks_to(below, layout));
        if keep == 0 {
            return below;
        }
        let start = run.start();
        let boundary = layout.end_of(layout.blocks(start) + keep);
        ((boundary - start) as u32).max(below)
    }

    /// Kills the idle points beyond `cut.start`, deepest first. Returns the depth of the first held
    /// one, or `cut.start`.
    ///
    /// A point beyond `cut.end`, the run's current end, is a `NEW` point of a reader that saw a
    /// longer run. The threads that hold it find that the run is shorter (lease.rs). Stopping at it
    /// here would make the run longer.
    fn kill_beyond<'g>(
        &mut self,
        run: Ref<'g, Run>,
        cut: Range<u32>,
        dead: &mut Dead<'g>,
        resources: Resources<'g>,
    ) -> u32 {
        let mut points = std::mem::take(&mut self.first_mut().to_kill);
        self.find_within(run, cut.clone(), &mut points, resources);
        let mut end = cut.start;
        for point in points.drain(..).map(|point| point.get(resources.guard)) {
            // Relaxed: a dead point stays dead, and its statistics were taken when it was killed.
            if point.word.load(Relaxed).is_dead() {
                continue;
            }
            match self.kill(point, resources) {
                Some(killed) => dead.add(killed),
                // Relaxed: only this flag is used, and a dead point stays dead.
                None if point.word.load(Relaxed).is_dead() => {}
                None => {
                    end = point.depth();
                    break;
                }
            }
        }
        self.first_mut().to_kill = points;
        end
    }

    /// Whether `point` is the only point of its run, as in nearly all runs that die.
    #[inline]
    fn is_only_point(&self, point: Ref<'_, Point>) -> bool {
        let run = point.run();
        let only = run.account.with(&self.owner, |account| account.points.only());
        only == Some(point.link()) && run.as_ref().points.are_known(1)
    }

    /// Adds the points beyond `cut.start` and up to `cut.end` to `within`, the deepest first. Looks
    /// only at the known points if there are no others.
    fn find_within(&self, run: Ref<'_, Run>, cut: Range<u32>, within: &mut Vec<Link<Point>>, resources: Resources<'_>) {
        let points = &run.as_ref().points;
        let known = run.account.with(&self.owner, |account| {
            let all = points.are_known(account.points.len());
            if all {
                account.points.within(cut.clone(), &run, &mut |point| within.push(point));
            }
            all
        });
        if !known {
            let mut found = SmallVec::<[Ref<'_, Point>; 8]>::new();
            points.for_each(resources.guard, &mut |point| {
                if point.depth() > cut.start && point.depth() <= cut.end {
                    found.push(point);
                }
            });
            sort_by_depth(&mut found);
            within.extend(found.into_iter().rev().map(Ref::link));
        }
    }

    /// Kills a point and removes it from the accounts; it stays in its run's map. Returns it with
    /// its statistics, or `None` if it is held.
    fn kill<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) -> Option<(Killed<'g>, Option<Tally>)> {
        let killed = kill(point)?;
        self.strike(point, resources);
        Some((killed, killed.tally(true, resources)))
    }

    /// Removes a run of length zero: frees its blocks and lowers its parent point's child count;
    /// returns the number of blocks. The run is unlinked at the end of the turn, or now if another
    /// turn may retire a part of it before that.
    fn end_run<'g>(
        &mut self,
        run: Ref<'g, Run>,
        len: u32,
        flowing: Option<Tally>,
        points: &[Killed<'g>],
        resources: Resources<'g>,
    ) -> usize {
        let freed = self.free_beyond(run, 0, len, resources);
        self.totals.subtract(Total::Runs, 1);
        if let Some(parent) = run.parent() {
            flow(parent, flowing, resources);
            self.take_child_off(parent, resources);
        }
        let arrays = run.arrays(resources.guard);
        let is_named = arrays.is_some_and(|arrays| arrays.leave());
        let own = points.iter().filter(|killed| !killed.is_queued);
        resources.dead.add(run, arrays.filter(|_| !is_named), own.map(|killed| killed.point));
        let is_shared = is_named || points.iter().any(|killed| killed.is_queued);
        if is_shared {
            resources.dead.unlink(resources.guard);
        }
        freed
    }

    /// Lowers the child count of a dead run's parent point. After the last child, queues the point
    /// for its shard to rank it again.
    #[inline]
    fn take_child_off(&mut self, parent: Ref<'_, Point>, resources: Resources<'_>) {
        if !self.has(parent.run()) {
            if parent.word.remove_child_for_other_shard() {
                resources.queues.push(parent);
            }
            return;
        }
        let removed = parent.word.remove_child();
        if removed.push {
            self.of_mut(parent.run()).backlog.push(parent);
        } else if removed.is_silent_end {
            self.first_mut().revisit.push(parent.link());
        }
    }

    /// Removes the point of step 2 if it is unused, because the run ends beyond it.
    fn withdraw<'g>(&mut self, run: Ref<'g, Run>, target: u32, resources: Resources<'g>) {
        let Some(point) = run.as_ref().points.get(target, resources.guard) else {
            return;
        };
        let unused = point.tally(resources.guard) == Tally::NONE && !point.account.get(&self.owner).is_known();
        if let Some((killed, _)) = unused.then(|| self.kill(point, resources)).flatten() {
            take_out(killed, resources);
        }
    }

    /// Removes an idle branch point without child runs; its statistics flow down.
    pub(super) fn end_branch<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) {
        let below = self.point_below(point).or_else(|| point.run().parent());
        if let Some((killed, tally)) = self.kill(point, resources) {
            take_out(killed, resources);
            if let Some(below) = below {
                flow(below, tally, resources);
            }
        }
    }
}

/// Points that one trim has killed, and their combined statistics.
#[derive(Default)]
struct Dead<'g> {
    points: SmallVec<[Killed<'g>; 2]>,
    flowing: Option<Tally>,
}

impl<'g> Dead<'g> {
    #[inline]
    fn add(&mut self, (killed, tally): (Killed<'g>, Option<Tally>)) {
        let joined = |tally: Tally| self.flowing.map_or(tally, |flowing| flowing.joined(tally));
        self.flowing = tally.map(joined).or(self.flowing);
        self.points.push(killed);
    }
}

/// A dead point that is to be retired.
#[derive(Clone, Copy)]
struct Killed<'g> {
    point: Ref<'g, Point>,
    /// A queue entry owns the point, which is retired when the entry is taken out.
    is_queued: bool,
}

impl<'g> Killed<'g> {
    /// The point's statistics, if they flow down. Called once, because it also clears the point's
    /// anchor.
    #[inline]
    fn tally(self, flows: bool, resources: Resources<'g>) -> Option<Tally> {
        let point = self.point.as_ref();
        let tally = flows.then(|| point.tally(resources.guard));
        point.marks.cast_off(resources.guard);
        tally
    }

    /// Retires the point, which no map leads to.
    fn retire(self, resources: Resources<'g>) {
        if !self.is_queued {
            resources.guard.retire(self.point);
        }
    }
}

/// Kills a point, which stays in the accounts; returns `None` if it is held.
#[inline]
fn kill(point: Ref<'_, Point>) -> Option<Killed<'_>> {
    let before = point.word.kill()?;
    crate::sync::failpoint!("trim::killed");
    Some(Killed { point, is_queued: before.is_queued() })
}

/// Takes a dead point out of its run's map, and retires it.
fn take_out<'g>(killed: Killed<'g>, resources: Resources<'g>) {
    // If this fails, another thread has put a live point in its place.
    killed.point.run().as_ref().points.remove(killed.point, resources.guard);
    killed.retire(resources);
}

/// Whether a point keeps statistics: a root does not, because it is never ranked.
#[inline]
fn keeps_statistics(point: Ref<'_, Point>) -> bool {
    !point.run().is_trunk()
}

/// Lets statistics flow down to `below`.
fn flow(below: Ref<'_, Point>, tally: Option<Tally>, resources: Resources<'_>) {
    if let Some(tally) = tally.filter(|_| keeps_statistics(below)) {
        below.take_in(tally, resources.guard);
    }
}

/// Makes sure that there is a live point at `depth`, up to which the run is kept.
fn publish_idle<'g>(run: Ref<'g, Run>, depth: u32, resources: Resources<'g>) {
    let points = &run.as_ref().points;
    let mut found = points.get(depth, resources.guard);
    // Relaxed: dead is final, and only the evictor kills proven points.
    while found.is_none_or(|point| point.word.load(Relaxed).is_dead()) {
        let point = Point::new(run.link(), depth, Word::idle(), 0, resources.guard);
        match points.insert(found, point, resources.guard) {
            Ok(_) => return,
            Err((_, instead)) => found = instead,
        }
    }
}
