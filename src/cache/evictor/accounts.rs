//! The accounts: which blocks could be evicted, and which are protected by leases.
//!
//! They belong to the evictor, which updates them as it takes entries out of the queue. No lookup
//! touches them, and a lease writes to no ancestor: the evictor walks from its point toward the
//! root, up to the first ancestor whose activity stays the same.
//!
//! A point is *active* if the evictor last found a lease on it that is not silent, or if a child
//! run of it is active. A run is active if one of its points is; its blocks up to the deepest
//! active point are protected, the rest evictable.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::listeners::Removal;
use super::{Evictor, Resources};
use crate::cache::numbers::stats::Total;
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Relaxed;
use crate::tree::{Piece, Point, PointAccount, RankedPiece, Run, RunAccount};

impl Evictor<'_> {
    /// Takes `run` into the accounts, up to the piece that contains `depth`. Takes its ancestors in
    /// first, up to where it is attached, so that serial numbers follow the order of the queue. The
    /// blocks counted as reserved until now.
    #[inline]
    pub(super) fn register<'g>(&mut self, run: Ref<'g, Run>, depth: u32, resources: Resources<'g>) {
        if !self.is_registered(run) {
            match run.parent() {
                // Its shard registers it from its own entries.
                Some(parent) if !self.has(parent.run()) => {}
                Some(parent) if self.is_registered(parent.run()) => {
                    self.take_growth_in(parent.run(), parent.depth(), resources);
                }
                Some(parent) => self.register_ancestors(parent, resources),
                None => {}
            }
            self.take_run_in(run, resources);
        }
        self.take_growth_in(run, depth, resources);
    }

    /// Registers the runs from the trunk to `point`.
    #[cold]
    fn register_ancestors<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) {
        let mut path = SmallVec::<[Ref<'g, Point>; 8]>::from_slice(&[point]);
        let mut at = point.run();
        while let Some(parent) = at.parent().filter(|parent| self.has(parent.run()) && !self.is_registered(at)) {
            path.push(parent);
            at = parent.run();
        }
        path.into_iter().rev().for_each(|point| self.register(point.run(), point.depth(), resources));
    }

    /// Takes in a branch point that no turn has taken out of the queue yet: a turn of one shard has
    /// registered its child run. An active point must be known, and its run registered.
    #[cold]
    fn register_branch<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) {
        let home = self.home;
        self.register(point.run(), point.depth(), resources);
        self.know(point);
        self.home = home;
    }

    fn is_registered(&self, run: Ref<'_, Run>) -> bool {
        run.account.with(&self.owner, RunAccount::is_registered)
    }

    /// Takes a run in, as it was published.
    #[inline]
    fn take_run_in<'g>(&mut self, run: Ref<'g, Run>, resources: Resources<'g>) {
        self.go_to(run);
        // A turn of one shard takes the trunk's level for parents in others: `lru` and `fifo`, the
        // only policies with such turns, ignore levels.
        let level_of =
            |parent: Ref<'_, Point>| if self.has(parent.run()) { self.level(parent) } else { Some(NonZeroU32::MIN) };
        let level = run.parent().and_then(level_of).map(|level| level.saturating_add(1));
        let serial = self.registered;
        let (len, charged) = run.account.with_mut(&mut self.owner, |account| {
            account.serial = serial;
            account.level = level;
            (account.len, account.charged)
        });
        self.totals.add(Total::Runs, 1);
        let blocks = 0..run.blocks_to(len, resources.layout_of(run));
        self.count_in(blocks.len());
        self.stored(run, 0, blocks, charged as usize, resources);
        if let Some(parent) = run.parent().filter(|parent| !parent.run().is_trunk() && self.has(parent.run())) {
            self.know(parent);
        }
    }

    /// Takes in what was appended in place to a registered run, up to the piece that contains
    /// `depth`.
    #[inline]
    pub(super) fn take_growth_in<'g>(&mut self, run: Ref<'g, Run>, depth: u32, resources: Resources<'g>) {
        if depth > run.account.with(&self.owner, |account| account.len) {
            self.take_pieces_in(run, depth, resources);
        }
    }

    #[cold]
    fn take_pieces_in<'g>(&mut self, run: Ref<'g, Run>, depth: u32, resources: Resources<'g>) {
        self.go_to(run);
        let to = run.word().len().min(depth);
        let Some(arrays) = run.arrays(resources.guard) else { return };
        loop {
            let (start, known) = run.account.with(&self.owner, |account| (account.len, account.pieces.len()));
            // The run is longer than what is known, so the next piece is there (E22).
            let Some(Piece { end, charged, born }) = (start < to).then(|| arrays.piece(known)) else { return };
            let serial = self.registered;
            run.account.with_mut(&mut self.owner, |account| {
                account.len = end;
                account.pieces.push(RankedPiece { start, serial, born });
            });
            let [first, held] = [start, end].map(|depth| run.blocks_to(depth, resources.layout_of(run)));
            self.count_in(held - first);
            self.stored(run, start, first..held, charged as usize, resources);
            // Relaxed: a point at which a run continues is killed only by the evictor, and not
            // before the run was shortened to it.
            let begin =
                run.as_ref().points.get(start, resources.guard).filter(|begin| !begin.word.load(Relaxed).is_dead());
            begin.into_iter().for_each(|begin| self.know(begin));
        }
    }

    /// Counts the blocks of a run, or of a piece.
    #[inline]
    fn count_in(&mut self, blocks: usize) {
        self.registered += 1;
        self.evictable += blocks;
        self.totals.add(Total::Inserted, blocks);
    }

    /// Runs and pieces from the trunk to `point`, both included.
    #[inline]
    fn level(&self, point: Ref<'_, Point>) -> Option<NonZeroU32> {
        point.run().account.with(&self.owner, |account| account.level_at(point.depth()))
    }

    /// Takes the blocks between the depths `end` and `len` out of the accounts; the listeners pass
    /// them on. Returns their number.
    pub(super) fn free_beyond<'g>(&mut self, run: Ref<'g, Run>, end: u32, len: u32, resources: Resources<'g>) -> usize {
        let keep = run.blocks_to(end, resources.layout_of(run));
        let held = run.blocks_to(len, resources.layout_of(run));
        self.removed(run, Removal { depths: end..len, blocks: keep..held }, resources);
        self.evictable -= held - keep;
        if end < len {
            run.account.with_mut(&mut self.owner, |account| {
                account.len = end;
                account.pieces.cut(end);
            });
        }
        held - keep
    }

    /// Adds `point` to its run's list of known points.
    pub(super) fn know(&mut self, point: Ref<'_, Point>) {
        if point.account.with(&self.owner, |account| account.is_known()) {
            return;
        }
        point.account.with_mut(&mut self.owner, |account| account.set_known(true));
        let run = point.run();
        let active = point.account.get(&self.owner).is_active();
        if run.account.with(&self.owner, |account| account.points.is_full()) {
            let is_active = |point: &Ref<'_, Point>| point.account.get(&self.owner).is_active();
            let deep: Vec<_> = run.account.with(&self.owner, |account| {
                let points = account.points.iter().map(|point| point.get(run.as_ref()));
                points.filter(is_active).map(|point| point.depth()).collect()
            });
            run.account.with_mut(&mut self.owner, |account| account.points.grow(&deep, &run));
        }
        run.account.with_mut(&mut self.owner, |account| account.points.insert(point, active, &run));
        self.of(run).totals.add(Total::Points, 1);
    }

    /// The next known point below `point` on its run.
    pub(in crate::cache) fn point_below<'g>(&self, point: Ref<'g, Point>) -> Option<Ref<'g, Point>> {
        let run = point.run();
        let below = run.account.with(&self.owner, |account| account.points.below(point.depth(), &run));
        // Only the evictor kills points, so a known one is alive.
        below.map(|below| below.get(run.as_ref()))
    }

    /// Notes in the accounts whether `point` has leases.
    pub(super) fn account(&mut self, point: Ref<'_, Point>, leased: bool, resources: Resources<'_>) {
        self.change_activity(point, |account| account.set_leased(leased), resources);
    }

    /// Removes a point that was just killed from the accounts, the list of known points and the
    /// ranking.
    pub(super) fn strike(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) {
        if self.strike_from_accounts(point, resources) {
            let run = point.run();
            run.account.with_mut(&mut self.owner, |account| account.points.remove(point, &run));
        }
    }

    /// As [`strike`](Self::strike), but leaves it in its run's list; returns whether it is there.
    pub(super) fn strike_from_accounts(&mut self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        self.unfile(point);
        if point.account.with(&self.owner, |account| account.is_active()) {
            self.account(point, false, resources);
        }
        let is_known = point.account.get(&self.owner).is_known();
        point.account.with_mut(&mut self.owner, |account| account.set_known(false));
        self.of(point.run()).totals.subtract(Total::Points, is_known.into());
        is_known
    }

    /// Applies `change` to a point's account, and updates the accounts of its ancestors.
    fn change_activity<'g>(
        &mut self,
        mut point: Ref<'g, Point>,
        change: impl FnOnce(&mut PointAccount),
        resources: Resources<'_>,
    ) {
        let was = point.account.get(&self.owner).is_active();
        point.account.with_mut(&mut self.owner, change);
        let mut is = point.account.get(&self.owner).is_active();
        let mut changed = was != is;
        while changed && !point.run().is_trunk() {
            let run = point.run();
            let Some(run_is_active) = self.protect(point, is, resources) else {
                return;
            };
            let Some(parent) = run.parent() else { return };
            let account = parent.account.get(&self.owner);
            let was = account.is_active();
            if !account.is_known() && !parent.run().is_trunk() {
                self.register_branch(parent, resources);
            }
            parent.account.with_mut(&mut self.owner, |account| account.count_child(run_is_active));
            is = parent.account.get(&self.owner).is_active();
            changed = was != is;
            point = parent;
        }
    }

    /// Updates the protected part of `point`'s run; returns whether the run is active now, if that
    /// has changed.
    fn protect(&mut self, point: Ref<'_, Point>, active: bool, resources: Resources<'_>) -> Option<bool> {
        let run = point.run();
        let old = run.account.with_mut(&mut self.owner, |account| {
            account.points.set_active(point.depth(), active);
            account.protected
        });
        let new = match (active, point.depth()) {
            (true, depth) => old.max(depth),
            (false, depth) if depth == old => self.deepest_active(run),
            (false, _) => old,
        };
        run.account.with_mut(&mut self.owner, |account| account.protected = new);
        let (before, after) =
            (run.blocks_to(old, resources.layout_of(run)), run.blocks_to(new, resources.layout_of(run)));
        let shard = self.of_mut(run);
        shard.protected = shard.protected + after - before;
        shard.evictable = shard.evictable + before - after;
        self.protected(run, before, after);
        ((old > 0) != (new > 0)).then_some(new > 0)
    }

    /// Depth of the deepest active point that is known on `run`, or zero.
    pub(super) fn deepest_active(&self, run: Ref<'_, Run>) -> u32 {
        run.account.with(&self.owner, |account| account.points.deepest_active(&run, &self.owner))
    }
}
