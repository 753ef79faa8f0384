//! Ending a detached space: idle runs are freed at once, the others when their leases are released.

use super::{Evictor, Resources};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Relaxed;
use crate::tree::{Point, Run, Snapshot, Space};

impl Evictor {
    /// Frees all unleased blocks of `space`, which was just detached.
    pub(in crate::cache) fn sweep<'g>(&mut self, space: Ref<'g, Space>, resources: Resources<'g>) {
        self.detached.insert(space.link());
        self.settle(resources);
        self.end_retentions(space, resources);
        let Some(root) = space.root(resources.guard) else {
            return;
        };
        for run in runs_below(root, resources).into_iter().rev() {
            let last = run.as_ref().points.get(run.word().len(), resources.guard);
            let registered = run.account.with(&self.owner, |account| account.registered);
            // A run that is being inserted is in the queue, or about to be.
            if let Some(last) = last.filter(|_| registered && run.word().len() > 0) {
                // Relaxed: a leased end is left until its lease is released, which queues it.
                let word = last.word.load(Relaxed);
                if word.is_idle() && !word.is_dead() {
                    self.unfile(last);
                    self.trim(last, usize::MAX, resources);
                    self.visit_again(resources);
                }
            }
        }
        self.uproot(root);
        self.settle(resources);
    }

    /// Ends `space`, which was just detached and has no runs and no leases.
    pub(in crate::cache) fn end_bare<'g>(&mut self, space: Ref<'g, Space>, resources: Resources<'g>) {
        self.detached.insert(space.link());
        if let Some(root) = space.root(resources.guard) {
            self.uproot(root);
        }
        // The root alone.
        self.drain(&mut 0, resources);
    }

    /// Removes the root's permanent child: from now on it is a point like any other.
    fn uproot(&mut self, root: Ref<'_, Point>) {
        if root.word.remove_child() {
            self.backlog.push(root);
        }
    }

    /// Ends the root of a detached space, and the space with it, when it has no lease and no child.
    pub(super) fn visit_root<'g>(&mut self, root: Ref<'g, Point>, word: Snapshot, resources: Resources<'g>) {
        if !word.is_idle() {
            return;
        }
        let trunk = root.run();
        let space = trunk.space();
        let Some(before) = root.word.kill() else {
            return;
        };
        self.detached.remove(&space.link());
        // The dead root stays in the trunk's map: in an empty slot a lookup on its way here would make a new root. Threads
        // that pin from now on do not come here, because the space is detached.
        if !before.is_queued() {
            resources.guard.retire(root);
        }
        trunk.retire_arrays(resources.guard);
        resources.guard.retire(trunk);
        resources.guard.retire(space);
    }
}

/// Every run below `root`, parents before children.
pub(in crate::cache) fn runs_below<'g>(root: Ref<'g, Point>, resources: Resources<'g>) -> Vec<Ref<'g, Run>> {
    let mut runs = Vec::new();
    root.as_ref().children.for_each(resources.guard, &mut |run| runs.push(run));
    let mut at = 0;
    while let Some(&run) = runs.get(at) {
        run.as_ref().points.for_each(resources.guard, &mut |point| {
            point.as_ref().children.for_each(resources.guard, &mut |run| runs.push(run));
        });
        at += 1;
    }
    runs
}
