//! Taking a detached space apart: everything idle goes at once, the rest when its leases go.

use super::{Evictor, Works};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Relaxed;
use crate::tree::{Point, Run, Snapshot, Space};

impl Evictor {
    /// Frees all that nobody leases in `space`, which was just detached.
    pub(in crate::cache) fn sweep<'g>(&mut self, space: Ref<'g, Space>, works: Works<'g>) {
        self.detached.insert(space.link());
        self.settle(works);
        self.end_retentions(space, works);
        let Some(root) = space.root(works.guard) else {
            return;
        };
        for run in runs_below(root, works).into_iter().rev() {
            let last = run.as_ref().points.get(run.word().len(), works.guard);
            let registered = run.account.with(&self.owner, |account| account.registered);
            // A run that is being inserted is in the queue, or about to be.
            if let Some(last) = last.filter(|_| registered && run.word().len() > 0) {
                // Relaxed: a held end is left to its next step.
                let word = last.word.load(Relaxed);
                if word.is_idle() && !word.is_dead() {
                    self.unfile(last);
                    self.trim(last, usize::MAX, works);
                    self.visit_again(works);
                }
            }
        }
        self.uproot(root);
        self.settle(works);
    }

    /// Ends `space`, which was just detached and in which nothing hangs or is leased.
    pub(in crate::cache) fn end_bare<'g>(&mut self, space: Ref<'g, Space>, works: Works<'g>) {
        self.detached.insert(space.link());
        if let Some(root) = space.root(works.guard) {
            self.uproot(root);
        }
        // The root alone.
        self.drain(&mut 0, works);
    }

    /// Takes the root's permanent child off: from now on it is a point like any other.
    fn uproot(&mut self, root: Ref<'_, Point>) {
        if root.word.remove_child() {
            self.backlog.push(root);
        }
    }

    /// Ends the root of a detached space when nobody holds it and nothing hangs on it, and the space with it.
    pub(super) fn visit_root<'g>(&mut self, root: Ref<'g, Point>, word: Snapshot, works: Works<'g>) {
        if !word.is_idle() {
            return;
        }
        let trunk = root.run();
        let space = trunk.space();
        let Some(before) = root.word.kill() else {
            return;
        };
        self.detached.remove(&space.link());
        // The dead root stays in the trunk's map: a lookup on its way here would make a new one in an empty place.
        // Nobody who pins from now on comes here: the space was detached.
        if !before.is_queued() {
            works.guard.retire(root);
        }
        trunk.retire_arrays(works.guard);
        works.guard.retire(trunk);
        works.guard.retire(space);
    }
}

/// Every run below `root`, parents before children.
pub(in crate::cache) fn runs_below<'g>(root: Ref<'g, Point>, works: Works<'g>) -> Vec<Ref<'g, Run>> {
    let mut runs = Vec::new();
    root.as_ref().children.for_each(works.guard, &mut |run| runs.push(run));
    let mut at = 0;
    while let Some(&run) = runs.get(at) {
        run.as_ref().points.for_each(works.guard, &mut |point| {
            point.as_ref().children.for_each(works.guard, &mut |run| runs.push(run));
        });
        at += 1;
    }
    runs
}
