//! `Inner`: the state that all handles of one cache share, and the ways to run work on its evictor.
//!
//! Each shard of the evictor has a lock. A *turn* is one bounded hold of all locks
//! ([`Inner::turn`]), or of one ([`Inner::turn_of_one`]), followed by the work that needs no lock.
//! A turn of one leaves waiters and the sink to turns of all.

use std::convert::Infallible;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::clock::Time;
use super::eviction::background::Background;
use super::eviction::kept::KeptBlocks;
use super::evictor::{
    AgingPass, DeadRuns, Evictor, Heads, LeasePass, LeftForSink, Live, LiveSettings, Resources, Shards,
};
use super::line::publications::{Publication, Publications};
use super::line::wait_list::WaitList;
use super::matching::ghost_table::GhostTable;
use super::namespaces::namespace::Registry;
use super::numbers::stats::{Gauges, Stats, read_gauges, runs};
use super::session::Near;
use super::spans::within_span;
use crate::block::{BlockLayout, Pool};
use crate::reclaim::{Domain, Guard, Idle, Local, Ref};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{OnceLock, UnmapsLater};
use crate::tree::{Demotions, HotPoints, LeaseContext, Point, Queues, ShardCount, ShardId};

/// The most queue entries that one step of the evictor takes out.
pub(super) const STEP: usize = 1024;

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
    /// On its own cache lines, apart from what lookups read, because each hold of the evictor's
    /// lock writes it.
    pub(super) gauges: Box<[CachePadded<Gauges>]>,
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

/// How long a thread waits for the evictor's lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum LockMode<'a> {
    Waits,
    Tries,
    /// Waits until it gets the lock, or another thread has served its published request.
    Publishes(&'a Publication<'a>),
}

/// The result of a turn, and the work left to do without the lock.
struct Done<R> {
    result: R,
    /// Whether a lease on a retained prefix was released.
    has_released: bool,
    for_sink: Option<Box<LeftForSink>>,
}

impl Inner {
    /// Waits for the evictor's lock, and runs `work` under it.
    pub(super) fn evicting<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.evicting_near(0, work)
    }

    /// As `evicting`, with an idle participant from near slot `near`.
    pub(super) fn evicting_near<R>(&self, near: usize, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.awaited_turn(near, work, |_, _| ())
    }

    /// As `evicting`, but then passes the lock to a thread that waits for it.
    pub(super) fn in_turn<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.in_turn_near(0, work)
    }

    /// As `in_turn`, with an idle participant from near slot `near`.
    pub(super) fn in_turn_near<R>(&self, near: usize, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.awaited_turn(near, work, |evictor, _| evictor.unlock_fairly())
    }

    /// Runs `work` under the evictor's lock, unless another thread has the lock.
    pub(super) fn try_evicting<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> Option<R> {
        self.turn(0, LockMode::Tries, work, |_, _| ())
    }

    /// Runs `turn` repeatedly while it returns true and no other thread has the evictor's lock.
    /// Between two turns a waiting thread gets the lock.
    pub(super) fn while_evicting(&self, mut turn: impl FnMut(&mut Evictor<'_>, Resources<'_>) -> bool) {
        let leave = |evictor: Evictor<'_>, more: &bool| {
            if *more {
                evictor.unlock_fairly();
            }
        };
        while self.turn(0, LockMode::Tries, &mut turn, leave) == Some(true) {}
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
        });
        before.map(drop)
    }

    /// The shortest time to idle in force, of the cache or of a namespace.
    pub(super) fn shortest_time_to_idle(&self) -> Option<Duration> {
        self.settings.time_to_idle().into_iter().chain(self.gauges[0].shortest_time_to_idle()).min()
    }

    /// A pass over prefixes that are too old now; `None` if there is no time to idle.
    pub(super) fn aging(&self) -> Option<AgingPass> {
        self.shortest_time_to_idle()?;
        Some(AgingPass::new(self.time.present(), self.settings.time_to_idle()))
    }

    /// Does one bounded step of the evictor; returns whether more is left.
    pub(super) fn step(&self, aging: Option<AgingPass>, evictor: &mut Evictor<'_>, resources: Resources<'_>) -> bool {
        within_span!("step");
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
            match self.turn(0, mode, work, |evictor, _| evictor.unlock_fairly()) {
                Some(false) => {}
                outcome => return outcome.is_some(),
            }
        }
    }

    /// Runs `work` under the evictor's lock after every change made before the call was taken in:
    /// in steps, between which other threads get their turn.
    pub(super) fn settled<R>(&self, work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R) -> R {
        self.settled_near(0, LockMode::Waits, work).expect("it waited for the lock")
    }

    /// As `settled`, with a participant from near slot `near`; `None` if the lock was busy or the
    /// request was served.
    pub(super) fn settled_near<R>(
        &self,
        near: usize,
        mode: LockMode<'_>,
        work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R,
    ) -> Option<R> {
        let (mut goal, mut work) = (None, Some(work));
        loop {
            let step = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
                let settled = evictor.settle_towards(&mut goal, STEP, resources);
                work.take_if(|_| settled).map(|work| work(evictor, resources))
            };
            let leave = |evictor: Evictor<'_>, result: &Option<R>| {
                if result.is_none() {
                    evictor.unlock_fairly();
                }
            };
            match self.turn(near, mode, step, leave) {
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
        if runs(&self.gauges) == 0 {
            self.idle.for_each_idle(|local| _ = local.give_memory_back());
            self.domain.cool_down();
        }
    }

    /// Runs a turn for which this thread waits.
    fn awaited_turn<'a, R>(
        &'a self,
        near: usize,
        work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R,
        leave: impl FnOnce(Evictor<'a>, &R),
    ) -> R {
        self.turn(near, LockMode::Waits, work, leave).expect("it waited for the lock")
    }

    /// Runs `work` under the evictor's lock, with a participant from near slot `near`; `leave`
    /// unlocks. Returns `None` if the lock was busy or the request was already served. After the
    /// lock is released it unlinks dead runs, unmaps memory that tables have freed, hands garbage
    /// over (which may free some), wakes a waiter if blocks may have become available, and calls
    /// the eviction sink. Freeing takes time, and wakers and sinks are the caller's code, so none
    /// of this runs under the lock.
    pub(super) fn turn<'a, R>(
        &'a self,
        near: usize,
        mode: LockMode<'_>,
        work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R,
        leave: impl FnOnce(Evictor<'a>, &R),
    ) -> Option<R> {
        let participant = self.idle.lend(near, || self.domain.register());
        let kept = participant.keep_garbage();
        let unmapping = UnmapsLater::begin();
        let dead = DeadRuns::default();
        let (evictor, guard) = self.lock_pinned(&participant, mode)?;
        let unlinking = dead.unlink_by(&guard, &self.seen);
        let Done { result, has_released, for_sink } =
            self.with_evictor(near, evictor, self.resources(&guard, &dead), work, leave);
        // First: from here on the blocks are in reservations, which give them back after a panic.
        let give = for_sink.map(|left| left.gather(&guard));
        drop(unlinking);
        drop(guard);
        drop(kept);
        drop(unmapping);
        participant.hand_over_if_much();
        drop(participant);
        if has_released {
            self.ring();
        }
        if let Some(give) = give {
            give();
        }
        Some(result)
    }

    /// Takes the lock, with a guard that was pinned before: pinning sometimes frees garbage, which
    /// takes longer than most turns. A thread that sleeps for the lock is not pinned meanwhile, and
    /// pins after it gets the lock.
    fn lock_pinned<'a, 'p>(&'a self, participant: &'p Local, mode: LockMode<'_>) -> Option<(Evictor<'a>, Guard<'p>)> {
        let guard = participant.pin();
        let evictor = match mode {
            LockMode::Tries => Some(self.evictor.try_lock()?),
            LockMode::Waits => self.evictor.lock_awake(|| false),
            LockMode::Publishes(publication) => self.evictor.lock_awake(|| publication.is_served()),
        };
        if let Some(evictor) = evictor {
            return Some((evictor, guard));
        }
        drop(guard);
        if matches!(mode, LockMode::Publishes(publication) if publication.is_served()) {
            return None;
        }
        let evictor = self.evictor.lock_asleep();
        Some((evictor, participant.pin()))
    }

    /// As `turn`, under the lock of one shard.
    pub(super) fn turn_of_one<R>(
        &self,
        near: Near<'_>,
        shard: ShardId,
        work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R,
    ) -> R {
        let lent = near.own.is_none().then(|| self.idle.lend(near.slot, || self.domain.register()));
        let Some(participant) = near.own.or(lent.as_deref()) else { unreachable!("there is one or the other") };
        let kept = participant.keep_garbage();
        let unmapping = UnmapsLater::begin();
        let dead = DeadRuns::default();
        let guard = participant.pin();
        let (mut evictor, guard) = match self.evictor.lock_one_awake(shard) {
            Some(evictor) => (evictor, guard),
            None => {
                drop(guard);
                (self.evictor.lock_one_asleep(shard), participant.pin())
            }
        };
        let unlinking = dead.unlink_by(&guard, &self.seen);
        let resources = self.resources(&guard, &dead);
        evictor.take_over(near.slot, resources);
        evictor.begin_turn_alone();
        let result = work(&mut evictor, resources);
        evictor.return_freed(resources);
        self.publish_gauges(&evictor);
        drop(evictor);
        drop(unlinking);
        drop(guard);
        drop(kept);
        drop(unmapping);
        participant.hand_over_if_much();
        result
    }

    /// The part of a turn that is under the lock.
    fn with_evictor<'a, R>(
        &self,
        near: usize,
        mut evictor: Evictor<'a>,
        resources: Resources<'_>,
        work: impl FnOnce(&mut Evictor<'_>, Resources<'_>) -> R,
        leave: impl FnOnce(Evictor<'a>, &R),
    ) -> Done<R> {
        evictor.take_over(near, resources);
        evictor.begin_turn();
        let result = work(&mut evictor, resources);
        evictor.return_freed(resources);
        evictor.publish_due(resources);
        if self.shards.get() > 1 {
            evictor.note_heads(&self.heads, self.time.now(), resources);
        }
        self.publish_gauges(&evictor);
        let has_released = std::mem::take(&mut evictor.common.has_released);
        let for_sink = evictor.take_for_sink(&self.kept);
        leave(evictor, &result);
        Done { result, has_released, for_sink }
    }

    #[inline]
    pub(super) fn publish_gauges(&self, evictor: &Evictor<'_>) {
        evictor.each(|shard| self.gauges[shard.id.index()].publish(shard));
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

    fn resources<'g>(&'g self, guard: &'g Guard<'g>, dead: &'g DeadRuns) -> Resources<'g> {
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

    /// Number of free blocks; with an external pool, also those that wait to be taken back.
    pub(super) fn free_blocks(&self) -> usize {
        self.pool.free() + self.returned.as_ref().map_or(0, Pool::free)
    }

    /// The statistics of the cache as of the last settling.
    pub(super) fn stats(&self) -> Stats {
        let gauged = read_gauges(&self.gauges, self.pool.capacity(), || self.free_blocks());
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
