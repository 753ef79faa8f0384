//! Invalidating blocks: lookups no longer find blocks with wrong keys and values, even while leases
//! still protect them. `cache::eviction::invalidating` calls it.
//!
//! A block is invalidated together with everything beyond it. Its run is then *shown* only up to
//! the block, or up to a branch inside it: walks compare no further, so no match reaches the end of
//! the block. The rest of the run is *hidden*. Runs attached beyond are *severed*: removed from
//! their parent points' maps and hidden completely. A severed run still counts as a child of its
//! point, so the path of a lease stays intact. No map leads to it, so the evictor lists it until it
//! dies. Runs beyond are cut first, children before parents: a run is reported as removed while its
//! path is whole, and before a run that takes its place is reported as stored.
//!
//! Hidden blocks are freed at once if nothing holds them, otherwise when the last holder is gone. A
//! run that is attached to a hidden point meanwhile is severed when it is taken into the accounts.
//! Until then it is not hidden itself. So a call that builds on a lease looks at the whole path
//! (`Point::is_invalidated`) while the space counts a run with a hidden part.
//!
//! The length of a run cannot express this, because a run is never shorter than a held point on it
//! (T4). So the arrays, from which walks read the number of tokens anyway, have a second length:
//! the number of shown tokens. Hidden blocks are no longer reported to subscribers or offered to a
//! tier, their retentions end, and inserts and retentions from a lease on them are refused.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::block::{BlockId, BlockLayout};
use crate::cache::evictor::exchange::SLICE;
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::listening::events::EvictionReason;
use crate::reclaim::{Guard, Link, Ref};
use crate::sync::gauge::Relaxed;
use crate::tree::{Point, Run};

/// Runs with a hidden part, or hidden completely.
#[derive(Debug, Default)]
pub(in crate::cache) struct Hidden {
    /// By [`ALL`] and address; severed runs also by the addresses of parent point and run.
    runs: BTreeMap<(u64, u64), Link<Run>>,
}

/// Begins the key of every run, while no address is zero.
const ALL: u64 = 0;

impl Hidden {
    /// Whether nothing is hidden: nearly always true.
    #[inline]
    pub(in crate::cache) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(in crate::cache) fn severed(&self) -> impl Iterator<Item = Link<Run>> {
        self.runs.range((ALL + 1, 0)..).map(|(_, run)| *run)
    }

    /// The severed runs whose parent is `point`.
    pub(in crate::cache) fn severed_from(&self, point: Ref<'_, Point>) -> impl Iterator<Item = Link<Run>> {
        let point = point.link().address();
        self.runs.range((point, 0)..).take_while(move |((of, _), _)| *of == point).map(|(_, run)| *run)
    }

    /// Whether a part of `run` is hidden.
    pub(in crate::cache) fn contains(&self, run: Ref<'_, Run>) -> bool {
        self.runs.contains_key(&(ALL, run.link().address()))
    }

    /// The number of runs with a hidden part, for `validate`.
    pub(in crate::cache) fn len(&self) -> usize {
        self.runs.keys().take_while(|(of, _)| *of == ALL).count()
    }

    pub(in crate::cache) fn list(&mut self, run: Ref<'_, Run>) {
        if self.runs.insert((ALL, run.link().address()), run.link()).is_none() {
            run.space().hidden_runs().fetch_add(1, Relaxed);
        }
    }

    /// Forgets a run whose hidden part is gone.
    fn forget(&mut self, run: Ref<'_, Run>) {
        if self.runs.remove(&(ALL, run.link().address())).is_some() {
            run.space().hidden_runs().fetch_sub(1, Relaxed);
        }
        let parent = run.parent().map(|parent| parent.link().address());
        parent.into_iter().for_each(|of| _ = self.runs.remove(&(of, run.link().address())));
    }
}

/// A run that will be shown only up to one of its blocks.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Cut {
    run: Link<Run>,
    /// The number of its blocks that stay shown.
    keep: usize,
    /// The first block to hide; the cut is abandoned if the block has left the run. `None` if the
    /// whole run is to be hidden.
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

    /// This cut, followed by the cuts of all runs attached beyond, parents before children: the
    /// last one must be done first. Takes no lock: runs that are attached meanwhile are found when
    /// their parent is cut.
    pub(in crate::cache) fn with_all_beyond(self, layout: BlockLayout, guard: &Guard<'_>) -> Vec<Self> {
        let run = self.run.get(guard);
        let end = layout.end_of(layout.blocks(run.start()) + self.keep + 1).saturating_sub(run.start()) as u32;
        let (mut runs, mut at) = (Vec::new(), 0);
        add_hanging(run, end, &mut runs, guard);
        while let Some(&run) = runs.get(at) {
            add_hanging(run, 0, &mut runs, guard);
            at += 1;
        }
        std::iter::once(self).chain(runs.into_iter().map(Self::whole)).collect()
    }

    /// The depths of the first block to hide, from zero if it begins before the run. `None` if the
    /// run no longer has it, or if it is hidden already.
    fn place(self, run: Ref<'_, Run>, resources: Resources<'_>) -> Option<Range<u32>> {
        let Some(block) = self.block else {
            return (run.shown(resources.guard) > 0).then_some(0..1);
        };
        let (layout, first) = (resources.layout_of(run), resources.layout_of(run).blocks(run.start()) + self.keep);
        let there = run.block_ids(resources.guard).get(self.keep).filter(|there| **there == block);
        let [begins, ends] = [first, first + 1].map(|blocks| layout.end_of(blocks).saturating_sub(run.start()) as u32);
        let shown = run.shown(resources.guard).min(run.word().len());
        there.filter(|_| ends <= shown).map(|_| if self.keep == 0 { 0..ends } else { begins..ends })
    }
}

impl Evictor<'_> {
    /// Does a slice of `cuts`, the last one first, and adds cuts of runs that turn out to be
    /// attached beyond; returns how many blocks were hidden.
    pub(in crate::cache) fn invalidate(&mut self, cuts: &mut Vec<Cut>, resources: Resources<'_>) -> usize {
        let (mut slice, mut hidden) = (SLICE, 0);
        while let Some(cut) = cuts.last().copied().filter(|_| slice > 0) {
            slice -= 1;
            let run = cut.run.get(resources.guard);
            if run.word().len() > 0 {
                // Registering the run may sever it.
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
        // Takes in the evictor's own changes.
        self.drain(&mut 0, resources);
        hidden
    }

    /// Hides `run` beyond `depth`, so that `keep` blocks stay shown; frees the hidden ones if
    /// nothing holds them. Returns how many of the hidden blocks lookups could find before.
    fn hide<'g>(&mut self, run: Ref<'g, Run>, keep: usize, depth: u32, resources: Resources<'g>) -> usize {
        // Blocks that are not in the accounts yet were not reported to anyone. They are freed like
        // the others.
        let until = run.shown(resources.guard).min(run.account.with(&self.owner, |account| account.len));
        let held = run.blocks_to(until, resources.layout_of(run));
        self.list_first(run, until, resources);
        // Subscribers were told already that lookups find nothing of a detached space.
        let is_found = !run.space().is_detached();
        self.first_mut().reason = EvictionReason::Invalidated;
        if is_found {
            self.unfindable(run, keep, &run.block_ids(resources.guard)[keep..held], resources);
        }
        if depth == 0 {
            self.sever(run, resources);
        } else {
            self.common.listeners.hidden.list(run);
            run.show(depth, resources.guard);
        }
        if self.common.retained.next().is_some() {
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

    /// Removes a run from its parent point's map, and hides all of it.
    fn sever<'g>(&mut self, run: Ref<'g, Run>, resources: Resources<'g>) {
        let Some(parent) = run.parent() else { return };
        parent.as_ref().children.remove(run, resources.guard);
        run.show(0, resources.guard);
        let hidden = &mut self.common.listeners.hidden;
        hidden.list(run);
        hidden.runs.insert((parent.link().address(), run.link().address()), run.link());
    }

    /// Severs a run that was attached to a hidden point; called before subscribers are told of the
    /// run.
    #[inline]
    pub(in crate::cache) fn sever_if_beyond<'g>(&mut self, run: Ref<'g, Run>, resources: Resources<'g>) {
        if !self.common.listeners.hidden.is_empty()
            && run.parent().is_some_and(|parent| parent.is_hidden(resources.guard))
        {
            self.sever(run, resources);
        }
    }

    /// How many of the first `blocks` blocks of `run` are hidden.
    #[inline]
    pub(in crate::cache) fn hidden_of<'g>(&self, run: Ref<'g, Run>, blocks: usize, resources: Resources<'g>) -> usize {
        if self.common.listeners.hidden.is_empty() {
            return 0;
        }
        blocks.saturating_sub(run.blocks_to(run.shown(resources.guard), resources.layout_of(run)))
    }

    /// Notes that `run` now ends at `end`; forgets it if nothing of it is hidden.
    #[inline]
    pub(in crate::cache) fn note_end(&mut self, run: Ref<'_, Run>, end: u32, resources: Resources<'_>) {
        if !self.common.listeners.hidden.is_empty() && (end == 0 || end <= run.shown(resources.guard)) {
            self.common.listeners.hidden.forget(run);
        }
    }
}

/// Adds the runs that are attached to `run` at `depth` or beyond.
fn add_hanging<'g>(run: Ref<'g, Run>, depth: u32, runs: &mut Vec<Ref<'g, Run>>, guard: &'g Guard<'_>) {
    run.as_ref().points.for_each(guard, &mut |point| {
        if point.depth() >= depth {
            point.as_ref().children.for_each(guard, &mut |child| runs.push(child));
        }
    });
}

/// Up to [`SLICE`] of the runs that are attached to `run` at the end of `block` or beyond; and the
/// last depth inside the block at which one is attached, or where the block begins. A run attached
/// inside a block has its own copy of the block's beginning.
fn hanging<'g>(run: Ref<'g, Run>, block: Range<u32>, guard: &'g Guard<'_>) -> (Vec<Ref<'g, Run>>, u32) {
    let (mut beyond, mut last) = (Vec::new(), block.start);
    run.as_ref().points.for_each(guard, &mut |point| {
        let is_beyond = point.depth() >= block.end;
        if (is_beyond && beyond.len() == SLICE) || point.depth() <= last {
            return;
        }
        point.as_ref().children.seek(guard, &mut |child| {
            // A dead run is about to be unlinked.
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
