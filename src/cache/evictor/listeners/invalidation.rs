//! Invalidating blocks: what holds wrong keys and values is found by no lookup any more, though
//! leases may still protect it.
//!
//! A block goes with all that lies beyond it. The run that it lies on is *shown* up to it alone, or
//! up to a branch inside it: walks compare no further, so no match reaches its end. Runs that hang
//! beyond are *severed*: taken out of their points' maps, and not shown at all. A severed run still
//! counts as a child of its point, so the path of a lease stays; no map leads to it, so the evictor
//! lists it until it dies. The runs beyond go first, children before parents: what is told of a run
//! is told while its path is whole, and a run that takes its place later is told later.
//!
//! What is hidden is freed at once if nothing holds it, and else by the change that says that
//! nothing does. A run that is hung under a hidden point meanwhile is severed when it is taken into
//! the accounts.
//!
//! The length of a run cannot say this, because a run with a held point is never shorter than it
//! (T4). So the arrays have a second length, of the shown tokens, which is where walks read the
//! number of tokens anyway. Hidden blocks are told to no subscriber and offered to no tier,
//! retentions of them end, and inserts and retentions from such a lease are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use smallvec::SmallVec;

use crate::block::{BlockId, Grid};
use crate::cache::evictor::exchange::SLICE;
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::listening::events::EvictionReason;
use crate::reclaim::{Guard, Link, Ref};
use crate::tree::{Point, Run};

/// Runs of which a part is hidden.
#[derive(Debug, Default)]
pub(in crate::cache) struct Hidden {
    runs: BTreeSet<Link<Run>>,
    /// Of those, the ones that no map leads to, by their parents.
    severed: BTreeMap<Link<Point>, BTreeSet<Link<Run>>>,
}

impl Hidden {
    /// Nothing is hidden, as nearly always.
    #[inline]
    pub(in crate::cache) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs that no map leads to.
    pub(in crate::cache) fn severed(&self) -> impl Iterator<Item = Link<Run>> {
        self.severed.values().flatten().copied()
    }

    /// Of those, the children of `point`.
    pub(in crate::cache) fn severed_from(&self, point: Ref<'_, Point>) -> impl Iterator<Item = Link<Run>> {
        self.severed.get(&point.link()).into_iter().flatten().copied()
    }

    /// Whether a part of `run` is hidden.
    pub(in crate::cache) fn contains(&self, run: Ref<'_, Run>) -> bool {
        self.runs.contains(&run.link())
    }

    /// Runs of which a part is hidden, for `validate`.
    pub(in crate::cache) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Lists `run`, for tests to contradict the tree.
    #[cfg(test)]
    pub(in crate::cache) fn list(&mut self, run: Link<Run>) {
        self.runs.insert(run);
    }

    /// Forgets a run of which nothing hidden is left.
    fn forget(&mut self, run: Ref<'_, Run>) {
        self.runs.remove(&run.link());
        let Some(parent) = run.parent().map(Ref::link) else { return };
        if let Some(of_parent) = self.severed.get_mut(&parent) {
            of_parent.remove(&run.link());
            if of_parent.is_empty() {
                self.severed.remove(&parent);
            }
        }
    }
}

/// A run that is to be shown up to one of its blocks.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Cut {
    run: Link<Run>,
    /// Blocks of it that stay.
    keep: usize,
    /// The block behind them; the cut is given up if it has left the run. `None` if the whole run
    /// goes.
    block: Option<BlockId>,
}

impl Cut {
    pub(in crate::cache) fn before(run: Ref<'_, Run>, keep: usize, block: BlockId) -> Self {
        Self { run: run.link(), keep, block: Some(block) }
    }

    pub(in crate::cache) fn run(self) -> Link<Run> {
        self.run
    }

    fn whole(run: Ref<'_, Run>) -> Self {
        Self { run: run.link(), keep: 0, block: None }
    }

    /// It, and after it the cuts of all runs that hang beyond, parents before children: the last
    /// one is to be done first. Takes no lock: runs that are hung meanwhile are found when their
    /// parent is cut.
    pub(in crate::cache) fn with_all_beyond(self, grid: Grid, guard: &Guard<'_>) -> Vec<Self> {
        let run = self.run.get(guard);
        let end = grid.end_of(grid.blocks(run.start()) + self.keep + 1).saturating_sub(run.start()) as u32;
        let (mut runs, mut at) = (Vec::new(), 0);
        add_hanging(run, end, &mut runs, guard);
        while let Some(&run) = runs.get(at) {
            add_hanging(run, 0, &mut runs, guard);
            at += 1;
        }
        std::iter::once(self).chain(runs.into_iter().map(Self::whole)).collect()
    }

    /// The depths between which the first block that goes lies on the run: a block may begin above
    /// it. `None` if it is not there any more, or is hidden.
    fn place(self, run: Ref<'_, Run>, resources: Resources<'_>) -> Option<Range<u32>> {
        let Some(block) = self.block else {
            return (run.shown(resources.guard) > 0).then_some(0..1);
        };
        let (grid, first) = (resources.grid_of(run), resources.grid_of(run).blocks(run.start()) + self.keep);
        let there = run.block_ids(resources.guard).get(self.keep).filter(|there| **there == block);
        let [begins, ends] = [first, first + 1].map(|blocks| grid.end_of(blocks).saturating_sub(run.start()) as u32);
        let shown = run.shown(resources.guard).min(run.word().len());
        there.filter(|_| ends <= shown).map(|_| if self.keep == 0 { 0..ends } else { begins..ends })
    }
}

impl Evictor {
    /// Does a slice of `cuts`, the last one first, and adds those that must come before; returns
    /// how many blocks were hidden.
    pub(in crate::cache) fn invalidate(&mut self, cuts: &mut Vec<Cut>, resources: Resources<'_>) -> usize {
        let (mut slice, mut hidden) = (SLICE, 0);
        while let Some(cut) = cuts.last().copied().filter(|_| slice > 0) {
            slice -= 1;
            let run = cut.run.get(resources.guard);
            if run.word().len() > 0 {
                // It may be severed by that.
                self.register(run, u32::MAX, resources);
            }
            let Some(place) = cut.place(run, resources).filter(|_| run.word().len() > 0) else {
                cuts.pop();
                continue;
            };
            let (beyond, depth) = hanging(run, place, resources.guard);
            if beyond.is_empty() {
                cuts.pop();
                hidden += self.hide(run, cut.keep, depth, resources);
            }
            cuts.extend(beyond.into_iter().map(Cut::whole));
        }
        // What the evictor has caused by that.
        self.drain(&mut 0, resources);
        hidden
    }

    /// Shows `run` up to `depth` alone, where `keep` blocks have ended; what nothing holds of the
    /// rest is freed. Returns how many blocks lookups found until now.
    fn hide<'g>(&mut self, run: Ref<'g, Run>, keep: usize, depth: u32, resources: Resources<'g>) -> usize {
        // What was appended since is told of by no one, and freed as this is.
        let until = run.shown(resources.guard).min(run.account.with(&self.owner, |account| account.len));
        let held = run.blocks_to(until, resources.grid_of(run));
        self.list_first(run, until, resources);
        // Subscribers know of a detached space already that lookups do not find it.
        let is_found = !run.space().is_detached();
        self.reason = EvictionReason::Invalidated;
        if is_found {
            self.unfindable(run, keep, &run.block_ids(resources.guard)[keep..held], resources);
        }
        if depth == 0 {
            self.sever(run, resources);
        } else {
            self.listeners.hidden.runs.insert(run.link());
            run.show(depth, resources.guard);
        }
        if self.retained.next().is_some() {
            let mut points = SmallVec::<[Ref<'_, Point>; 8]>::new();
            run.as_ref().points.for_each(resources.guard, &mut |point| points.push(point));
            let beyond = points.into_iter().filter(|point| point.depth() > depth);
            beyond.for_each(|point| self.end_retention(point, resources));
        }
        self.listen_to_end(run, resources);
        if let Some(last) = self.idle_end(run, resources) {
            self.place(last, resources);
            self.visit_again(resources);
        }
        if is_found { held - keep } else { 0 }
    }

    /// Takes a run out of the map that leads to it, and shows nothing of it.
    fn sever<'g>(&mut self, run: Ref<'g, Run>, resources: Resources<'g>) {
        let Some(parent) = run.parent() else { return };
        parent.as_ref().children.remove(run, resources.guard);
        run.show(0, resources.guard);
        self.listeners.hidden.runs.insert(run.link());
        self.listeners.hidden.severed.entry(parent.link()).or_default().insert(run.link());
    }

    /// Severs a run that was hung under a hidden point; called before it is told of.
    #[inline]
    pub(in crate::cache) fn sever_if_beyond<'g>(&mut self, run: Ref<'g, Run>, resources: Resources<'g>) {
        if !self.listeners.hidden.is_empty() && run.parent().is_some_and(|parent| parent.is_hidden(resources.guard)) {
            self.sever(run, resources);
        }
    }

    /// How many of the first `blocks` blocks of `run` are hidden.
    #[inline]
    pub(in crate::cache) fn hidden_of<'g>(&self, run: Ref<'g, Run>, blocks: usize, resources: Resources<'g>) -> usize {
        if self.listeners.hidden.is_empty() {
            return 0;
        }
        blocks.saturating_sub(run.blocks_to(run.shown(resources.guard), resources.grid_of(run)))
    }

    /// Notes that `run` ends at `end` now.
    #[inline]
    pub(in crate::cache) fn note_end(&mut self, run: Ref<'_, Run>, end: u32, resources: Resources<'_>) {
        if !self.listeners.hidden.is_empty() && (end == 0 || end <= run.shown(resources.guard)) {
            self.listeners.hidden.forget(run);
        }
    }
}

/// Adds the runs that hang on `run` at this depth or beyond.
fn add_hanging<'g>(run: Ref<'g, Run>, depth: u32, runs: &mut Vec<Ref<'g, Run>>, guard: &'g Guard<'_>) {
    run.as_ref().points.for_each(guard, &mut |point| {
        if point.depth() >= depth {
            point.as_ref().children.for_each(guard, &mut |child| runs.push(child));
        }
    });
}

/// Some of the runs that hang on `run` at the end of a block or beyond, none if there are none; and
/// the last depth before that end at which a run hangs, or where the block begins. What hangs
/// inside a block has a copy of its beginning.
fn hanging<'g>(run: Ref<'g, Run>, block: Range<u32>, guard: &'g Guard<'_>) -> (Vec<Ref<'g, Run>>, u32) {
    let (mut beyond, mut last) = (Vec::new(), block.start);
    run.as_ref().points.for_each(guard, &mut |point| {
        let is_beyond = point.depth() >= block.end;
        if (is_beyond && beyond.len() == SLICE) || point.depth() <= last {
            return;
        }
        point.as_ref().children.seek(guard, &mut |child| {
            // A dead one is about to be unlinked.
            if child.word().len() == 0 {
                return false;
            }
            if is_beyond {
                beyond.push(child);
            } else {
                last = point.depth();
            }
            !is_beyond || beyond.len() == SLICE
        });
    });
    (beyond, last)
}
