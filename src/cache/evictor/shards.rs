//! The shards of the evictor, and the locks that a turn has.
//!
//! A run belongs for life to the shard of the session that inserted it. Each shard has a lock, a
//! queue, an order of candidates and totals. A turn of *all* has the locks of all shards, taken in
//! their order; a turn of *one* has one lock, and is restricted (`alone`).
//!
//! # Invariants
//!
//! - **V1** The state that the shards share ([`Common`]) is written only in a turn of all. A turn
//!   of one reads it, and its lock excludes every turn of all.
//! - **V2** A turn of one accesses the evictor's data on a run or point ([`OwnerCell`]) only if the
//!   run belongs to its shard.
//! - **V3** A turn reaches its locked shards only through pointers that it made when it got the
//!   locks. References made from them borrow the [`Evictor`].
//!
//! [`OwnerCell`]: crate::sync::OwnerCell
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
#[cfg(feature = "holds")]
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::ahead::{Soon, Upcoming};
use super::listeners::{Listeners, Live, Sorting};
use super::pending_counts::PendingCounts;
use super::{Evictor, Ranking, Retained, silent};
use crate::block::BlockId;
use crate::cache::listening::events::EvictionReason;
use crate::cache::numbers::stats::{SharedTotals, Total};
use crate::policy::PolicyKind;
use crate::reclaim::{Link, Ref};
use crate::sync::{Arc, Mutex, MutexGuard, Owner, unlock_fairly};
use crate::tree::{Backlog, Point, Run, ShardCount, ShardId, Space};

/// The state that the shards share.
#[derive(Debug)]
pub(in crate::cache) struct Common {
    pub(in crate::cache) listeners: Listeners,
    pub(in crate::cache) retained: Retained,
    /// Whether this turn has released the lease of a retention; then it wakes a waiter at its end.
    pub(in crate::cache) has_released: bool,
    /// Detached spaces whose root is not dead yet: `sweep` adds them, `visit_root` ends and removes
    /// them.
    pub(in crate::cache) detached: HashSet<Link<Space>>,
}

/// The state of one shard.
///
/// The fields that nearly every turn writes come last, from the ranking's policy on: a thread that
/// takes the shard over prefetches them as one range (`take_over`). It usually has the others in
/// its own core's cache already.
#[derive(Debug)]
#[repr(C)]
pub(in crate::cache) struct Shard {
    pub(in crate::cache) id: ShardId,
    /// Points that a trim is about to kill; empty between trims.
    pub(super) to_kill: Vec<Link<Point>>,
    /// How many more candidates this turn may file again or find leased.
    pub(super) stale_left: usize,
    /// Number of turns of one in this shard.
    pub(super) turns_alone: u32,
    /// Whether the last look at the other shards found an older first candidate.
    pub(super) is_young: bool,
    /// Whether an entry waits for a turn of all that must come next.
    pub(super) needs_all: bool,
    /// The time between the last uses of about eight successive victims: eight times the moving
    /// average of one.
    pub(super) span: u64,
    /// The latest last use of a victim so far; 0 before the first one.
    pub(super) last_victim: u64,
    /// The shard's entry in `alone::Heads`.
    pub(super) noted_head: u64,
    pub(in crate::cache) sorting: Sorting,
    pub(in crate::cache) ranking: Ranking,
    pub(in crate::cache) totals: SharedTotals,
    /// Cached blocks that no lease protects.
    pub(in crate::cache) evictable: usize,
    /// Cached blocks that a lease protects.
    pub(in crate::cache) protected: usize,
    /// The latest time of deadlines that a turn had; candidates' stats are as of this time.
    pub(super) now: u64,
    /// Entries that were drained from the queue and not taken out yet.
    pub(in crate::cache) backlog: Backlog,
    /// Entries that were taken from the backlog and need a turn of all; each is still `QUEUED`.
    pub(super) deferred: Vec<Link<Point>>,
    pub(super) pending_counts: PendingCounts,
    /// Candidates whose queue entries are taken out soon, for prefetching.
    pub(super) soon: Soon,
    /// The next victims, for prefetching.
    pub(super) upcoming: Upcoming,
    /// The near slot of the last turn's thread. Another thread prefetches more (`take_over`).
    pub(super) near: usize,
    /// Runs and pieces taken into the accounts so far: the next one's serial number.
    pub(super) registered: u64,
    /// Points to rank again because the evictor's own work changed them. One that is listed twice
    /// may be dead by the second time.
    pub(in crate::cache) revisit: Vec<Link<Point>>,
    /// Blocks of trimmed runs: a reservation takes them, or the pool gets them at the end of the
    /// turn.
    pub(in crate::cache) freed: Vec<BlockId>,
    /// The reason of the eviction in progress.
    pub(super) reason: EvictionReason,
}

/// All shards of a cache.
#[derive(Debug)]
pub(in crate::cache) struct Shards {
    common: UnsafeCell<Common>,
    locks: Box<[CachePadded<Mutex<Shard>>]>,
    /// The totals of each shard, which are read without its lock.
    pub(in crate::cache) totals: Box<[SharedTotals]>,
}

// SAFETY: V1: `common` is written by the holder of all locks, and read by holders of one, which
// order the accesses. What it holds may be sent between threads.
unsafe impl Sync for Shards {}

/// A turn's reference to the state that the shards share.
pub(in crate::cache) struct CommonRef<'a> {
    common: &'a UnsafeCell<Common>,
    is_exclusive: bool,
}

impl Deref for CommonRef<'_> {
    type Target = Common;

    #[inline]
    fn deref(&self) -> &Common {
        // SAFETY: V1: a turn has at least one lock, so no turn of all of another thread runs; this
        // turn's own writes borrow `self`.
        unsafe { &*self.common.get() }
    }
}

impl DerefMut for CommonRef<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Common {
        assert!(self.is_exclusive, "a turn of one shard writes what the shards share");
        // SAFETY: V1: this turn has all locks, so no other thread has a reference.
        unsafe { &mut *self.common.get() }
    }
}

/// The locks that a turn has.
pub(super) struct Held<'a> {
    first: Option<MutexGuard<'a, Shard>>,
    rest: Vec<MutexGuard<'a, Shard>>,
}

impl Shard {
    /// Whether no candidate is due (`due`).
    #[inline]
    pub(super) fn is_on_time(&self) -> bool {
        self.ranking.due.first(self.now).is_none()
    }

    /// Whether every drained entry was taken out, also the deferred ones.
    #[inline]
    pub(in crate::cache) fn is_worked_off(&self) -> bool {
        self.backlog.is_empty() && self.deferred.is_empty()
    }

    fn new(id: ShardId, policy: PolicyKind, aging: bool, totals: SharedTotals) -> Self {
        totals.set(Total::Policy, policy.code());
        Self {
            id,
            totals,
            evictable: 0,
            protected: 0,
            ranking: Ranking::new(policy, aging),
            sorting: Sorting::default(),
            now: 0,
            backlog: Backlog::empty(),
            deferred: Vec::new(),
            pending_counts: PendingCounts::default(),
            soon: Soon::default(),
            upcoming: Upcoming::default(),
            near: 0,
            registered: 0,
            revisit: Vec::new(),
            to_kill: Vec::new(),
            freed: Vec::new(),
            reason: EvictionReason::Capacity,
            stale_left: silent::STALE,
            turns_alone: 0,
            noted_head: u64::MAX,
            is_young: true,
            span: 0,
            last_victim: 0,
            needs_all: false,
        }
    }
}

impl Shards {
    /// `live` must have no listeners yet.
    pub(in crate::cache) fn new(shards: ShardCount, policy: PolicyKind, live: Arc<Live>) -> Self {
        let aging = live.time_to_idle.is_some();
        let totals: Box<[_]> = shards.all().map(|_| SharedTotals::default()).collect();
        let shard = |id: ShardId| Shard::new(id, policy, aging, Arc::clone(&totals[id.index()]));
        let locks = shards.all().map(|id| CachePadded::new(Mutex::measured(shard(id)))).collect();
        let common = Common {
            listeners: Listeners::new(live),
            retained: Retained::default(),
            has_released: false,
            detached: HashSet::new(),
        };
        Self { common: UnsafeCell::new(common), locks, totals }
    }

    #[inline]
    fn evictor<'a>(&'a self, mut first: MutexGuard<'a, Shard>, mut rest: Vec<MutexGuard<'a, Shard>>) -> Evictor<'a> {
        let shard = NonNull::from(&mut *first);
        let others =
            if rest.is_empty() { Vec::new() } else { rest.iter_mut().map(|lock| NonNull::from(&mut **lock)).collect() };
        let common = CommonRef { common: &self.common, is_exclusive: rest.len() + 1 == self.locks.len() };
        let locks = Held { first: Some(first), rest };
        Evictor { common, first: shard, rest: others, home: shard, locks, owner: Owner::new() }
    }

    /// Waits for the locks of all shards.
    pub(in crate::cache) fn lock(&self) -> Evictor<'_> {
        self.with_rest(None, self.locks[0].lock())
    }

    /// Waits for the lock of `shard`, or for the locks of all, but never sleeps for the first one:
    /// `None` if it gets none after some tens of microseconds, or as soon as `ends` returns true.
    #[inline]
    pub(in crate::cache) fn lock_awake(&self, shard: Option<ShardId>, ends: impl Fn() -> bool) -> Option<Evictor<'_>> {
        self.locks[first_of(shard)].lock_awake(ends).map(|first| self.with_rest(shard, first))
    }

    /// Waits for the same locks, after `lock_awake` got none.
    #[cold]
    pub(in crate::cache) fn lock_asleep(&self, shard: Option<ShardId>) -> Evictor<'_> {
        self.with_rest(shard, self.locks[first_of(shard)].lock_asleep())
    }

    /// Takes all locks, or none if another thread has one.
    #[inline]
    pub(in crate::cache) fn try_lock(&self) -> Option<Evictor<'_>> {
        let first = self.locks[0].try_lock()?;
        let rest = self.locks[1..].iter().map(|lock| lock.try_lock()).collect::<Option<_>>()?;
        Some(self.evictor(first, rest))
    }

    /// The evictor of `shard`, or of all, after the first lock was taken.
    #[inline]
    fn with_rest<'a>(&'a self, shard: Option<ShardId>, first: MutexGuard<'a, Shard>) -> Evictor<'a> {
        let rest = if shard.is_some() || self.locks.len() == 1 { Vec::new() } else { self.lock_rest() };
        self.evictor(first, rest)
    }

    #[inline(never)]
    fn lock_rest(&self) -> Vec<MutexGuard<'_, Shard>> {
        self.locks[1..].iter().map(|lock| lock.lock()).collect()
    }

    /// Whether a thread waits for a turn of all: a hint.
    #[inline]
    pub(in crate::cache) fn are_awaited(&self) -> bool {
        self.locks[0].is_awaited()
    }

    /// The longest hold since the last call.
    #[cfg(feature = "holds")]
    pub(in crate::cache) fn longest_hold(&self) -> Duration {
        self.locks.iter().map(|lock| lock.longest_hold()).max().unwrap_or_default()
    }
}

/// The index of the first lock of a turn of `shard`, or of all.
fn first_of(shard: Option<ShardId>) -> usize {
    shard.unwrap_or(ShardId::FIRST).index()
}

impl Evictor<'_> {
    /// Releases the locks. A thread that waits for a turn of all gets time to take the first one; it
    /// finds the others free.
    pub(in crate::cache) fn unlock_fairly(mut self) {
        self.locks.rest.clear();
        self.locks.first.take().into_iter().for_each(unlock_fairly);
    }

    /// The shard of a run, which is locked.
    #[inline]
    fn shard_of(&self, run: Ref<'_, Run>) -> NonNull<Shard> {
        if !self.rest.is_empty() {
            return self.pointer(run.shard().index());
        }
        assert!(self.has(run), "a turn of one shard works on a run of another one");
        self.first
    }

    /// The locked shard at a place, if there is one.
    pub(super) fn get(&self, place: usize) -> Option<&Shard> {
        // SAFETY: V3.
        (place < self.len()).then(|| unsafe { self.pointer(place).as_ref() })
    }

    fn pointer(&self, place: usize) -> NonNull<Shard> {
        place.checked_sub(1).map_or(self.first, |other| self.rest[other])
    }

    /// Number of locked shards.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rest.len() + 1
    }

    /// The locked shard at a place that is less than `len`.
    pub(super) fn at(&self, place: usize) -> &Shard {
        // SAFETY: V3.
        unsafe { self.pointer(place).as_ref() }
    }

    pub(super) fn at_mut(&mut self, place: usize) -> &mut Shard {
        // SAFETY: V3.
        unsafe { self.pointer(place).as_mut() }
    }

    #[inline]
    pub(super) fn first(&self) -> &Shard {
        // SAFETY: V3.
        unsafe { self.first.as_ref() }
    }

    #[inline]
    pub(super) fn first_mut(&mut self) -> &mut Shard {
        // SAFETY: V3.
        unsafe { self.first.as_mut() }
    }

    /// Makes the shard at this place the one that is worked on.
    #[inline]
    pub(super) fn work_on(&mut self, place: usize) {
        self.home = self.pointer(place);
    }

    /// Whether this is a turn of all.
    #[inline]
    pub(super) fn has_all(&self) -> bool {
        self.common.is_exclusive
    }

    /// Whether the turn has the lock of a run's shard.
    #[inline]
    pub(super) fn has(&self, run: Ref<'_, Run>) -> bool {
        self.common.is_exclusive || run.shard() == self.first().id
    }

    /// The shard of a run.
    #[inline]
    pub(in crate::cache) fn of(&self, run: Ref<'_, Run>) -> &Shard {
        // SAFETY: V3.
        unsafe { self.shard_of(run).as_ref() }
    }

    #[inline]
    pub(super) fn of_mut(&mut self, run: Ref<'_, Run>) -> &mut Shard {
        // SAFETY: V3.
        unsafe { self.shard_of(run).as_mut() }
    }

    /// Makes the shard of a run the one that is worked on.
    #[inline]
    pub(super) fn go_to(&mut self, run: Ref<'_, Run>) {
        self.home = self.shard_of(run);
    }

    /// The locked shards.
    #[inline]
    pub(in crate::cache) fn shards(&self) -> impl Iterator<Item = &Shard> {
        (0..self.len()).map(|place| self.at(place))
    }

    /// The locked shards but the first.
    #[inline]
    pub(super) fn others(&self) -> impl Iterator<Item = &Shard> {
        // SAFETY: V3.
        self.rest.iter().map(|shard| unsafe { shard.as_ref() })
    }

    #[inline]
    pub(in crate::cache) fn each(&self, look: impl Fn(&Shard)) {
        look(self.first());
        self.others().for_each(look);
    }

    #[inline]
    pub(super) fn each_mut(&mut self, change: impl Fn(&mut Shard)) {
        change(self.first_mut());
        // SAFETY: V3.
        self.rest.iter_mut().for_each(|shard| change(unsafe { shard.as_mut() }));
    }

    pub(super) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        // SAFETY: V3: the pointers are to different shards.
        let first = unsafe { self.first.as_mut() };
        // SAFETY: V3.
        std::iter::once(first).chain(self.rest.iter_mut().map(|shard| unsafe { shard.as_mut() }))
    }

    /// The sum of a number over the locked shards.
    #[inline]
    pub(in crate::cache) fn sum(&self, number: impl Fn(&Shard) -> usize) -> usize {
        number(self.first()) + self.others().map(number).sum::<usize>()
    }

    /// Blocks that can be evicted.
    #[inline]
    pub(in crate::cache) fn evictable(&self) -> usize {
        self.sum(|shard| shard.evictable)
    }
}

impl Drop for Evictor<'_> {
    /// Releases the first lock last, as [`unlock_fairly`](Evictor::unlock_fairly) does.
    fn drop(&mut self) {
        if !self.locks.rest.is_empty() {
            self.locks.rest.clear();
        }
    }
}

impl Deref for Evictor<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        // SAFETY: V3.
        unsafe { self.home.as_ref() }
    }
}

impl DerefMut for Evictor<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        // SAFETY: V3.
        unsafe { self.home.as_mut() }
    }
}
