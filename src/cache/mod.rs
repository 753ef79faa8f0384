//! The cache: composes tree, pool and policy, and is the only place with effects across them.
//!
//! | file | holds |
//! |---|---|
//! | `builder` | configuration and its checks |
//! | `session` | the verbs of a scheduler thread |
//! | `lease`, `reservation`, `hold` | RAII handles, and what keeps the cache alive for them |
//! | `namespace` | trees that never share |
//! | `evictor`, `background` | accounts, ranking, trimming; the thread around them |
//! | `clock`, `stats`, `validate` | time, numbers, invariants |

mod background;
mod builder;
mod clock;
mod evictor;
mod hold;
mod lease;
mod namespace;
mod reservation;
mod session;
mod stats;
mod validate;

use std::fmt;

pub use background::{Eviction, Watermarks};
pub use builder::{BuildError, Builder};
pub use clock::Clock;
pub use lease::{Lease, PrefixMatch};
pub use namespace::Namespace;
pub use reservation::{Reservation, ReserveError};
pub use session::{InsertError, InsertErrorKind, Inserted, Session};
pub use stats::Stats;
pub use validate::{Mismatch, PointAt, RunAt, Violation};

use background::Background;
use clock::Time;
use evictor::{Evictor, Seat, Works};
use namespace::Registry;
use stats::Gauges;

use crossbeam_queue::ArrayQueue;

use crate::block::{BlockId, BlockSize, Pool};
use crate::reclaim::{Domain, Guard, Local};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock};
use crate::tree::Queue;

/// Garbage of evictions that may wait for the next one.
const RECLAIM_BYTES: usize = 32 << 10;

/// Queue entries that one step of the evictor takes out at most.
const STEP: usize = 1024;

/// A concurrent prefix cache: maps token sequences to the KV blocks that hold their keys and values.
///
/// A handle: clones share one cache, which lives as long as any handle, [`Session`], [`Lease`] or [`Reservation`].
///
/// | verb | takes effect | progress | allocates |
/// |---|---|---|---|
/// | [`Session::match_prefix`] | when its lease is counted | lock-free | the result; a point for a match that ends inside a run |
/// | [`Session::peek`] | when it reads the last run's length | lock-free | nothing |
/// | [`Session::insert`] | when the run is linked | lock-free | the run |
/// | dropping a [`Lease`] | at once | lock-free | nothing |
/// | [`Session::reserve`] | when the blocks are counted off | lock-free while enough are free; else waits its turn to evict | the result |
/// | [`PrefixCache::evict`], [`settle`](Self::settle), [`clear`](Self::clear) | | waits its turn | |
/// | [`PrefixCache::stats`] | | never waits | nothing |
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
    block_size: BlockSize,
    queue: Queue,
    pool: Pool,
    time: Time,
    gauges: Gauges,
    namespaces: Registry,
    background: OnceLock<Background>,
    seat: Mutex<Seat>,
    /// Participants of sessions that have ended.
    idle: ArrayQueue<Local>,
    /// Last: what the others leave to it is freed with it.
    domain: Domain,
}

impl fmt::Debug for PrefixCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixCache")
            .field("block_size", &self.inner.block_size.tokens())
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
        self.inner.block_size.tokens()
    }

    /// Blocks that the cache manages.
    pub fn capacity_blocks(&self) -> usize {
        self.inner.pool.capacity()
    }

    /// A way into the cache for one thread, until it is dropped.
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
        let mut seat = self.inner.seat.lock();
        let evicted = self.inner.with_seat(&mut seat, |evictor, works| evictor.evict(blocks, works));
        // Small garbage waits for company; the last of it does not.
        if evicted > 0 && (seat.evictor.totals.runs == 0 || seat.local.retired_bytes() >= RECLAIM_BYTES) {
            seat.local.reclaim();
        }
        evicted
    }

    /// Brings the accounts up to date with every change made before the call; see [`Stats`].
    ///
    /// Also forgets namespaces that nobody holds and nothing is cached in. Waits its turn if another thread is evicting.
    pub fn settle(&self) {
        self.inner.evicting_all(|evictor, works| {
            evictor.settle(works);
            self.inner.namespaces.forget_empty(evictor, works);
        });
    }

    /// One bounded step of the evictor: the body of a background thread's loop.
    ///
    /// Takes some changes out of the queue; true if more are waiting. Waits its turn if another thread is evicting.
    pub fn run_once(&self) -> bool {
        self.inner.evicting(|evictor, works| !evictor.drain(STEP, works))
    }

    /// Sets the time of a cache built with [`Clock::Logical`]: matches and inserts are stamped with it from now on.
    ///
    /// Without effect on any other clock.
    pub fn set_time(&self, now: u64) {
        self.inner.time.set(now);
    }

    /// Numbers of the cache as it is now. Never waits; exact if no other thread is at work.
    ///
    /// Settles the accounts first if no other thread is evicting.
    pub fn stats(&self) -> Stats {
        if let Some(mut seat) = self.inner.seat.try_lock() {
            self.inner.with_seat(&mut seat, |evictor, works| evictor.settle(works));
        }
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
        self.inner.evicting(|evictor, works| {
            evictor.settle(works);
            validate::validate(&self.inner, evictor, works)
        })
    }
}

impl Inner {
    /// Runs `work` as the evictor, when nobody else is.
    fn evicting<R>(&self, work: impl FnOnce(&mut Evictor, Works<'_>) -> R) -> R {
        let mut seat = self.seat.lock();
        self.with_seat(&mut seat, work)
    }

    /// The same, and reclaims what it can of the index before the next one's turn.
    fn evicting_all<R>(&self, work: impl FnOnce(&mut Evictor, Works<'_>) -> R) -> R {
        let mut seat = self.seat.lock();
        let result = self.with_seat(&mut seat, work);
        seat.local.reclaim();
        result
    }

    fn with_seat<R>(&self, seat: &mut MutexGuard<'_, Seat>, work: impl FnOnce(&mut Evictor, Works<'_>) -> R) -> R {
        let Seat { local, evictor } = &mut **seat;
        let guard = local.pin();
        let result = work(evictor, self.works(&guard));
        self.gauges.publish(&evictor.totals);
        result
    }

    fn works<'g>(&'g self, guard: &'g Guard<'g>) -> Works<'g> {
        Works { queue: &self.queue, pool: &self.pool, block_size: self.block_size, guard }
    }

    /// Sees to it that entries leave the queue: calls the thread, or takes some out if nobody else is at it.
    fn help(&self, entries: usize) {
        if self.queue.is_empty() {
            return;
        }
        if let Some(background) = self.background.get() {
            background.changes_pending();
            return;
        }
        if let Some(mut seat) = self.seat.try_lock() {
            self.with_seat(&mut seat, |evictor, works| evictor.drain(entries, works));
        }
    }

    /// Takes `n` blocks, evicting what is missing; direct reclaim.
    #[cold]
    fn take_evicting(&self, n: usize, blocks: &mut Vec<BlockId>) -> Result<(), ReserveError> {
        self.evicting(|evictor, works| {
            let mut settled = evictor.catch_up(works);
            loop {
                if self.pool.try_take(n, blocks) {
                    return Ok(());
                }
                let free = self.pool.free();
                let available = free + evictor.totals.evictable;
                let missing = n.saturating_sub(free);
                // A change that is not in the queue yet can make the accounts promise too much for a moment.
                if available < n || (missing > 0 && evictor.evict(missing, works) == 0) {
                    if settled {
                        return Err(ReserveError::Exhausted { requested: n, available });
                    }
                    evictor.settle(works);
                    settled = true;
                }
            }
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if cfg!(any(radixkv_loom, radixkv_shuttle)) && std::thread::panicking() {
            return;
        }
        drop(self.background.take());
        let Seat { local, evictor } = self.seat.get_mut();
        let guard = local.pin();
        let works = Works { queue: &self.queue, pool: &self.pool, block_size: self.block_size, guard: &guard };
        // No lease is left: whatever was detached goes now, and no entry stays in the queue.
        evictor.settle(works);
        self.namespaces.tear_down(works);
    }
}

#[cfg(test)]
mod stalled_reader;
