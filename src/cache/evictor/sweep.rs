//! Freeing the tree of a cleared namespace (a detached space): idle runs at once, the others when
//! their leases are released.
//!
//! `cache::namespaces` calls this after it has detached a space; trim.rs frees the runs.
//! `evict_idle` drops old blocks of a space that stays.

use super::{Evictor, Resources};
use crate::cache::listening::events::EvictionReason;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::model_size;
use crate::tree::{Point, Run, Snapshot, Space};

/// The most runs that one turn sweeps, and the most retentions that one turn of a clear ends.
pub(in crate::cache) const SLICE: usize = model_size(24, 2);

impl Evictor<'_> {
    /// Frees all unleased blocks of `space`, which was just detached; it is retired with its last
    /// lease. Returns true. If `space` has too many runs or retentions for one turn, frees few or none
    /// and returns false: the caller continues with [`end_retentions`](Self::end_retentions),
    /// [`sweep`](Self::sweep) and [`finish_sweep`](Self::finish_sweep).
    pub(in crate::cache) fn begin_sweep<'g>(&mut self, space: Ref<'g, Space>, resources: Resources<'g>) -> bool {
        self.common.detached.insert(space.link());
        self.drain(&mut { SLICE }, resources);
        let ended = self.end_retentions(space, resources);
        let Some(root) = space.root(resources.guard) else {
            return true;
        };
        let (runs, few) = runs_below(root, SLICE, resources.guard);
        let all = few && ended;
        if all {
            self.sweep(runs.into_iter().rev(), resources);
            self.finish_sweep(space, resources);
        }
        all
    }

    /// Ends up to [`SLICE`] retentions in `space`, and frees the runs that nothing else protects;
    /// returns true if none is left.
    pub(in crate::cache) fn end_retentions(&mut self, space: Ref<'_, Space>, resources: Resources<'_>) -> bool {
        for _ in 0..SLICE {
            let Some(point) = self.common.retained.first_in(space.link()) else { break };
            self.release_retention(point.get(resources.guard), resources);
        }
        // Takes in the evictor's own changes.
        self.drain(&mut 0, resources);
        self.common.retained.first_in(space.link()).is_none()
    }

    /// Frees the unleased blocks of `runs`, which belong to a detached space. Children come before
    /// parents.
    pub(in crate::cache) fn sweep<'g>(&mut self, runs: impl Iterator<Item = Ref<'g, Run>>, resources: Resources<'g>) {
        runs.for_each(|run| self.sweep_run(run, resources));
        // Takes in the evictor's own changes.
        self.drain(&mut 0, resources);
    }

    fn sweep_run<'g>(&mut self, run: Ref<'g, Run>, resources: Resources<'g>) {
        self.listen_to_end(run, resources);
        if let Some(last) = self.idle_end(run, resources) {
            self.unfile(last);
            self.trim(last, usize::MAX, resources);
            self.visit_again(resources);
        }
    }

    /// Evicts blocks that were last used at `idle_since` or before from the ends of `runs`, in
    /// which children come before parents. Returns the number of freed blocks.
    pub(in crate::cache) fn evict_idle<'g>(
        &mut self,
        runs: impl Iterator<Item = Ref<'g, Run>>,
        idle_since: u64,
        resources: Resources<'g>,
    ) -> usize {
        let mut freed = 0;
        for run in runs {
            while let Some(last) = self.idle_end(run, resources).filter(|last| last.statistics.last() <= idle_since) {
                self.unfile(last);
                self.first_mut().reason = EvictionReason::Age;
                freed += self.trim(last, usize::MAX, resources);
                self.visit_again(resources);
                // Trimming an end inside a block frees none, but the next end may have some. An end
                // that was leased meanwhile is not trimmed.
                if run.word().len() == last.depth() {
                    break;
                }
            }
        }
        self.drain(&mut 0, resources);
        freed
    }

    /// Listens to the end of a run if it is leased, so that its last release is queued.
    pub(super) fn listen_to_end<'g>(&mut self, run: Ref<'g, Run>, resources: Resources<'g>) {
        if let Some(last) = run.as_ref().points.get(run.word().len(), resources.guard) {
            self.listen_if_leased(last, resources);
        }
    }

    /// The end of a registered run, if it has no lease and no child. An unregistered run is in the
    /// queue, or about to be.
    pub(super) fn idle_end<'g>(&self, run: Ref<'g, Run>, resources: Resources<'g>) -> Option<Ref<'g, Point>> {
        let len = run.word().len();
        let registered = len > 0 && run.account.with(&self.owner, |account| account.is_registered());
        let last = run.as_ref().points.get(len, resources.guard).filter(|_| registered)?;
        // Relaxed: a leased end is not removed until its lease is released, which queues it.
        let word = last.word.load(Relaxed);
        (word.is_idle() && !word.is_dead()).then_some(last)
    }

    /// Lets a detached space be retired as soon as nothing in it is leased.
    pub(in crate::cache) fn finish_sweep<'g>(&mut self, space: Ref<'g, Space>, resources: Resources<'g>) {
        if let Some(root) = space.root(resources.guard) {
            self.uproot(root);
        }
        // Takes out the root.
        self.drain(&mut 0, resources);
    }

    /// Retires `space`, which was just detached and has no runs and no leases.
    pub(in crate::cache) fn end_bare<'g>(&mut self, space: Ref<'g, Space>, resources: Resources<'g>) {
        self.common.detached.insert(space.link());
        self.finish_sweep(space, resources);
    }

    /// Makes the root an ordinary point: removes its permanent child and its permanent `QUEUED`
    /// flag.
    fn uproot(&mut self, root: Ref<'_, Point>) {
        _ = root.word.take_out();
        if root.word.remove_child().push {
            self.of_mut(root.run()).backlog.push(root);
        }
    }

    /// Kills the root of a detached space if it has no lease and no child, and retires the space.
    pub(super) fn visit_root<'g>(&mut self, root: Ref<'g, Point>, word: Snapshot, resources: Resources<'g>) {
        if !word.is_idle() {
            return;
        }
        let trunk = root.run();
        let space = trunk.space();
        let Some(before) = root.word.kill() else {
            return;
        };
        self.common.detached.remove(&space.link());
        // The dead root stays in the trunk's map: a lookup that loaded this space earlier would put
        // a new root into an empty slot. Threads that pin later do not reach it, because the space
        // is detached.
        if !before.is_queued() {
            resources.guard.retire(root);
        }
        trunk.retire_arrays(resources.guard);
        resources.guard.retire(trunk);
        resources.guard.retire(space);
    }
}

/// The runs of the tree of `root`, parents before children, and whether the list is complete: the
/// search stops when it has found more than `limit`. Takes no lock.
pub(in crate::cache) fn runs_below<'g>(
    root: Ref<'g, Point>,
    limit: usize,
    guard: &'g Guard<'_>,
) -> (Vec<Ref<'g, Run>>, bool) {
    let mut runs = Vec::new();
    let add = |run, runs: &mut Vec<_>| {
        runs.push(run);
        runs.len() > limit
    };
    root.as_ref().children.seek(guard, &mut |run| add(run, &mut runs));
    let mut at = 0;
    while let Some(&run) = runs.get(at).filter(|_| runs.len() <= limit) {
        run.as_ref().points.for_each(guard, &mut |point| {
            point.as_ref().children.seek(guard, &mut |run| add(run, &mut runs));
        });
        at += 1;
    }
    let all = runs.len() <= limit;
    (runs, all)
}
