//! The evictor: the state that decides what is evicted, in shards that each have a lock.
//!
//! It takes changes from the shards' queues (`tree::queue`), keeps the accounts and the ranking up
//! to date, chooses victims and trims them. `Inner::turn` runs it on the thread that has its locks:
//! a session that found too few blocks, the background evictor, a caller of `settle`,
//! [`run_once`](crate::PrefixCache::run_once) or a clear. No lookup waits for it.
//!
//! With one shard, the default, it is single-threaded state behind one lock. With several there are
//! two kinds of turns (`shards`). A turn of *all* locks all shards, and works as with one shard. In
//! a turn of *one* a reservation evicts from one shard (`alone`) beside turns of other shards. In
//! other comments *the evictor's lock* means the lock of the run's shard; for state that the shards
//! share, it means all locks.
//!
//! | file | holds |
//! |---|---|
//! | `shards` | the state of each shard, what they share, and the locks of a turn |
//! | `alone` | turns of one shard, and when to evict from another shard |
//! | `pending_counts` | what turns of one shard have not written to the namespaces' accounts yet |
//! | `accounts` | which blocks are evictable and which protected |
//! | `ranking`, `due` | candidates filed with the policy, and the times at which their stats change without a use |
//! | `aging` | dropping prefixes that were not used for a long time |
//! | `exchange` | changing the policy, slice by slice |
//! | `listeners` | parts that are told of stored and removed blocks: quotas, events, listings, sinks and others |
//! | `silent` | points whose leases are not reported to the evictor |
//! | `upkeep` | work between evictions, in bounded steps |
//! | `retained` | prefixes on which the cache itself holds a lease until a deadline |
//! | `ahead` | prefetching the memory of the next victims, and of the next entries |
//! | `trim` | shortening a run, the death of a run, statistics flowing down |
//! | `dead_runs` | unlinking dead runs, after the lock is given up |
//! | `sweep` | freeing a detached space, and idle ends of runs |
//!
//! # Turns
//!
//! No operation holds the lock for all of its work; it takes the lock for one *turn* at a time.
//!
//! | operation | in one turn |
//! |---|---|
//! | an eviction | frees up to 128 blocks |
//! | a reservation | takes up to 16,384 blocks from up to 512 victims, and keeps them for its next turn |
//! | both | take in the changes that were queued before them, in steps, and choose victims in the last step |
//! | a clear of a large tree | detaches it, then removes up to 24 runs, children first |
//! | a reservation, in a turn of one | takes in the shard's queue; evicts all missing blocks if the first candidates have that many; files again or defers up to 512 others |
//!
//! Between the turns of a clear, runs are listed without the lock, under a guard that keeps them
//! readable. A run that another thread has evicted meanwhile has length zero and is skipped.
//!
//! `Inner::turn` keeps work that may take long outside the lock. It pins before it locks, because
//! each 128th pin frees garbage. After the turn it frees memory, wakes waiters and calls the
//! eviction sink. The feature `holds` measures the longest hold of the lock.

mod accounts;
mod aging;
mod ahead;
mod alone;
mod dead_runs;
mod due;
mod exchange;
mod listeners;
mod pending_counts;
mod ranking;
mod retained;
mod shards;
mod silent;
mod sweep;
mod trim;
mod upkeep;

#[cfg(test)]
mod tests;

pub(super) use aging::AgingPass;
pub(super) use alone::{Alone, Heads, Request};
pub(super) use dead_runs::DeadRuns;
pub(super) use exchange::{FEW_SLICES, SLICE};
pub(super) use listeners::{
    Beneficiary, Cut, ForSink, GONE, Listed, Listing, Live, LiveSettings, Outlet, QuotaPass, SharedOutlet, Sinking,
    SortGoal, Subscriber, Victim, Victims,
};
pub(super) use ranking::Ranking;
pub(super) use retained::Retained;
pub(super) use shards::Shard;
pub(super) use shards::Shards;
use shards::{CommonRef, Held};
pub(super) use silent::LeasePass;
pub(super) use sweep::{SLICE as SWEEP_SLICE, runs_below};
pub(super) use upkeep::Upkeep;

use std::ptr::NonNull;

use super::listening::events::EvictionReason;
use super::matching::ghost_table::GhostTable;
use crate::block::{BlockId, BlockLayout, Pool};
use crate::cache::numbers::stats::Total;
use crate::reclaim::{Guard, Link, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Owner, model_size, prefetch};
use crate::tree::{HotPoints, Point, Queues, Run, Snapshot};

/// How many times a reservation takes in concurrent changes and checks again before it refuses.
pub(super) const LOOKS: usize = model_size(16, 1);

/// The parts of the cache that the evictor works on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resources<'g> {
    pub(super) queues: &'g Queues,
    pub(super) hot: &'g HotPoints,
    pub(super) pool: &'g Pool,
    pub(super) seen: &'g GhostTable,
    pub(super) live: &'g LiveSettings,
    /// Where blocks end in sequences of tokens.
    pub(super) layout: BlockLayout,
    /// The present time of deadlines.
    pub(super) now: u64,
    pub(super) guard: &'g Guard<'g>,
    /// The runs that die in this turn.
    pub(super) dead: &'g DeadRuns,
    /// Whether a thread, a task or the background evictor waits for blocks.
    pub(super) is_awaited: bool,
}

impl Resources<'_> {
    /// Where the blocks of `run` end.
    #[inline]
    pub(super) fn layout_of(self, run: Ref<'_, Run>) -> BlockLayout {
        self.layout.with_offset(run.space().offset)
    }
}

/// The evictor, as a turn has it: the locked shards, and what the shards share. It dereferences to
/// the shard that is worked on.
pub(super) struct Evictor<'a> {
    pub(super) common: CommonRef<'a>,
    /// All shards in their order, or one; the locks stay locked as long as the evictor lives.
    first: NonNull<Shard>,
    rest: Vec<NonNull<Shard>>,
    /// The shard that is worked on.
    home: NonNull<Shard>,
    locks: Held<'a>,
    pub(super) owner: Owner,
}

/// For each shard, the number of the last drain that may have changes queued before the first step.
#[derive(Debug)]
pub(super) struct Goal {
    first: u64,
    rest: Vec<u64>,
}

/// The next victim, the most blocks to evict from it, and the reason.
pub(super) struct Choice {
    victim: Link<Point>,
    most: usize,
    reason: EvictionReason,
}

/// A victim that was just unfiled. If the thread panics now, this clears `SILENT`, so that the next
/// lease on the point is queued.
struct Unfiled<'g>(Ref<'g, Point>);

impl Drop for Unfiled<'_> {
    fn drop(&mut self) {
        self.0.word.listen();
    }
}

impl Choice {
    fn for_capacity(victim: Link<Point>) -> Self {
        Self { victim, most: usize::MAX, reason: EvictionReason::Capacity }
    }
}

impl Evictor<'_> {
    /// Begins a turn of one or of all.
    pub(super) fn begin_turn(&mut self, is_of_all: bool) {
        self.first_mut().stale_left = silent::STALE;
        if !is_of_all {
            return;
        }
        self.common.listeners.sinking = Sinking::default();
        if let Some(victims) = self.common.listeners.victims.take() {
            // Left over only if an eviction into a caller's list or for the sink panicked.
            self.first_mut().freed.extend(victims.blocks);
        }
        if self.len() > 1 {
            self.end_turns_alone();
        }
    }

    /// Takes over the work that turns of one shard have left.
    #[cold]
    fn end_turns_alone(&mut self) {
        self.each_mut(|shard| shard.pending_counts.write());
        for place in 1..self.len() {
            // Left over only if a turn of this shard alone panicked.
            let Shard { freed, revisit, .. } = self.at_mut(place);
            let (freed, revisit) = (std::mem::take(freed), std::mem::take(revisit));
            self.first_mut().freed.extend(freed);
            self.first_mut().revisit.extend(revisit);
        }
    }

    /// Deflates idle hot points, then takes in expired deadlines (`keep_time`) and queue entries:
    /// at most `entries` changes, which it subtracts from `entries`. Drains each queue at most
    /// once, so it ends whatever other threads add. Returns true if nothing was left.
    pub(super) fn drain(&mut self, entries: &mut usize, resources: Resources<'_>) -> bool {
        self.totals.add(Total::Deflations, resources.hot.deflate_idle(resources.queues, resources.guard));
        self.take_in(entries, resources)
    }

    #[inline]
    fn take_in(&mut self, entries: &mut usize, resources: Resources<'_>) -> bool {
        self.each_mut(|shard| shard.now = shard.now.max(resources.now));
        self.is_caught_up(resources) || self.take_rest_in(entries, resources)
    }

    #[inline(never)]
    fn take_rest_in(&mut self, entries: &mut usize, resources: Resources<'_>) -> bool {
        // Reversing a drained chain visits each entry before the first one is taken out, so it has
        // its own limit.
        let mut turns = *entries;
        for place in 0..self.len() {
            self.work_on(place);
            let shard = self.at_mut(place);
            shard.needs_all = false;
            // The first one last: the backlog gives the latest one first.
            shard.deferred.drain(..).rev().for_each(|point| shard.backlog.push(point.get(resources.guard)));
            self.keep_time(entries, resources);
            self.work_backlog_off(place, entries, &mut turns, resources);
            let shard = self.at_mut(place);
            let queue = resources.queues.of(shard.id);
            if shard.backlog.is_empty() && !queue.is_empty() {
                shard.backlog.receive(queue.drain());
                self.work_backlog_off(place, entries, &mut turns, resources);
            }
        }
        // Work on a shard may have changed points of earlier shards.
        while let Some(place) = self.place_with_own() {
            self.work_backlog_off(place, &mut 0, &mut turns, resources);
        }
        self.is_caught_up(resources)
    }

    /// A shard with changes that the evictor itself has made.
    fn place_with_own(&self) -> Option<usize> {
        self.shards().position(|shard| shard.backlog.has_own())
    }

    /// Whether no change is left to be taken in.
    #[inline]
    pub(super) fn is_caught_up(&self, resources: Resources<'_>) -> bool {
        let is_idle = |shard: &Shard| shard.is_worked_off() && resources.queues.of(shard.id).is_empty();
        is_idle(self.first()) && self.others().all(is_idle) && self.is_on_time()
    }

    /// Takes up to `entries` entries out of a shard's backlog, and all that the evictor itself adds
    /// there meanwhile.
    fn work_backlog_off(&mut self, place: usize, entries: &mut usize, turns: &mut usize, resources: Resources<'_>) {
        loop {
            self.work_on(place);
            if *entries == 0 && !self.backlog.has_own() {
                return;
            }
            let Some(point) = self.backlog.next(turns, resources.guard) else {
                return;
            };
            self.look_into_backlog(resources);
            self.take_out(point, resources);
            *entries = entries.saturating_sub(1);
        }
    }

    /// Runs `check`; while it fails, takes in concurrent changes and runs it again, up to [`LOOKS`]
    /// times. A block that another thread moves while two counts are read may be in neither, or in
    /// both.
    pub(super) fn look_again<E>(
        &mut self,
        resources: Resources<'_>,
        check: impl Fn(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut checked = check(self);
        for _ in 0..LOOKS {
            if checked.is_ok() || self.is_caught_up(resources) {
                break;
            }
            self.settle(resources);
            checked = check(self);
        }
        checked
    }

    /// Takes in every change that was made before this call.
    pub(super) fn settle(&mut self, resources: Resources<'_>) {
        let mut all = usize::MAX;
        self.drain(&mut all, resources);
        self.return_freed(resources);
    }

    /// Does one step of [`settle`](Self::settle), of at most `entries` entries; returns true after
    /// the last step. The first step sets `goal`.
    pub(super) fn settle_towards(&mut self, goal: &mut Option<Goal>, entries: usize, resources: Resources<'_>) -> bool {
        // What was pushed before now is in the backlog or in the next drain.
        let next = |shard: &Shard| shard.backlog.received() + 1;
        let goal =
            goal.get_or_insert_with(|| Goal { first: next(self.first()), rest: self.others().map(next).collect() });
        let mut entries = entries;
        let drained = self.drain(&mut entries, resources);
        let is_there =
            |shard: &Shard, goal| (shard.backlog.is_empty() && entries > 0) || shard.backlog.received() > goal;
        drained
            || (is_there(self.first(), goal.first)
                && self.others().zip(&goal.rest).all(|(shard, goal)| is_there(shard, *goal)))
    }

    /// As [`settle`](Self::settle), for a waiter: a thread that makes blocks available afterwards
    /// sees what the caller wrote before (cache::line::wait_list).
    pub(super) fn settle_for_waiter(&mut self, resources: Resources<'_>) {
        resources.pool.free_for_waiter();
        self.totals.add(Total::Deflations, resources.hot.deflate_all(resources.queues, resources.guard));
        let mut all = usize::MAX;
        self.take_in(&mut all, resources);
        for shard in self.shards_mut() {
            shard.backlog.receive(resources.queues.of(shard.id).drain_for_waiter());
        }
        self.take_in(&mut all, resources);
    }

    /// Frees up to `want` blocks, first from namespaces over their quotas, then in the policy's
    /// order; returns how many it freed. Takes in at most `entries` changes meanwhile, which it
    /// subtracts from `entries`.
    pub(super) fn evict(&mut self, want: usize, entries: &mut usize, resources: Resources<'_>) -> usize {
        let mut any = usize::MAX;
        self.evict_of_few(want, &mut any, entries, resources)
    }

    /// As [`evict`](Self::evict), from at most `victims` victims; subtracts those that it chose
    /// from `victims`.
    pub(super) fn evict_of_few(
        &mut self,
        want: usize,
        victims: &mut usize,
        entries: &mut usize,
        resources: Resources<'_>,
    ) -> usize {
        self.evict_by(want, entries, resources, |evictor| {
            *victims = victims.checked_sub(1)?;
            evictor.choose_over_quota().or_else(|| evictor.choose().map(Choice::for_capacity))
        })
    }

    /// Frees up to `want` blocks from the victims that `choose` names; returns how many it freed.
    /// The caller has deflated idle hot points before (`drain`).
    fn evict_by(
        &mut self,
        want: usize,
        entries: &mut usize,
        resources: Resources<'_>,
        mut choose: impl FnMut(&mut Self) -> Option<Choice>,
    ) -> usize {
        let mut freed = 0;
        while freed < want && !self.needs_turn() {
            self.take_in(entries, resources);
            let Some(Choice { victim, most, reason }) = choose(self) else {
                break;
            };
            let victim = victim.get(resources.guard);
            if reason == EvictionReason::Capacity {
                self.look_ahead(victim, resources);
            }
            if !self.is_due(victim, resources) {
                continue;
            }
            freed += self.evict_victim(victim, most.min(want - freed), reason, resources);
        }
        // Takes out the parents of dead runs, so that a branch point without a child run is removed
        // before another run is attached to it.
        self.take_in(entries, resources);
        freed
    }

    /// Frees up to `most` blocks of a victim that is due; returns how many.
    #[inline(always)]
    fn evict_victim(
        &mut self,
        victim: Ref<'_, Point>,
        most: usize,
        reason: EvictionReason,
        resources: Resources<'_>,
    ) -> usize {
        self.unfile(victim);
        self.first_mut().reason = reason;
        let unfiled = Unfiled(victim);
        let freed = self.trim(victim, most, resources);
        std::mem::forget(unfiled);
        self.visit_again(resources);
        freed
    }

    /// Takes out one entry, and acts on the point's word as it is now.
    fn take_out<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) {
        // Another thread may have written the run last. A dead point's run may have been freed;
        // prefetching its address is harmless.
        prefetch(point.run().as_ptr());
        // Relaxed: only the evictor kills points; the rest of the word is only a hint.
        let word = point.word.load(Relaxed);
        if word.is_dead() {
            // Killed while it was queued; its run may be freed. The entry owned the last reference.
            _ = point.word.take_out();
            resources.guard.retire(point);
            return;
        }
        if point.run().is_trunk() {
            let word = point.word.take_out();
            self.visit_root(point, word, resources);
            return;
        }
        if !word.is_silent() && self.may_be_silent(point, word.leases() > 0, resources) {
            _ = point.word.take_out_silently();
        } else {
            _ = point.word.take_out();
        }
        self.register(point.run(), point.depth(), resources);
        self.take_retention_in(point, resources);
        self.know(point);
        self.place(point, resources);
        self.visit_again(resources);
    }

    /// Files, unfiles or ends a point according to its present word, and notes whether it is
    /// leased.
    fn place<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) {
        self.go_to(point.run());
        let mut word = point.word.look();
        if word.is_silent() && word.leases() > 0 && self.must_listen(point) {
            word = self.word_after_listening(point, resources);
        }
        if word.leases() > 0 && !word.is_silent() {
            self.unfile(point);
            // A turn of one shard may not change its ancestors' accounts; the lease was queued.
            if self.has_all() {
                self.account(point, true, resources);
            }
            return;
        }
        if point.account.get(&self.owner).is_leased() {
            self.account(point, false, resources);
        }
        self.rank(point, word, resources);
    }

    /// Files, unfiles or ends a point that has no lease but silent ones.
    fn rank<'g>(&mut self, point: Ref<'g, Point>, word: Snapshot, resources: Resources<'g>) {
        if word.children() > 0 {
            self.unfile(point);
            return;
        }
        let run = point.run();
        let is_last = run.word().len() == point.depth();
        let below = self.point_below(point).map_or(0, |below| below.depth());
        let layout = resources.layout_of(run);
        let blocks = run.blocks_to(point.depth(), layout) - run.blocks_to(below, layout);
        let must_go = if is_last && blocks > 0 { self.must_go(run, point.depth(), resources) } else { 0 };
        let in_block = point.end() != layout.boundary(point.end());
        match (is_last, blocks) {
            (true, 1..) if must_go > 0 => {
                self.unfile(point);
                self.trim(point, must_go, resources);
            }
            // A run ends inside a block only while a branch is attached there. The point at the
            // boundary below may be unknown yet, or withdrawn by a trim; then `blocks` means
            // nothing.
            (true, _) if in_block || blocks == 0 => {
                self.unfile(point);
                self.trim(point, 0, resources);
            }
            (true, _) => self.file(point, resources),
            // A branch point without a child run; `blocks` means nothing, as above.
            (false, _) if in_block => self.end_branch(point, resources),
            // A point before the end of its run: it keeps its statistics until the run ends there.
            (false, _) => self.unfile(point),
        }
    }

    /// Ranks the points that the evictor's own work has changed.
    fn visit_again(&mut self, resources: Resources<'_>) {
        while let Some(point) = self.first_mut().revisit.pop() {
            let point = point.get(resources.guard);
            // Relaxed: only the evictor kills points. One that is listed twice may have been killed
            // the first time.
            if !point.word.load(Relaxed).is_dead() {
                self.know(point);
                self.place(point, resources);
            }
        }
    }

    /// Appends `n` blocks to `blocks`, or none; just-freed blocks are preferred to the pool's.
    /// Returns whether it did.
    pub(super) fn serve(&mut self, n: usize, blocks: &mut Vec<BlockId>, resources: Resources<'_>) -> bool {
        let freed = &mut self.first_mut().freed;
        let fresh = n.min(freed.len());
        let served = fresh == n || resources.pool.try_take(n - fresh, blocks);
        if served {
            blocks.extend(freed.drain(freed.len() - fresh..));
        }
        served
    }

    /// Moves just-freed blocks to `blocks` until that has `n`.
    pub(super) fn keep_freed(&mut self, n: usize, blocks: &mut Vec<BlockId>) {
        let freed = &mut self.first_mut().freed;
        let kept = freed.len().min(n - blocks.len());
        blocks.extend(freed.drain(freed.len() - kept..));
    }

    /// The number of free blocks: in the pool, or just freed.
    pub(super) fn free(&self, resources: Resources<'_>) -> usize {
        resources.pool.free() + self.first().freed.len()
    }

    /// Gives the blocks of trimmed runs back to the pool, then shows `stats` how many are cached.
    pub(super) fn return_freed(&mut self, resources: Resources<'_>) {
        if !self.first().freed.is_empty() {
            // Taken out first: after a panic in the pool they must not be given back a second time.
            let mut freed = std::mem::take(&mut self.first_mut().freed);
            resources.pool.give_back(&freed);
            freed.clear();
            self.first_mut().freed = freed;
        }
        self.each(|shard| {
            shard.totals.set(Total::Evictable, shard.evictable as u64);
            shard.totals.set(Total::Protected, shard.protected as u64);
        });
    }
}
