//! The cache: composes tree, pool and policy, and is the only place with effects across them.
//!
//! | file | holds |
//! |---|---|
//! | `builder` | configuration and its checks |
//! | `session`, `partial`, `allocate` | the verbs of a scheduler thread |
//! | `retention` | what a session may ask for a prefix: priorities, retaining, demoting |
//! | `wait_list`, `waiting` | threads and tasks that wait for blocks |
//! | `lease`, `reservation`, `fork` | handles that give back what they hold when they are dropped |
//! | `strong_ref` | the counted reference in each handle, which keeps the cache alive |
//! | `external` | the engine's own pool: its ids in, evicted ids out |
//! | `namespace` | trees that never share |
//! | `evictor`, `background` | accounts, ranking, trimming; the thread around them |
//! | `exchange`, `quota` | another policy at run time; limits of namespaces |
//! | `clock`, `stats` | time, numbers |
//! | `validate`, `diagnostics` | the check of every invariant, and what it reports |

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

/// The most queue entries that one step of the evictor takes out.
const STEP: usize = 1024;

/// A concurrent prefix cache: maps token sequences to the KV blocks that hold their keys and values.
///
/// A handle: clones share one cache, which lives as long as any handle, [`Session`], [`Lease`], [`Reservation`] or
/// other handle made from it. The thread that drops the last of them frees the index, which takes about 3 s for a million
/// runs. A handle that is forgotten ([`std::mem::forget`]) keeps the cache for good.
///
/// A cache is not persistent, and holds ids, tokens and counts only: keys and values stay in the engine's memory.
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
/// Without a background evictor, each 256th verb of a session *helps*: if no other thread is evicting, it takes up to
/// 1,024 queued changes into the evictor's tables, which may allocate, and does a bounded part of other pending work. A
/// waker that is called ([`reserve_async`](Self::reserve_async)) runs on the thread that made blocks available.
///
/// # What it does not do
///
/// - **Several block sizes.** All sequences of a cache have blocks of one size, chosen when it is built. For layers with
///   blocks of another size build a second cache, and match in both.
/// - **Sliding windows.** A match is a prefix from the first token on, and a cached block keeps all blocks before it. An
///   engine that drops the keys and values behind a window cannot free those blocks one by one: keep the window's layers
///   outside the cache, or in a cache of their own whose prefixes stay whole.
/// - **State that is not a list of blocks** (recurrent layers, multimodal embeddings). The tokens of the sequence are its
///   whole identity; what else the keys and values depend on belongs into the [namespace](Self::namespace).
/// - **Several processes.** One process owns the index; see below for forks.
///
/// The guide on [matching](crate::guide) says what this means for prompts and templates.
///
/// # Forked processes
///
/// A child process gets a copy of the cache without its background thread, and locks that other threads held at the
/// moment of the fork stay locked in the copy. The child must not use the cache. It may drop its handles if no other
/// thread was inside a verb at that moment; otherwise it must forget them ([`std::mem::forget`]).
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
    /// Threads and tasks that wait for blocks.
    wait_list: WaitList,
    /// Sessions made so far, from which the next one gets its stripe.
    stripes: AtomicUsize,
    /// Free blocks; with an external pool, the blocks that the engine has.
    pool: Pool,
    /// With an external pool, blocks that the engine is to take back; `None` if the cache owns its pool.
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
    /// The last field: memory that the other fields retire when they are dropped is freed with it.
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
    ///
    /// Both are fixed for the life of the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PolicyKind, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).policy(PolicyKind::Lfu).build()?;
    /// assert_eq!((cache.block_size(), cache.capacity_blocks()), (16, 1024));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
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

    /// Whether the engine owns the pool ([`Builder::external`]); then nothing can be reserved.
    pub fn is_external(&self) -> bool {
        self.inner.returned.is_some()
    }

    /// A session for the calling thread, which may have several.
    ///
    /// Takes about 100 ns where an earlier session has ended, and some hundred more for the first ones. A thread that
    /// serves many requests keeps one session; a task that may run on any thread makes one where it needs it. Lock-free.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 1024).build()?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         scope.spawn(|| {
    ///             let session = cache.session(); // each thread makes its own
    ///             session.match_prefix(&cache.default_namespace(), &[1, 2, 3]).len_tokens()
    ///         });
    ///     }
    /// });
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn session(&self) -> Session {
        Session::new(&self.inner)
    }

    /// Frees up to `blocks` blocks that no lease protects, in the policy's exact order, and returns how many it freed.
    ///
    /// It frees exactly as many as asked for, or all that can go: the last victim is shortened from its end. Waits its
    /// turn if another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4, 5, 6];
    /// let miss = session.match_prefix(&space, &prompt);
    /// drop(session.insert(miss.lease(), &prompt, session.reserve(3)?)?);
    /// assert_eq!(cache.evict(2), 2);
    /// assert_eq!(session.peek(&space, &prompt), 2); // the first block is left
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict(&self, blocks: usize) -> usize {
        let pinned = self.inner.evictor.lock();
        let mut entries = usize::MAX;
        let leave = |pinned: MutexGuard<'_, PinnedEvictor>, evicted: &usize| {
            // A little garbage waits for the next eviction, unless nothing is cached any more.
            if *evicted > 0 && (pinned.evictor.totals.runs == 0 || pinned.local.retired_bytes() >= RECLAIM_BYTES) {
                pinned.local.reclaim();
            }
        };
        self.inner.with_evictor(pinned, |evictor, resources| evictor.evict(blocks, &mut entries, resources), leave)
    }

    /// Brings the evictor's counts up to date with every change made before the call; see [`Stats`].
    ///
    /// Also does all other pending work: completes an exchange of the policy, drops prefixes that were idle for too long
    /// ([`Builder::time_to_idle`]), evicts what namespaces have beyond their quotas, and forgets namespaces that have no
    /// handle and cache nothing. It works in steps of a fraction of a millisecond, between which other threads get their
    /// turn, and waits its own turn if another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let miss = session.match_prefix(&space, &[1, 2]);
    /// drop(session.insert(miss.lease(), &[1, 2], session.reserve(1)?)?);
    /// drop(miss);
    /// cache.settle();
    /// assert_eq!(cache.stats().evictable_blocks, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
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
    /// Takes some changes out of the queue, and does a part of all other pending work (see [`settle`](Self::settle)).
    /// True if more is left. Waits its turn if another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 1024).build()?;
    /// // On a thread of the engine's own, between two looks at what else it has to do:
    /// while cache.run_once() {}
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn run_once(&self) -> bool {
        let idle_since = self.inner.idle_since();
        self.inner.in_turn(|evictor, resources| self.inner.step(idle_since, evictor, resources))
    }

    /// Sets the time of a cache built with [`Clock::Logical`]: matches and inserts are stamped with it from now on.
    ///
    /// It may go forward by any amount, and back: a use at an earlier time makes nothing older, and deadlines (of
    /// retained prefixes, of priorities) go by the latest time that was set. Without effect on any other clock.
    /// Lock-free until the first deadline was made; from then on it waits its turn if another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{Clock, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).clock(Clock::Logical).build()?;
    /// cache.set_time(7); // for a trace: the row's time
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn set_time(&self, now: u64) {
        let inner = &*self.inner;
        inner.time.set(now);
        // A retention may be over, or a prefix idle for too long.
        let by_time = || inner.time_to_idle.is_some() || inner.time.has_deadlines();
        if let Some(background) = inner.background.get().filter(|_| by_time()) {
            background.changes_pending();
        }
        if inner.time.has_deadlines() {
            // A waiter joins the list and then reads the time while it holds the evictor's lock: if it held the lock
            // before this thread, `ring` sees the waiter; else the waiter sees the new time.
            drop(inner.evictor.lock());
        }
        inner.ring();
    }

    /// Numbers of the cache as it is now. Never waits; exact if no other thread uses the cache.
    ///
    /// Brings the counts up to date first, in steps, unless another thread is evicting. The four numbers of blocks add
    /// up to the capacity in any case.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let filling = cache.session().reserve(3)?;
    /// let stats = cache.stats();
    /// assert_eq!((stats.free_blocks, stats.reserved_blocks), (5, 3));
    /// # drop(filling);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.inner.settle_by(|| self.inner.evictor.try_lock());
        self.inner.gauges.read(&self.inner)
    }

    /// Checks every invariant of tree, pool, queue, ranking and counts; see [`diagnostics`].
    ///
    /// Meant for tests and for a cache at rest: while other threads use the cache it may report a change in progress.
    /// Walks the whole index, and waits its turn if another thread is evicting.
    ///
    /// # Errors
    ///
    /// The first invariant found broken: a bug of this crate.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 64).build()?;
    /// assert_eq!(cache.validate(), Ok(()));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn validate(&self) -> Result<(), Violation> {
        self.inner.evicting(|evictor, resources| {
            evictor.settle(resources);
            validate::validate(&self.inner, evictor, resources)
        })
    }
}

impl Inner {
    /// Runs `work` with the evictor, once no other thread uses it.
    fn evicting<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.with_evictor(self.evictor.lock(), work, |_, _| ())
    }

    /// As `evicting`, and frees what it can of the index memory before the next thread's turn.
    fn evicting_all<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.with_evictor(self.evictor.lock(), work, |pinned, _| pinned.local.reclaim())
    }

    /// As `evicting`, after which a thread that waits for the lock gets it.
    fn in_turn<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> R {
        self.with_evictor(self.evictor.lock(), work, |pinned, _| unlock_fairly(pinned))
    }

    /// Runs `work` with the evictor unless another thread uses it.
    fn try_evicting<R>(&self, work: impl FnOnce(&mut Evictor, Resources<'_>) -> R) -> Option<R> {
        Some(self.with_evictor(self.evictor.try_lock()?, work, |_, _| ()))
    }

    /// A prefix that was last used at this time or before has been idle for too long.
    fn idle_since(&self) -> Option<u64> {
        self.time_to_idle.and_then(|duration| self.time.before(duration))
    }

    /// One bounded step of the evictor; true if more is left.
    fn step(&self, idle_since: Option<u64>, evictor: &mut Evictor, resources: Resources<'_>) -> bool {
        let more = evictor.step(STEP, idle_since, resources);
        let forgetting = self.namespaces.tidy(evictor, resources);
        more || forgetting
    }

    /// Takes in every change made before the call, in steps between which other threads get their turn; stops when
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

    /// Runs `work` with the evictor, lets `leave` unlock it, and then wakes a waiter if blocks may have become
    /// available. In this order because a waker is the caller's code, and runs under no lock.
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

    /// Makes entries leave the queue: calls the background evictor, or takes some out unless another thread does.
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
        // The only leases left are those of retained prefixes in namespaces that stand, and they are freed with their
        // trees. Settling ends the detached trees and empties the queue.
        evictor.settle(resources);
        self.namespaces.tear_down(resources);
    }
}

#[cfg(test)]
mod stalled_reader;
