//! `Inner`: the state that all handles of one cache share, and the ways to run work on its evictor
//! in one [turn](super::turn) or several.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::clock::Time;
use super::eviction::background::Background;
use super::eviction::kept::KeptBlocks;
use super::evictor::{AgingPass, DeadRuns, Evictor, Heads, LeasePass, Live, LiveSettings, Resources, Shards};
use super::line::publications::Publications;
use super::line::wait_list::WaitList;
use super::matching::ghost_table::GhostTable;
use super::namespaces::namespace::Registry;
use super::numbers::stats::{Stats, Total, read_totals};
use super::session::Near;
use super::turn::LockMode;
use crate::block::{BlockLayout, Pool};
use crate::reclaim::{Domain, Guard, Idle, Local, Ref};
use crate::sync::OnceLock;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::tree::{Demotions, HotPoints, LeaseContext, Point, Queues, ShardCount, ShardId};

/// The most queue entries that one step of the evictor takes out.
pub(super) const STEP: usize = 1024;

/// The time between two looks for a request to retain that another thread has not pushed yet.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Inner {
    /// Where blocks end in sequences of tokens.
    pub(super) layout: BlockLayout,
    pub(super) shards: ShardCount,
    pub(super) queues: Queues,
    pub(super) heads: Heads,
    pub(super) hot: HotPoints,
    /// Threads and tasks that wait for blocks.
    pub(super) wait_list: WaitList,
    /// Number of sessions made so far, from which the next one gets its stripe.
    pub(super) stripes: AtomicUsize,
    /// Free blocks; with an external pool, the blocks that the engine has.
    pub(super) pool: Pool,
    /// With an external pool, blocks that the engine is to take back; `None` if the cache owns its
    /// pool.
    pub(super) returned: Option<Pool>,
    pub(super) time: Time,
    pub(super) demotions: Demotions,
    pub(super) settings: LiveSettings,
    /// Number of requests to retain so far; it wraps. On its own cache lines, apart from what
    /// lookups read.
    pub(super) retentions: CachePadded<AtomicUsize>,
    pub(super) seen: GhostTable,
    pub(super) namespaces: Registry,
    pub(super) background: OnceLock<Background>,
    pub(super) evictor: Shards,
    /// The count of blocks that the eviction sink has.
    pub(super) kept: KeptBlocks,
    /// Requests of threads that wait for the evictor's lock.
    pub(super) publications: Publications,
    /// Participants of sessions that have ended, which calls and new sessions borrow.
    pub(super) idle: Idle<Local>,
    /// Number of sessions with their own participant.
    pub(super) own_participants: AtomicUsize,
    /// The last field: memory that other fields retire when they are dropped is freed with it.
    pub(super) domain: Domain,
}

impl Inner {
    /// Waits for the evictor's lock, and runs `work` under it.
    pub(super) fn evicting<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.turn(Near::default(), LockMode::Waits, work, |_| false).expect("it waited for the lock")
    }

    /// As `evicting`, but then passes the lock to a thread that waits for it.
    pub(super) fn in_turn<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.in_turn_near(Near::default(), work)
    }

    /// As `in_turn`, in the context `near`.
    pub(super) fn in_turn_near<R>(&self, near: Near<'_>, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.turn(near, LockMode::Waits, work, |_| true).expect("it waited for the lock")
    }

    /// Runs `work` under the evictor's lock, unless another thread has the lock.
    pub(super) fn try_evicting<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> Option<R> {
        self.turn(Near::default(), LockMode::Tries, work, |_| false)
    }

    /// Changes settings. Takes the evictor's lock.
    pub(super) fn change(&self, change: impl FnOnce(&mut Live)) {
        let changed: Result<(), Infallible> = self.try_change(|live| {
            change(live);
            Ok(())
        });
        changed.unwrap_or_else(|never| match never {});
    }

    /// As `change`, unless `change` fails.
    pub(super) fn try_change<E>(&self, change: impl FnOnce(&mut Live) -> Result<(), E>) -> Result<(), E> {
        let before = self.evicting(|evictor, _| {
            let mut live = Live::clone(&evictor.common.listeners.live);
            change(&mut live).map(|()| self.settings.replace(live, evictor))
        })?;
        // A request that waits for blocks which a removed sink keeps may evict others now. Woken
        // first: dropping a sink is the caller's code, which may panic.
        self.ring();
        drop(before);
        Ok(())
    }

    /// The shortest time to idle in force, of the cache or of a namespace.
    pub(super) fn shortest_time_to_idle(&self) -> Option<Duration> {
        let of_namespaces = self.evictor.totals[0].get(Total::TimeToIdle).checked_sub(1).map(Duration::from_nanos);
        self.settings.time_to_idle().into_iter().chain(of_namespaces).min()
    }

    /// A pass over prefixes that are too old now; `None` if there is no time to idle.
    pub(super) fn aging(&self) -> Option<AgingPass> {
        self.shortest_time_to_idle()?;
        Some(AgingPass::new(self.time.present(), self.settings.time_to_idle()))
    }

    /// Does one bounded step of the evictor; returns whether more is left.
    pub(super) fn step(&self, aging: Option<AgingPass>, evictor: &mut Evictor<'_>, resources: Resources<'_>) -> bool {
        let more = evictor.step(STEP, aging, resources);
        let forgetting = self.namespaces.tidy(evictor, resources);
        more || forgetting
    }

    /// Takes in every change made before the call, and every silent lease, in steps between which
    /// other threads get their turn. Stops if it gets no lock; returns whether all were taken in.
    pub(super) fn settle_by(&self, mode: LockMode<'_>) -> bool {
        let (mut goal, mut pass) = (None, LeasePass::default());
        loop {
            let work = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
                evictor.settle_towards(&mut goal, STEP, resources) && evictor.account_leases(&mut pass, STEP, resources)
            };
            match self.turn(Near::default(), mode, work, |_| true) {
                Some(false) => {}
                outcome => return outcome.is_some(),
            }
        }
    }

    /// Runs `work` under the evictor's lock after every change made before the call was taken in:
    /// in steps, between which other threads get their turn.
    pub(super) fn settled<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.settled_near(Near::default(), LockMode::Waits, work).expect("it waited for the lock")
    }

    /// As `settled`, in the context `near`; `None` if the lock was busy or the request was served.
    pub(super) fn settled_near<R>(
        &self,
        near: Near<'_>,
        mode: LockMode<'_>,
        work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R,
    ) -> Option<R> {
        let (mut goal, mut work) = (None, Some(work));
        loop {
            let step = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
                let settled = evictor.settle_towards(&mut goal, STEP, resources);
                work.take_if(|_| settled).map(|work| work(evictor, resources))
            };
            match self.turn(near, mode, step, Option::is_none) {
                Some(None) => {}
                outcome => return outcome.flatten(),
            }
        }
    }

    /// Frees as much as possible of the index memory that turns of the evictor have retired. If
    /// nothing is cached, returns spare memory to the system.
    pub(super) fn reclaim(&self) {
        self.idle.for_each_idle(Local::hand_over);
        self.participant().reclaim();
        if self.is_empty() {
            self.idle.for_each_idle(|local| _ = local.give_memory_back());
            self.domain.cool_down();
        }
    }

    /// Whether no run is cached.
    pub(super) fn is_empty(&self) -> bool {
        self.evictor.totals.iter().all(|totals| totals.get(Total::Runs) == 0)
    }

    /// Calls the background evictor if too few blocks are free after an allocation.
    #[inline]
    pub(super) fn note_blocks_left(&self) {
        if let Some(background) = self.background.get() {
            if self.sink().free() < self.settings.low_watermark() {
                background.changes_pending();
            }
        }
    }

    /// Wakes waiters after blocks may have become available. Called with no lock held.
    #[inline]
    pub(super) fn ring(&self) {
        if self.wait_list.is_awaited() {
            self.wake_waiters();
        }
    }

    #[cold]
    pub(super) fn wake_waiters(&self) {
        self.wait_list.wake();
        self.call_waiting_evictor();
    }

    /// Calls the background evictor if it waits for blocks; wakes no other waiter.
    pub(super) fn call_waiting_evictor(&self) {
        if self.wait_list.evictor_wakes() {
            if let Some(background) = self.background.get() {
                background.changes_pending();
            }
        }
    }

    pub(super) fn resources<'g>(&'g self, guard: &'g Guard<'g>, dead: &'g DeadRuns) -> Resources<'g> {
        Resources {
            queues: &self.queues,
            hot: &self.hot,
            pool: self.sink(),
            seen: &self.seen,
            live: &self.settings,
            layout: self.layout,
            now: self.time.elapsed_for_deadlines(),
            guard,
            dead,
            is_awaited: self.wait_list.is_awaited(),
        }
    }

    /// The time at which a waiter must look again, or the background evictor, if nothing wakes it
    /// before: when the first retention ends. Until the evictor has taken in every request to
    /// retain, the first one may not be known.
    pub(super) fn next_look(&self, evictor: &Evictor<'_>) -> Option<Instant> {
        // Relaxed: E21, by the waiter's look at the count of free blocks.
        let is_known = self.retentions.load(Relaxed) == evictor.common.retained.taken;
        let soon = (!is_known).then(|| Instant::now() + PAUSE);
        let first = evictor.common.retained.next().and_then(|deadline| self.time.moment(deadline));
        soon.into_iter().chain(first).min()
    }

    /// Number of free blocks; with an external pool, also those that wait to be taken back.
    pub(super) fn free_blocks(&self) -> usize {
        self.pool.free() + self.returned.as_ref().map_or(0, Pool::free)
    }

    /// The statistics of the cache as of the last settling.
    pub(super) fn stats(&self) -> Stats {
        let gauged = read_totals(&self.evictor.totals, self.pool.capacity(), || self.free_blocks());
        self.counted(Stats {
            waiting_requests: self.wait_list.len(),
            index_bytes: self.domain.bytes(),
            garbage_bytes: self.domain.garbage_bytes(),
            slab_bytes: self.domain.slab_bytes(),
            ..gauged
        })
    }

    /// Undoes earlier demotions of `point`, and of the points below it on its path, for a use at
    /// `now`.
    #[inline]
    pub(super) fn undo_demotions(&self, point: Ref<'_, Point>, now: u64, guard: &Guard<'_>) {
        if self.demotions.may_hide(now) {
            self.mark_use(point, guard);
        }
    }

    #[cold]
    pub(super) fn mark_use(&self, point: Ref<'_, Point>, guard: &Guard<'_>) {
        if point.depth() > 0 {
            point.marks.join(self.demotions.undone(), guard);
            guard.hand_over();
        }
    }

    pub(super) fn context(&self, stripe: u8) -> LeaseContext<'_> {
        LeaseContext { queues: &self.queues, hot: &self.hot, stripe, shard: ShardId::FIRST }
    }

    /// The stripe and the shard of a new session.
    pub(super) fn next_stripe(&self) -> (u8, ShardId) {
        // Relaxed: two sessions on one stripe are slower, but still correct.
        let session = self.stripes.fetch_add(1, Relaxed);
        (self.hot.stripe(session), self.shards.of(session))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if cfg!(any(radixkv_loom, radixkv_shuttle)) && crate::sync::thread::panicking() {
            return;
        }
        drop(self.background.take());
        let (participant, dead) = (self.domain.register(), DeadRuns::default());
        let guard = participant.pin();
        let unlinking = dead.unlink_by(&guard, &self.seen);
        let pool = self.returned.as_ref().unwrap_or(&self.pool);
        let resources = Resources {
            queues: &self.queues,
            hot: &self.hot,
            pool,
            seen: &self.seen,
            live: &self.settings,
            layout: self.layout,
            now: self.time.elapsed_for_deadlines(),
            guard: &guard,
            dead: &dead,
            is_awaited: false,
        };
        let mut evictor = self.evictor.lock();
        // The only leases left are those of retained prefixes in namespaces that were not dropped;
        // they are freed with their trees. Settling ends the detached trees and empties the queue.
        evictor.settle(resources);
        drop(unlinking);
        evictor.publish(resources);
        evictor.common.listeners.observers.drafts.copy_all(&guard);
        let severed = evictor.common.listeners.hidden.severed().collect();
        self.namespaces.tear_down(severed, resources);
    }
}
