//! The evictor: the single-threaded state behind one lock that decides what is evicted.
//!
//! It takes changes from one queue, keeps the accounts and the ranking up to date, chooses victims
//! and trims them. It runs on the thread that has its lock: a session that found too few blocks, a
//! caller of `settle`, or a thread that calls [`run_once`](crate::PrefixCache::run_once). No lookup
//! waits for it.
//!
//! | file | holds |
//! |---|---|
//! | `accounts` | which blocks are evictable and which protected |
//! | `ranking`, `due` | candidates filed with the policy, and the times at which time alone changes their standing |
//! | `aging` | dropping what was not used for long |
//! | `exchange` | another policy put in force, slice by slice |
//! | `listeners` | who is told of what is stored and of what goes: quotas, events, listings, sinks and others |
//! | `silent` | points whose leases are not told to the evictor |
//! | `upkeep` | what is done between evictions |
//! | `retained` | prefixes on which the cache itself has a lease, until a deadline |
//! | `ahead` | prefetching the memory of the next victims, and of the next entries |
//! | `trim` | shortening a run, the death of a run, statistics flowing down |
//! | `dead_runs` | unlinking the runs that have died, after the lock |
//! | `sweep` | taking a detached space apart |
//!
//! # Turns
//!
//! No verb holds the lock for all of its work; it takes the lock for one *turn* at a time.
//!
//! | verb | in one turn |
//! |---|---|
//! | an eviction | frees up to 128 blocks |
//! | a reservation | takes up to 16,384 blocks of 512 victims, and keeps them for its next turn |
//! | both | take in the changes queued before them in steps, and choose in the last one |
//! | a clear of a large tree | detaches it, then removes up to 24 runs, children first |
//!
//! Between the turns of a clear, runs are listed without the lock, under a guard that keeps them
//! readable. A run that another thread has evicted meanwhile has length zero and is skipped.
//!
//! `Inner::turn` moves whatever may take long out of the lock. It pins before it locks, because
//! each 128th pin frees garbage; a thread that sleeps for the lock unpins, and pins again under it.
//! Retired nodes are handed over after the lock is given up, pages of tables are unmapped after it
//! (`sync::UnmapsLater`), and wakers and the eviction sink run after it. The feature `holds`
//! measures the longest hold of the lock.

mod accounts;
mod aging;
mod ahead;
mod dead_runs;
mod due;
mod exchange;
mod listeners;
mod ranking;
mod retained;
mod silent;
mod sweep;
mod trim;
mod upkeep;

#[cfg(test)]
mod tests;

pub(super) use aging::AgingPass;
use ahead::{Soon, Upcoming};
pub(super) use dead_runs::DeadRuns;
pub(super) use exchange::{FEW_SLICES, SLICE};
use listeners::Listeners;
pub(super) use listeners::{
    Beneficiary, Cut, ForSink, GONE, LeftForSink, Listed, Listing, Live, LiveSettings, Outlet, QuotaPass, SharedOutlet,
    Subscriber, Victim, Victims,
};
pub(super) use ranking::Ranking;
pub(super) use retained::Retained;
pub(super) use silent::LeasePass;
pub(super) use sweep::{SLICE as SWEEP_SLICE, runs_below};
pub(super) use upkeep::Upkeep;

use std::collections::HashSet;

use super::listening::events::EvictionReason;
use super::matching::seen::SeenBlocks;
use crate::block::{BlockId, Grid, Pool};
use crate::policy::PolicyKind;
use crate::reclaim::{Guard, Link, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Arc, Owner, model_size, prefetch};
use crate::tree::{Backlog, HotPoints, Point, Queue, Run, Snapshot, Space};

/// How often a reservation takes in what other threads change meanwhile before it refuses.
pub(super) const LOOKS: usize = model_size(16, 1);

/// The parts of the cache that the evictor works on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resources<'g> {
    pub(super) queue: &'g Queue,
    pub(super) hot: &'g HotPoints,
    pub(super) pool: &'g Pool,
    pub(super) seen: &'g SeenBlocks,
    pub(super) live: &'g LiveSettings,
    /// Where blocks end in sequences of tokens.
    pub(super) grid: Grid,
    /// The present time of deadlines.
    pub(super) now: u64,
    pub(super) guard: &'g Guard<'g>,
    /// Runs that die in this turn.
    pub(super) dead: &'g DeadRuns,
    /// A thread, a task or the background evictor waits for blocks.
    pub(super) is_awaited: bool,
}

impl Resources<'_> {
    /// Where the blocks of `run` end.
    #[inline]
    pub(super) fn grid_of(self, run: Ref<'_, Run>) -> Grid {
        self.grid.with_offset(run.space().offset)
    }
}

/// Blocks and nodes in the evictor's accounts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) evictable: usize,
    pub(super) protected: usize,
    pub(super) inserted: u64,
    pub(super) evicted: u64,
    pub(super) evicted_for_quota: u64,
    pub(super) aged: u64,
    pub(super) cleared: u64,
    pub(super) invalidated: u64,
    pub(super) deflations: u64,
    pub(super) runs: usize,
    pub(super) points: usize,
}

impl Totals {
    #[inline]
    fn count_evicted(&mut self, blocks: u64, reason: EvictionReason) {
        match reason {
            EvictionReason::Capacity => self.evicted += blocks,
            EvictionReason::Quota => {
                self.evicted += blocks;
                self.evicted_for_quota += blocks;
            }
            EvictionReason::Age => self.aged += blocks,
            EvictionReason::Invalidated => self.invalidated += blocks,
        }
    }
}

/// The evictor's state.
///
/// In this order, so that a thread that takes it over asks for what nearly every turn writes, from
/// the ranking's policy to the end (`take_over`), and has the rest still in its own core's cache.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Evictor {
    pub(super) listeners: Listeners,
    pub(super) retained: Retained,
    /// It released a lease on a retained prefix: a waiter must be woken to try again.
    pub(super) has_let_go: bool,
    /// Points that a trim is about to kill; empty between trims.
    pub(super) to_kill: Vec<Link<Point>>,
    /// Detached spaces whose root is still held: from `sweep` to `visit_root`, which ends them.
    pub(super) detached: HashSet<Link<Space>>,
    /// Candidates that this turn may still file again.
    pub(super) stale_left: usize,
    /// The most entries that it takes out before a choice: all, unless a background thread keeps
    /// the queue short.
    patience: usize,
    pub(super) ranking: Ranking,
    pub(super) owner: Owner,
    pub(super) totals: Totals,
    /// The latest time that the evictor has seen; standings are as of this time.
    pub(super) now: u64,
    /// Entries that were received from the queue and not taken out yet.
    pub(super) backlog: Backlog,
    /// Candidates whose entries come soon, for prefetching.
    soon: Soon,
    /// The next victims, for prefetching.
    upcoming: Upcoming,
    /// Near which slot the thread that had the last turn borrows its participants.
    near: usize,
    /// Runs and pieces taken into the accounts so far: the next one's serial number.
    pub(super) registered: u64,
    /// Points whose standing was changed by the evictor's own work; only the evictor ends points,
    /// so they are alive.
    pub(super) revisit: Vec<Link<Point>>,
    /// Blocks of trimmed runs on their way to the pool, at the end of a turn, or to a reservation.
    pub(super) freed: Vec<BlockId>,
    /// Why blocks are evicted at this moment.
    reason: EvictionReason,
}

/// The next victim, how many blocks may go there, and why.
pub(super) struct Choice {
    victim: Link<Point>,
    most: usize,
    reason: EvictionReason,
}

/// A victim that is in no order any more. If the thread breaks now, the next lease tells the
/// evictor of it.
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

impl Evictor {
    /// `live`: without listeners.
    pub(super) fn new(policy: PolicyKind, patience: usize, live: Arc<Live>) -> Self {
        Self {
            owner: Owner::new(),
            totals: Totals::default(),
            ranking: Ranking::new(policy, live.time_to_idle.is_some()),
            listeners: Listeners::new(live),
            retained: Retained::default(),
            has_let_go: false,
            now: 0,
            backlog: Backlog::empty(),
            soon: Soon::default(),
            upcoming: Upcoming::default(),
            near: 0,
            registered: 0,
            revisit: Vec::new(),
            to_kill: Vec::new(),
            freed: Vec::new(),
            reason: EvictionReason::Capacity,
            stale_left: silent::STALE,
            patience,
            detached: HashSet::new(),
        }
    }

    /// A turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.stale_left = silent::STALE;
        self.listeners.sinking.begin_turn();
        if let Some(victims) = self.listeners.victims.take() {
            // After a panic in an eviction whose caller asked for its blocks, or the sink.
            self.freed.extend(victims.blocks);
        }
    }

    /// Deflates idle hot points and takes in changes, by time and from the queue. Takes in at most
    /// `entries`, from which it subtracts what it took, and none that came after it began. True if
    /// nothing was left.
    pub(super) fn drain(&mut self, entries: &mut usize, resources: Resources<'_>) -> bool {
        self.totals.deflations += resources.hot.deflate_idle(resources.queue, resources.guard);
        self.take_in(entries, resources)
    }

    #[inline]
    fn take_in(&mut self, entries: &mut usize, resources: Resources<'_>) -> bool {
        self.now = self.now.max(resources.now);
        self.is_caught_up(resources) || self.take_rest_in(entries, resources)
    }

    #[inline(never)]
    fn take_rest_in(&mut self, entries: &mut usize, resources: Resources<'_>) -> bool {
        self.keep_time(entries, resources);
        // Putting the entries into order costs a look at each of them before its turn.
        let mut turns = *entries;
        self.work_backlog_off(entries, &mut turns, resources);
        if self.backlog.is_empty() && !resources.queue.is_empty() {
            self.backlog.receive(resources.queue.drain());
            self.work_backlog_off(entries, &mut turns, resources);
        }
        self.is_caught_up(resources)
    }

    /// Whether no change is left to be taken in.
    #[inline]
    pub(super) fn is_caught_up(&self, resources: Resources<'_>) -> bool {
        self.backlog.is_empty() && resources.queue.is_empty() && self.is_on_time()
    }

    /// Takes up to `entries` out of the backlog, and all the entries that the evictor itself adds
    /// meanwhile.
    fn work_backlog_off(&mut self, entries: &mut usize, turns: &mut usize, resources: Resources<'_>) {
        while *entries > 0 || self.backlog.has_own() {
            let Some(point) = self.backlog.next(turns, resources.guard) else {
                return;
            };
            self.look_into_backlog(resources);
            self.take_out(point, resources);
            *entries = entries.saturating_sub(1);
        }
    }

    /// Checks, and while that fails takes in what other threads have changed meanwhile and checks
    /// again: what came and went between two looks may be in neither count, or in both.
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

    /// A step of [`settle`](Self::settle) of at most `entries` entries; true after the last step.
    /// The first one sets `goal`.
    pub(super) fn settle_towards(&mut self, goal: &mut Option<u64>, entries: usize, resources: Resources<'_>) -> bool {
        // What was pushed before now is in the backlog, or in the next part that is received from
        // the queue.
        let goal = *goal.get_or_insert(self.backlog.received() + 1);
        let mut entries = entries;
        let drained = self.drain(&mut entries, resources);
        drained || (self.backlog.is_empty() && entries > 0) || self.backlog.received() > goal
    }

    /// As [`settle`](Self::settle), for a waiter: a thread that makes blocks available afterwards
    /// sees what the caller wrote before (cache::line::wait_list).
    pub(super) fn settle_for_waiter(&mut self, resources: Resources<'_>) {
        resources.pool.free_for_waiter();
        self.totals.deflations += resources.hot.deflate_all(resources.queue, resources.guard);
        let mut all = usize::MAX;
        self.take_in(&mut all, resources);
        self.backlog.receive(resources.queue.drain_for_waiter());
        self.take_in(&mut all, resources);
    }

    /// Takes in the changes that a choice must know; true if nothing was left.
    pub(super) fn catch_up(&mut self, resources: Resources<'_>) -> bool {
        let mut entries = self.patience;
        self.drain(&mut entries, resources)
    }

    /// Frees up to `want` blocks, first of namespaces beyond their quotas, then in the policy's
    /// order; returns how many it freed. Takes in at most `entries` changes meanwhile, from which
    /// it subtracts what it took.
    pub(super) fn evict(&mut self, want: usize, entries: &mut usize, resources: Resources<'_>) -> usize {
        let mut any = usize::MAX;
        self.evict_of_few(want, &mut any, entries, resources)
    }

    /// As [`evict`](Self::evict), of at most so many victims, from which it subtracts those that it
    /// chose.
    pub(super) fn evict_of_few(
        &mut self,
        want: usize,
        victims: &mut usize,
        entries: &mut usize,
        resources: Resources<'_>,
    ) -> usize {
        self.evict_by(want, entries, resources, |evictor| {
            *victims = victims.checked_sub(1)?;
            evictor.choose_over_quota().or_else(|| evictor.ranking.choose().map(Choice::for_capacity))
        })
    }

    /// Frees up to `want` blocks of the victims that `choose` names; returns how many it freed.
    /// Idle hot points were deflated before (`drain`).
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
            if !self.is_due(victim, resources) {
                continue;
            }
            if reason == EvictionReason::Capacity {
                self.look_ahead(victim, resources);
            }
            self.unfile(victim);
            self.reason = reason;
            let unfiled = Unfiled(victim);
            freed += self.trim(victim, most.min(want - freed), resources);
            std::mem::forget(unfiled);
            self.visit_again(resources);
        }
        // Takes out the parents of dead runs: a branch point without a run must not stay for
        // another run to hang on.
        self.take_in(entries, resources);
        freed
    }

    /// Takes out one entry. Acts only on the word as it is now.
    fn take_out<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) {
        // Another thread wrote it, perhaps. Of a dead point it may have been freed: then that is an
        // address as any other.
        prefetch(point.run().as_ptr());
        // Relaxed: the evictor alone ends points; what else it says is a guess.
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

    /// Files, unfiles or ends a point, and notes whether it is leased, by its word as it is now.
    fn place<'g>(&mut self, point: Ref<'g, Point>, resources: Resources<'g>) {
        let mut word = point.word.look();
        if word.is_silent() && word.leases() > 0 && self.must_listen(point) {
            word = self.word_after_listening(point, resources);
        }
        if word.leases() > 0 && !word.is_silent() {
            self.unfile(point);
            self.account(point, true, resources);
            return;
        }
        if point.account.get(&self.owner).is_leased() {
            self.account(point, false, resources);
        }
        self.rank(point, word, resources);
    }

    /// Files, unfiles or ends a point that is idle, or silent.
    fn rank<'g>(&mut self, point: Ref<'g, Point>, word: Snapshot, resources: Resources<'g>) {
        if word.children() > 0 {
            self.unfile(point);
            return;
        }
        let run = point.run();
        let is_last = run.word().len() == point.depth();
        let below = self.point_below(point).map_or(0, |below| below.depth());
        let grid = resources.grid_of(run);
        let blocks = run.blocks_to(point.depth(), grid) - run.blocks_to(below, grid);
        let must_go = if is_last && blocks > 0 { self.must_go(run, point.depth(), resources) } else { 0 };
        let in_block = point.end() != grid.boundary(point.end());
        match (is_last, blocks) {
            (true, 1..) if must_go > 0 => {
                self.unfile(point);
                self.trim(point, must_go, resources);
            }
            // A run ends inside a block while a branch hangs there. The boundary below may be
            // unknown still, or withdrawn by a trim: then the number of blocks means nothing.
            (true, _) if in_block || blocks == 0 => {
                self.unfile(point);
                self.trim(point, 0, resources);
            }
            (true, _) => self.file(point, resources),
            // A branch point without a branch; the number of blocks means nothing, as above.
            (false, _) if in_block => self.end_branch(point, resources),
            // A point before the end of its run: it keeps its statistics until the run ends there.
            (false, _) => self.unfile(point),
        }
    }

    /// Ranks the points that the evictor's own work has changed.
    fn visit_again(&mut self, resources: Resources<'_>) {
        while let Some(point) = self.revisit.pop() {
            let point = point.get(resources.guard);
            // Relaxed: the evictor alone ends points. It may be here twice, and have been ended the
            // first time.
            if !point.word.load(Relaxed).is_dead() {
                self.know(point);
                self.place(point, resources);
            }
        }
    }

    /// Takes `n` blocks, all or none: first those that were just freed, then of the pool. They are
    /// appended to `blocks`.
    pub(super) fn serve(&mut self, n: usize, blocks: &mut Vec<BlockId>, resources: Resources<'_>) -> bool {
        let fresh = n.min(self.freed.len());
        let served = fresh == n || resources.pool.try_take(n - fresh, blocks);
        if served {
            blocks.extend(self.freed.drain(self.freed.len() - fresh..));
        }
        served
    }

    /// Takes blocks that were just freed, until there are `n` in `blocks`.
    pub(super) fn keep_freed(&mut self, n: usize, blocks: &mut Vec<BlockId>) {
        let kept = self.freed.len().min(n - blocks.len());
        blocks.extend(self.freed.drain(self.freed.len() - kept..));
    }

    /// Blocks that are free: in the pool, or just freed.
    pub(super) fn free(&self, resources: Resources<'_>) -> usize {
        resources.pool.free() + self.freed.len()
    }

    /// Gives the blocks of trimmed runs back to the pool.
    pub(super) fn return_freed(&mut self, resources: Resources<'_>) {
        if self.freed.is_empty() {
            return;
        }
        // Taken out first: after a panic in the pool they must not be given back a second time.
        let mut freed = std::mem::take(&mut self.freed);
        resources.pool.give_back(&freed);
        freed.clear();
        self.freed = freed;
    }
}
