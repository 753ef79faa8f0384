//! The cache: composes tree, pool and policy, and is the only place with effects across them.
//!
//! | file | holds |
//! |---|---|
//! | `builder` | configuration and its checks |
//! | `session`, `partial`, `allocate` | the verbs of a scheduler thread |
//! | `retention` | what a session may ask for a prefix: priorities, retaining, demoting |
//! | `line`, `waiting` | those who wait for blocks |
//! | `lease`, `reservation`, `fork`, `hold` | RAII handles, and what keeps the cache alive for them |
//! | `external` | the engine's own pool: its ids in, evicted ids out |
//! | `namespace` | trees that never share |
//! | `evictor`, `background` | accounts, ranking, trimming; the thread around them |
//! | `exchange`, `quota` | another policy at run time; limits of namespaces |
//! | `clock`, `stats`, `validate` | time, numbers, invariants |

mod allocate;
mod background;
mod builder;
mod clock;
pub mod diagnostics;
mod evictor;
mod exchange;
mod external;
mod fork;
mod lease;
mod namespace;
mod partial;
mod quota;
mod reservation;
mod retention;
mod session;
mod stats;
mod strong_ref;
mod validate;
mod wait_list;
#[cfg(feature = "async")]
mod waiting;

use std::fmt;
use std::time::Duration;

pub use background::{Eviction, Watermarks};
#[cfg(test)]
pub(crate) use builder::MAX_TOKENS;
pub use builder::{BuildError, Builder};
pub use clock::Clock;
pub use external::AdoptError;
pub use fork::PendingCopy;
pub use lease::{Lease, PrefixMatch};
pub use namespace::{Keys, Namespace};
pub use partial::PartialHit;
pub use quota::{NamespaceStats, Quota};
pub use reservation::{Reservation, ReserveError};
pub use retention::{Priority, PriorityError, RetainError};
pub use session::{InsertError, InsertErrorKind, Inserted, Session};
pub use stats::Stats;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use strong_ref::{StrongRef, StrongRefs};
#[cfg(feature = "async")]
pub use waiting::Reserving;

use background::Background;
use clock::Time;
use diagnostics::Violation;
use evictor::{Evictor, PinnedEvictor, Resources, Upkeep};
use namespace::{Pass, Registry};
use stats::Gauges;
use wait_list::WaitList;

use crate::block::{Grid, Pool};
use crate::reclaim::{Domain, Guard, Idle, Ref};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock, unlock_fairly};
use crate::tree::{Demotions, HotPoints, Ledger, Point, Queue};

/// Garbage of evictions that may wait for the next one.
const RECLAIM_BYTES: usize = 32 << 10;

/// Queue entries that one step of the evictor takes out at most.
const STEP: usize = 1024;

/// A concurrent prefix cache: maps token sequences to the KV blocks that hold their keys and values.
///
/// A handle: clones share one cache, which lives as long as any handle, [`Session`], [`Lease`], [`Reservation`] or
/// other handle made from it. Whoever drops the last of them frees the index, on its thread: about 3 s for a million
/// runs. A handle that is forgotten ([`std::mem::forget`]) keeps the cache for good.
///
/// | verb | takes effect | progress | allocates |
/// |---|---|---|---|
/// | [`Session::match_prefix`] | when its lease is counted | lock-free | the result; a point for a match that ends inside a run |
/// | [`Session::resume`] | as a match | lock-free | as a match |
/// | [`Session::peek`] | when it reads the last run's length | lock-free | nothing |
/// | [`Session::insert`] | when the run is linked | lock-free | the run |
/// | dropping a [`Lease`] | at once | lock-free | nothing |
/// | [`Session::reserve`] | when the blocks are counted off | lock-free while enough are free; else waits its turn to evict | the result |
/// | [`PrefixCache::evict`], [`settle`](Self::settle), [`clear`](Self::clear) | | waits its turn | the evictor's tables |
/// | [`PrefixCache::stats`] | | never waits | the evictor's tables |
///
/// Without a background evictor each 256th verb of a session *helps*: if no other thread evicts it takes up to 1,024
/// changes in, does a slice of what else is due, and allocates what the evictor's tables then need. A waker that is
/// called ([`reserve_async`](Self::reserve_async)) runs on the thread whose verb made blocks available.
///
/// # Forked processes
///
/// A child that is forked off has a copy of the cache and not its background thread, and locks that other threads held
/// at that moment stay locked in it. It must not use the cache. It may drop its handles if no other thread was inside a
/// verb then; otherwise it forgets them ([`std::mem::forget`]).
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
///
/// let cache = PrefixCache::builder(4, 64).build()?;
/// let session = cache.session();
/// let everyone = cache.default_namespace();
/// let prompt: Vec<u32> = (0..10).collect();
///
/// let cold = session.match_prefix(&everyone, &prompt);
/// assert_eq!(cold.len_tokens(), 0);
/// let blocks = session.reserve(2)?;
/// // ... compute keys and values of 8 tokens into `blocks.blocks()` ...
/// let inserted = session.insert(cold.lease(), &prompt, blocks)?;
/// assert_eq!(inserted.lease.len_tokens(), 8);
///
/// let warm = session.match_prefix(&everyone, &prompt);
/// assert_eq!(warm.len_tokens(), 8);
/// assert_eq!(warm.blocks(), inserted.blocks);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PrefixCache {
    inner: Arc<Inner>,
}

/// What the handles of one cache share.
pub(crate) struct Inner {
    /// Where blocks end in sequences of tokens.
    grid: Grid,
    queue: Queue,
    hot: HotPoints,
    /// Those who wait for blocks.
    wait_list: WaitList,
    /// Sessions made so far: the next one's stripe.
    stripes: AtomicUsize,
    /// Free blocks; with an external pool those that are in the engine's hands.
    pool: Pool,
    /// Blocks that the engine will take back; nothing if the cache owns its pool.
    returned: Option<Pool>,
    time: Time,
    demotions: Demotions,
    time_to_idle: Option<Duration>,
    gauges: Gauges,
    namespaces: Registry,
    background: OnceLock<Background>,
    evictor: Mutex<PinnedEvictor>,
    /// Participants of sessions that have ended.
    idle: Idle,
    /// Last: what the others leave to it is freed with it.
    domain: Domain,
}

impl fmt::Debug for PrefixCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixCache")
            .field("block_size", &self.inner.grid.tokens())
            .field("capacity_blocks", &self.inner.pool.capacity())
            .finish_non_exhaustive()
    }
}

impl PrefixCache {
    /// Configures a cache of `capacity_blocks` blocks of `block_size` tokens each.
    pub fn builder(block_size: usize, capacity_blocks: usize) -> Builder {
        Builder::new(block_size, capacity_blocks)
    }

    /// Tokens in a block.
    pub fn block_size(&self) -> usize {
        self.inner.grid.tokens()
    }

    /// Blocks that the cache manages.
    pub fn capacity_blocks(&self) -> usize {
        self.inner.pool.capacity()
    }

    /// Whether the pool is the engine's ([`Builder::external`]): then nothing can be reserved.
    pub fn is_external(&self) -> bool {
        self.inner.returned.is_some()
    }

    /// A way into the cache for one thread, until it is dropped; a thread may have several.
    ///
    /// Takes about 100 ns where another session has ended before, some hundred the first times: a thread that serves
    /// many requests keeps one; a task that may run on any thread makes its own. Lock-free.
    pub fn session(&self) -> Session {
        Session::new(&self.inner)
    }

    /// Frees up to `blocks` idle blocks, in the policy's exact order; how many it freed.
    ///
    /// A leased block is never touched. The last run concerned is trimmed from its tail, so exactly as many go as were
    /// asked for, or all that can go. Waits its turn if another thread is evicting.
    pub fn evict(&self, blocks: usize) -> usize {
        let pinned = self.inner.evictor.lock();
        let mut entries = usize::MAX;
        let leave = |pinned: MutexGuard<'_, PinnedEvictor>, evicted: &usize| {
            // Small garbage waits for company; the last of it does not.
            if *evicted > 0 && (pinned.evictor.totals.runs == 0 || pinned.local.retired_bytes() >= RECLAIM_BYTES) {
                pinned.local.reclaim();
            }
        };
        self.inner.with_evictor(pinned, |evictor, resources| evictor.evict(blocks, &mut entries, resources), leave)
    }

    /// Brings the accounts up to date with every change made before the call; see [`Stats`].
    ///
    /// Also forgets namespaces that nobody holds and nothing is cached in. Waits its turn if another thread is
    /// evicting.
    ///
    /// Does whatever else is due: completes an exchange of the policy, drops what was idle for too long
    /// ([`Builder::time_to_idle`]), evicts what namespaces have beyond their quotas.
    /// That goes in steps of a fraction of a millisecond,
    /// between which other threads have their turn.
    pub fn settle(&self) {
        let inner = &*self.inner;
        let idle_since = inner.idle_since();
        inner.settle_by(|| Some(inner.evictor.lock()));
        let mut work = Upkeep::new(idle_since);
        while inner.in_turn(|evictor, resources| evictor.keep_up(&mut work, resources)) {}
        let mut pass = Pass::default();
        while inner.in_turn(|evictor, resources| inner.namespaces.forget_empty(&mut pass, evictor, resources)) {}
        inner.evicting_all(|_, _| ());
    }

    /// One bounded step of the evictor: the body of a background thread's loop.
    ///
    /// Takes some changes out of the queue, and does a part of whatever else is due (see [`settle`](Self::settle));
    /// true if more is waiting. Waits its turn if another thread is evicting.
    pub fn run_once(&self) -> bool {
        let idle_since = self.inner.idle_since();
        self.inner.in_turn(|evictor, resources| self.inner.step(idle_since, evictor, resources))
    }

    /// Sets the time of a cache built with [`Clock::Logical`]: matches and inserts are stamped with it from now on.
    ///
    /// It may go forward by any amount, and back: an earlier use makes nothing older, and deadlines (of what is retained,
    /// of priorities) go by the latest time that was set. Without effect on any other clock. Lock-free until a deadline
    /// was made; from then on it waits its turn if another thread is evicting.
    pub fn set_time(&self, now: u64) {
        let inner = &*self.inner;
        inner.time.set(now);
        // What is retained may be over, or idle for too long.
        let by_time = || inner.time_to_idle.is_some() || inner.time.has_deadlines();
        if let Some(background) = inner.background.get().filter(|_| by_time()) {
            background.changes_pending();
        }
        if inner.time.has_deadlines() {
            // A waiter reads the time in a turn of the evictor's, after it has taken its place: if that turn came before
            // this one, its place is seen now; else it sees the new time.
            drop(inner.evictor.lock());
        }
        inner.ring();
    }

    /// Numbers of the cache as it is now. Never waits; exact if no other thread is at work.
    ///
    /// Settles the accounts first, in slices, as far as no other thread is evicting. The four numbers of blocks add up
    /// to the capacity in any case.
    pub fn stats(&self) -> Stats {
        self.inner.settle_by(|| self.inner.evictor.try_lock());
        self.inner.gauges.read(&self.inner)
    }

    /// Checks every invariant of tree, pool, queue, ranking and accounts.
    ///
    /// Meant for tests and for a cache at rest: while other threads are at work it may report a change in progress.
    /// Walks the whole index.
    ///
    /// # Errors
    ///
    /// The first invariant found broken.
    pub fn validate(&self) -> Result<(), Violation> {
        self.inner.evicting(|evictor, resources| {
            evictor.settle(resources);
            validate::validate(&self.inner, evictor, resources)
        })
    }
}

impl Inner {
    /// Runs `work` as the evictor, when nobody else is.
    fn evicting<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.with_evictor(self.evictor.lock(), work, |_, _| ())
    }

    /// The same, and reclaims what it can of the index before the next one's turn.
    fn evicting_all<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.with_evictor(self.evictor.lock(), work, |pinned, _| pinned.local.reclaim())
    }

    /// The same, after which a thread that waits has its turn.
    fn in_turn<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.with_evictor(self.evictor.lock(), work, |pinned, _| unlock_fairly(pinned))
    }

    /// Runs `work` as the evictor where no other thread is.
    fn try_evicting<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> Option<R> {
        Some(self.with_evictor(self.evictor.try_lock()?, work, |_, _| ()))
    }

    /// What was last used then or before has been idle for too long.
    fn idle_since(&self) -> Option<u64> {
        self.time_to_idle.and_then(|duration| self.time.before(duration))
    }

    /// One bounded step of the evictor; true if more is left.
    fn step(&self, idle_since: Option<u64>, evictor: &mut Evictor, resources: Resources<'_>) -> bool {
        let more = evictor.step(STEP, idle_since, resources);
        let forgetting = self.namespaces.tidy(evictor, resources);
        more || forgetting
    }

    /// Takes in every change made before the call, in steps between which other threads have their turn; stops where
    /// `lock` gives no lock.
    fn settle_by<'a>(&'a self, lock: impl Fn() -> Option<MutexGuard<'a, PinnedEvictor>>) {
        let mut goal = None;
        while let Some(pinned) = lock() {
            let work =
                |evictor: &mut Evictor, resources: Resources<'_>| evictor.settle_towards(&mut goal, STEP, resources);
            if self.with_evictor(pinned, work, |pinned, _| unlock_fairly(pinned)) {
                return;
            }
        }
    }

    /// Runs `work` as the evictor, lets `leave` unlock, and then tells those who wait what was let go of: their wakers
    /// are code of the caller's, and run under no lock.
    fn with_evictor<'a, R>(
        &'a self,
        mut pinned: MutexGuard<'a, PinnedEvictor>,
        work: impl FnOnce(&mut Evictor, Resources<'_>) -> R,
        leave: impl FnOnce(MutexGuard<'a, PinnedEvictor>, &R),
    ) -> R {
        let PinnedEvictor { local, evictor } = &mut *pinned;
        let guard = local.pin();
        let result = work(evictor, self.resources(&guard));
        drop(guard);
        self.gauges.publish(evictor);
        let let_go = std::mem::take(&mut evictor.has_let_go);
        leave(pinned, &result);
        if let_go {
            self.ring();
        }
        result
    }

    /// Called with no lock held after blocks may have become available.
    #[inline]
    fn ring(&self) {
        if self.wait_list.is_awaited() {
            self.wake_waiters();
        }
    }

    #[cold]
    fn wake_waiters(&self) {
        self.wait_list.wake_first();
        if self.wait_list.evictor_wakes() {
            if let Some(background) = self.background.get() {
                background.changes_pending();
            }
        }
    }

    fn resources<'g>(&'g self, guard: &'g Guard<'g>) -> Resources<'g> {
        Resources {
            queue: &self.queue,
            hot: &self.hot,
            pool: self.sink(),
            grid: self.grid,
            now: self.time.elapsed_for_deadlines(),
            guard,
        }
    }

    /// A use at `now` undoes the demotions that were there before it, of `point` and of all that its marks flow to.
    #[inline]
    fn undo_demotions(&self, point: Ref<'_, Point>, now: u64, guard: &Guard<'_>) {
        if self.demotions.may_hide(now) {
            self.mark_use(point, guard);
        }
    }

    #[cold]
    fn mark_use(&self, point: Ref<'_, Point>, guard: &Guard<'_>) {
        if point.depth() > 0 {
            point.statistics.marks.join(self.demotions.undone(), guard);
            guard.hand_over();
        }
    }

    fn ledger(&self, stripe: u8) -> Ledger<'_> {
        Ledger { queue: &self.queue, hot: &self.hot, stripe }
    }

    fn next_stripe(&self) -> u8 {
        // Relaxed: two sessions on one stripe are slower and nothing else.
        self.hot.stripe(self.stripes.fetch_add(1, Relaxed))
    }

    /// Sees to it that entries leave the queue: calls the thread, or takes some out if nobody else is at it.
    fn help(&self, entries: usize) {
        if self.queue.is_empty() && !self.gauges.is_behind() && !self.namespaces.is_behind() {
            return;
        }
        if let Some(background) = self.background.get() {
            background.changes_pending();
            return;
        }
        self.try_evicting(|evictor, resources| {
            evictor.tidy(entries, resources);
            self.namespaces.tidy(evictor, resources);
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if cfg!(any(radixkv_loom, radixkv_shuttle)) && std::thread::panicking() {
            return;
        }
        drop(self.background.take());
        let PinnedEvictor { local, evictor } = self.evictor.get_mut();
        let guard = local.pin();
        let pool = self.returned.as_ref().unwrap_or(&self.pool);
        let resources = Resources {
            queue: &self.queue,
            hot: &self.hot,
            pool,
            grid: self.grid,
            now: self.time.elapsed_for_deadlines(),
            guard: &guard,
        };
        // No lease is left but those of what is retained where lookups start, and it goes with its tree: whatever was
        // detached goes now, and no entry stays in the queue.
        evictor.settle(resources);
        self.namespaces.tear_down(resources);
    }
}

#[cfg(test)]
mod stalled_reader;
