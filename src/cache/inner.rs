//! `Inner`: what the handles of one cache share, and the ways to its evictor.

use std::convert::Infallible;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::clock::Time;
use super::eviction::background::Background;
use super::eviction::kept::KeptBlocks;
use super::evictor::{AgingPass, DeadRuns, Evictor, LeasePass, LeftForSink, Live, LiveSettings, Resources};
use super::line::publications::{Publication, Publications};
use super::line::wait_list::WaitList;
use super::matching::seen::SeenBlocks;
use super::namespaces::namespace::Registry;
use super::numbers::stats::{Gauges, Stats};
use super::spans::within_span;
use crate::block::{Grid, Pool};
use crate::reclaim::{Domain, Guard, Idle, Local, Ref};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Mutex, MutexGuard, OnceLock, UnmapsLater, unlock_fairly};
use crate::tree::{Demotions, HotPoints, Ledger, Point, Queue};

/// The most queue entries that one step of the evictor takes out.
pub(super) const STEP: usize = 1024;

/// What the handles of one cache share.
pub(super) struct Inner {
    /// Where blocks end in sequences of tokens.
    pub(super) grid: Grid,
    pub(super) queue: Queue,
    pub(super) hot: HotPoints,
    /// Threads and tasks that wait for blocks.
    pub(super) wait_list: WaitList,
    /// Sessions made so far, from which the next one gets its stripe.
    pub(super) stripes: AtomicUsize,
    /// Free blocks; with an external pool, the blocks that the engine has.
    pub(super) pool: Pool,
    /// With an external pool, blocks that the engine is to take back; `None` if the cache owns its pool.
    pub(super) returned: Option<Pool>,
    pub(super) time: Time,
    pub(super) demotions: Demotions,
    pub(super) settings: LiveSettings,
    /// Apart from what lookups read: each hold of the evictor's lock writes them.
    pub(super) gauges: CachePadded<Gauges>,
    pub(super) seen: SeenBlocks,
    pub(super) namespaces: Registry,
    pub(super) background: OnceLock<Background>,
    pub(super) evictor: Mutex<Evictor>,
    /// Blocks that the eviction sink has.
    pub(super) kept: KeptBlocks,
    /// What threads that wait for the evictor ask for.
    pub(super) publications: Publications,
    /// Participants of sessions that have ended, and those that calls borrow.
    pub(super) idle: Idle<Local>,
    /// Sessions that have a participant of their own.
    pub(super) own_participants: AtomicUsize,
    /// The last field: memory that the other fields retire when they are dropped is freed with it.
    pub(super) domain: Domain,
}

/// Whether a thread waits for the evictor, or goes on without it where another thread uses it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience<'a> {
    Waits,
    Tries,
    /// Waits until it gets the lock, or another thread has served what it has published.
    Publishes(&'a Publication<'a>),
}

/// What a turn leaves to be done without the lock.
struct Done<R> {
    result: R,
    /// A lease on a retained prefix was released.
    has_let_go: bool,
    for_sink: Option<Box<LeftForSink>>,
}

impl Inner {
    /// Runs `work` with the evictor, once no other thread uses it.
    pub(super) fn evicting<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.evicting_near(0, work)
    }

    /// As `evicting`, by a participant `near` a slot.
    pub(super) fn evicting_near<R>(&self, near: usize, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.awaited_turn(near, work, |_, _| ())
    }

    /// As `evicting`, after which a thread that waits for the lock gets it.
    pub(super) fn in_turn<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.in_turn_near(0, work)
    }

    /// As `in_turn`, by a participant `near` a slot.
    pub(super) fn in_turn_near<R>(&self, near: usize, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.awaited_turn(near, work, |evictor, _| unlock_fairly(evictor))
    }

    /// Runs `work` with the evictor unless another thread uses it.
    pub(super) fn try_evicting<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> Option<R> {
        self.turn(0, Patience::Tries, work, |_, _| ())
    }

    /// Runs `turn` as long as it returns true and no other thread uses the evictor. Between two turns a thread that waits for
    /// the lock gets it.
    pub(super) fn while_evicting(&self, mut turn: impl FnMut(&mut Evictor, Resources<'_>) -> bool) {
        let leave = |evictor, more: &bool| {
            if *more {
                unlock_fairly(evictor);
            }
        };
        while self.turn(0, Patience::Tries, &mut turn, leave) == Some(true) {}
    }

    /// Changes a setting. Takes the evictor's lock.
    pub(super) fn change(&self, change: impl FnOnce(&mut Live)) {
        let changed: Result<(), Infallible> = self.try_change(|live| {
            change(live);
            Ok(())
        });
        changed.unwrap_or_else(|never| match never {});
    }

    /// The same, unless `change` fails.
    pub(super) fn try_change<E>(&self, change: impl FnOnce(&mut Live) -> Result<(), E>) -> Result<(), E> {
        let before = self.evicting(|evictor, _| {
            let mut live = Live::clone(&evictor.listeners.live);
            change(&mut live).map(|()| self.settings.replace(live, evictor))
        });
        before.map(drop)
    }

    /// No prefix is dropped for its age earlier than so long after its last use.
    pub(super) fn shortest_time_to_idle(&self) -> Option<Duration> {
        self.settings.time_to_idle().into_iter().chain(self.gauges.shortest_time_to_idle()).min()
    }

    /// A pass over what is too old now, if there may be anything.
    pub(super) fn aging(&self) -> Option<AgingPass> {
        self.shortest_time_to_idle()?;
        Some(AgingPass::new(self.time.present(), self.settings.time_to_idle()))
    }

    /// One bounded step of the evictor; true if more is left.
    pub(super) fn step(&self, aging: Option<AgingPass>, evictor: &mut Evictor, resources: Resources<'_>) -> bool {
        within_span!("step");
        let more = evictor.step(STEP, aging, resources);
        let forgetting = self.namespaces.tidy(evictor, resources);
        more || forgetting
    }

    /// Takes in every change made before the call, and every lease, in steps between which other threads get their turn; stops where it
    /// gets no lock. Whether all were taken in.
    pub(super) fn settle_by(&self, patience: Patience<'_>) -> bool {
        let (mut goal, mut pass) = (None, LeasePass::default());
        loop {
            let work = |evictor: &mut Evictor, resources: Resources<'_>| {
                evictor.settle_towards(&mut goal, STEP, resources) && evictor.account_leases(&mut pass, STEP, resources)
            };
            match self.turn(0, patience, work, |evictor, _| unlock_fairly(evictor)) {
                Some(false) => {}
                outcome => return outcome.is_some(),
            }
        }
    }

    /// Runs `work` with the evictor once it has taken in every change made before the call: in steps, between which other
    /// threads get their turn.
    pub(super) fn settled<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.settled_near(0, Patience::Waits, work).expect("it waited for the lock")
    }

    /// As `settled`, by a participant `near` a slot; nothing where `turn` does nothing.
    pub(super) fn settled_near<R>(
        &self,
        near: usize,
        patience: Patience<'_>,
        work: impl FnOnce(&mut Evictor, Resources<'_>) -> R,
    ) -> Option<R> {
        let (mut goal, mut work) = (None, Some(work));
        loop {
            let step = |evictor: &mut Evictor, resources: Resources<'_>| {
                let settled = evictor.settle_towards(&mut goal, STEP, resources);
                work.take_if(|_| settled).map(|work| work(evictor, resources))
            };
            let leave = |evictor, result: &Option<R>| {
                if result.is_none() {
                    unlock_fairly(evictor);
                }
            };
            match self.turn(near, patience, step, leave) {
                Some(None) => {}
                outcome => return outcome.flatten(),
            }
        }
    }

    /// Frees what it can of the index memory that turns of the evictor have retired. If nothing is cached, gives back the memory
    /// that is kept for what will be.
    pub(super) fn reclaim(&self) {
        self.idle.for_each_idle(Local::hand_over);
        self.participant().reclaim();
        if self.gauges.runs() == 0 {
            self.idle.for_each_idle(|local| _ = local.give_memory_back());
            self.domain.cool_down();
        }
    }

    /// A turn for which this thread waits.
    fn awaited_turn<'a, R>(
        &'a self,
        near: usize,
        work: impl FnOnce(&mut Evictor, Resources<'_>) -> R,
        leave: impl FnOnce(MutexGuard<'a, Evictor>, &R),
    ) -> R {
        self.turn(near, Patience::Waits, work, leave).expect("it waited for the lock")
    }

    /// Runs `work` with the evictor, by a participant `near` a slot, and lets `leave` unlock it; nothing if it gets no lock, or was served meanwhile. Then unlinks
    /// what has died, unmaps what tables have freed, hands garbage over, which may free some, wakes a waiter if blocks may have
    /// become available, and calls the eviction sink. In this order because freeing takes time, and because a waker and a sink are the
    /// caller's code, and run under no lock.
    pub(super) fn turn<'a, R>(
        &'a self,
        near: usize,
        patience: Patience<'_>,
        work: impl FnOnce(&mut Evictor, Resources<'_>) -> R,
        leave: impl FnOnce(MutexGuard<'a, Evictor>, &R),
    ) -> Option<R> {
        let participant = self.idle.lend(near, || self.domain.register());
        let kept = participant.keep_garbage();
        let unmapping = UnmapsLater::begin();
        let dead = DeadRuns::default();
        let (evictor, guard) = self.lock_pinned(&participant, patience)?;
        let unlinking = dead.unlink_by(&guard, &self.seen);
        let Done { result, has_let_go, for_sink } =
            self.with_evictor(near, evictor, self.resources(&guard, &dead), work, leave);
        // First: from here on the blocks are in reservations, which give them back if anything panics.
        let give = for_sink.map(|left| left.gather(&guard));
        drop(unlinking);
        drop(guard);
        drop(kept);
        drop(unmapping);
        participant.hand_over_if_much();
        drop(participant);
        if has_let_go {
            self.ring();
        }
        if let Some(give) = give {
            give();
        }
        Some(result)
    }

    /// The lock, and a guard that was pinned before: to pin frees garbage now and then, which takes longer than most turns. A thread
    /// that sleeps for the lock is not pinned meanwhile, and pins under it.
    fn lock_pinned<'a, 'p>(
        &'a self,
        participant: &'p Local,
        patience: Patience<'_>,
    ) -> Option<(MutexGuard<'a, Evictor>, Guard<'p>)> {
        let guard = participant.pin();
        let evictor = match patience {
            Patience::Tries => Some(self.evictor.try_lock()?),
            Patience::Waits => self.evictor.lock_awake(|| false),
            Patience::Publishes(publication) => self.evictor.lock_awake(|| publication.is_served()),
        };
        if let Some(evictor) = evictor {
            return Some((evictor, guard));
        }
        drop(guard);
        if matches!(patience, Patience::Publishes(publication) if publication.is_served()) {
            return None;
        }
        let evictor = self.evictor.lock_asleep();
        Some((evictor, participant.pin()))
    }

    /// The part of a turn that is under the lock.
    fn with_evictor<'a, R>(
        &self,
        near: usize,
        mut evictor: MutexGuard<'a, Evictor>,
        resources: Resources<'_>,
        work: impl FnOnce(&mut Evictor, Resources<'_>) -> R,
        leave: impl FnOnce(MutexGuard<'a, Evictor>, &R),
    ) -> Done<R> {
        evictor.take_over(near, resources);
        evictor.begin_turn();
        let result = work(&mut evictor, resources);
        evictor.return_freed(resources);
        evictor.publish_due(resources);
        self.gauges.publish(&evictor);
        let has_let_go = std::mem::take(&mut evictor.has_let_go);
        let for_sink = evictor.take_for_sink(&self.kept);
        leave(evictor, &result);
        Done { result, has_let_go, for_sink }
    }

    /// Calls the background evictor if an allocation has left too few free blocks.
    #[inline]
    pub(super) fn note_blocks_left(&self) {
        if let Some(background) = self.background.get() {
            if self.sink().free() < self.settings.low_watermark() {
                background.changes_pending();
            }
        }
    }

    /// Called with no lock held after blocks may have become available.
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

    /// The part of it that wakes no waiter.
    pub(super) fn call_waiting_evictor(&self) {
        if self.wait_list.evictor_wakes() {
            if let Some(background) = self.background.get() {
                background.changes_pending();
            }
        }
    }

    fn resources<'g>(&'g self, guard: &'g Guard<'g>, dead: &'g DeadRuns) -> Resources<'g> {
        Resources {
            queue: &self.queue,
            hot: &self.hot,
            pool: self.sink(),
            seen: &self.seen,
            live: &self.settings,
            grid: self.grid,
            now: self.time.elapsed_for_deadlines(),
            guard,
            dead,
            is_awaited: self.wait_list.is_awaited(),
        }
    }

    /// Blocks that hold nothing.
    pub(super) fn free_blocks(&self) -> usize {
        self.pool.free() + self.returned.as_ref().map_or(0, Pool::free)
    }

    /// Numbers of the cache as of the last settling.
    pub(super) fn stats(&self) -> Stats {
        let gauged = self.gauges.read(self.pool.capacity(), self.free_blocks());
        self.counted(Stats {
            waiting_requests: self.wait_list.len(),
            index_bytes: self.domain.bytes(),
            garbage_bytes: self.domain.garbage_bytes(),
            slab_bytes: self.domain.slab_bytes(),
            ..gauged
        })
    }

    /// A use at `now` undoes the demotions that were there before it, of `point` and of all that its marks flow to.
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

    pub(super) fn ledger(&self, stripe: u8) -> Ledger<'_> {
        Ledger { queue: &self.queue, hot: &self.hot, stripe }
    }

    pub(super) fn next_stripe(&self) -> u8 {
        // Relaxed: two sessions on one stripe are slower and nothing else.
        self.hot.stripe(self.stripes.fetch_add(1, Relaxed))
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
            queue: &self.queue,
            hot: &self.hot,
            pool,
            seen: &self.seen,
            live: &self.settings,
            grid: self.grid,
            now: self.time.elapsed_for_deadlines(),
            guard: &guard,
            dead: &dead,
            is_awaited: false,
        };
        let evictor = self.evictor.get_mut();
        // The only leases left are those of retained prefixes in namespaces that stand, and they are freed with their
        // trees. Settling ends the detached trees and empties the queue.
        evictor.settle(resources);
        drop(unlinking);
        evictor.publish(resources);
        evictor.listeners.observers.drafts.copy_all(&guard);
        let severed = evictor.listeners.hidden.severed().collect();
        self.namespaces.tear_down(severed, resources);
    }
}
