//! `PrefixCache`: the public handle on a cache, with the verbs that concern all of it.

use std::fmt;

use super::diagnostics::Violation;
use super::evictor::Upkeep;
use super::inner::{Inner, Patience};
use super::lookup_stats::NamespaceLookups;
use super::namespace::Pass;
use super::session::Session;
use super::spans::within_span;
use super::stats::Stats;
use super::validate::validate;
use crate::sync::Arc;

/// A concurrent prefix cache: maps token sequences to the KV blocks that hold their keys and values.
///
/// A handle: clones share one cache, which lives as long as any handle, [`Session`], [`Lease`](crate::Lease),
/// [`Reservation`](crate::Reservation) or other handle made from it. The thread that drops the last of them frees the
/// index, which takes about 3 s for a million runs. A handle that is forgotten ([`std::mem::forget`]) keeps the cache
/// for good.
///
/// A cache is not persistent, and holds ids, tokens and counts only: keys and values stay in the engine's memory.
///
/// | verb | takes effect | progress | allocates |
/// |---|---|---|---|
/// | [`Session::match_prefix`] | when its lease is counted | lock-free | the result; a point for a match that ends inside a run |
/// | [`Session::resume`] | as a match | lock-free | as a match |
/// | [`Session::peek`] | when it reads the last run's length | lock-free | nothing |
/// | [`Session::insert`] | when the run is linked | lock-free | the run |
/// | dropping a [`Lease`](crate::Lease) | at once | lock-free | nothing |
/// | [`Session::reserve`] | when the blocks are counted off | lock-free while enough are free; else waits its turn to evict | the result |
/// | [`PrefixCache::evict`], [`settle`](Self::settle), [`clear`](Self::clear) | | waits its turn | the evictor's tables |
/// | [`PrefixCache::stats`] | | never waits | the evictor's tables |
///
/// Without a background evictor, each 256th verb of a session *helps*, or each 1,024th as long as there is little to do: if
/// no other thread is evicting, it takes up to 1,024 queued changes into the evictor's tables, which may allocate, and does
/// a bounded part of other pending work. A waker that is called (`reserve_async`, of the feature `async`) runs on the
/// thread that made blocks available.
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
/// let namespace = cache.default_namespace();
/// let prompt: Vec<u32> = (0..10).collect();
///
/// let cold = session.match_prefix(&namespace, &prompt);
/// assert_eq!(cold.len_tokens(), 0);
/// let blocks = session.reserve(2)?;
/// // ... compute keys and values of 8 tokens into `blocks.blocks()` ...
/// let inserted = session.insert(cold.lease(), &prompt, blocks)?;
/// assert_eq!(inserted.lease.len_tokens(), 8);
///
/// let warm = session.match_prefix(&namespace, &prompt);
/// assert_eq!(warm.len_tokens(), 8);
/// assert_eq!(warm.blocks(), inserted.blocks);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PrefixCache {
    pub(super) inner: Arc<Inner>,
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
    /// Tokens in a block.
    pub fn block_size(&self) -> usize {
        self.inner.grid.tokens()
    }

    /// Blocks that the cache manages.
    pub fn capacity_blocks(&self) -> usize {
        self.inner.pool.capacity()
    }

    /// Whether the engine owns the pool ([`Builder::external`](crate::Builder::external)); then nothing can be
    /// reserved.
    pub fn is_external(&self) -> bool {
        self.inner.returned.is_some()
    }

    /// A session for the calling thread, which may have several.
    ///
    /// Takes about 100 ns where an earlier session has ended, and some hundred more for the first ones. A thread that
    /// serves many requests keeps one session; a task that may run on any thread makes one where it needs it.
    /// Lock-free.
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

    /// Brings the evictor's counts up to date with every change made before the call; see [`Stats`].
    ///
    /// Also does all other pending work: completes an exchange of the policy, drops prefixes that were idle for too
    /// long ([`Builder::time_to_idle`](crate::Builder::time_to_idle)), evicts what namespaces have beyond their quotas,
    /// and forgets namespaces that have no handle and cache nothing. It works in steps of a fraction of a millisecond,
    /// between which other threads get their turn, and waits its own turn if another thread is evicting.
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
        within_span!("settle");
        let inner = &*self.inner;
        let aging = inner.aging();
        inner.settle_by(Patience::Waits);
        let mut work = Upkeep::new(aging);
        while inner.in_turn(|evictor, resources| evictor.keep_up(&mut work, resources)) {}
        let mut pass = Pass::default();
        while inner.in_turn(|evictor, resources| inner.namespaces.forget_empty(&mut pass, evictor, resources)) {}
        inner.reclaim();
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
        let aging = self.inner.aging();
        self.inner.in_turn(|evictor, resources| self.inner.step(aging, evictor, resources))
    }

    /// Sets the time of a cache built with [`Clock::Logical`](crate::Clock::Logical): matches and inserts are stamped
    /// with it from now on.
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
        let by_time = || inner.shortest_time_to_idle().is_some() || inner.time.has_deadlines();
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

    /// Blocks that hold nothing: [`Stats::free_blocks`], without the other numbers. Costs a read.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let filling = cache.session().reserve(3)?;
    /// assert_eq!(cache.free_blocks(), 5);
    /// # drop(filling);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn free_blocks(&self) -> usize {
        self.inner.free_blocks()
    }

    /// Numbers of the cache as it is now. Never waits; exact if no other thread uses the cache.
    ///
    /// Brings the counts up to date first, in steps, unless another thread is evicting; [`Stats::is_settled`] says whether it
    /// could. The four numbers of blocks add up to the capacity in any case.
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
        let is_settled = self.inner.settle_by(Patience::Tries);
        Stats { is_settled, ..self.inner.stats() }
    }

    /// What the lookups of each namespace found, those of the default namespace first, then by name; the last entry, without a
    /// name, is of all others together.
    ///
    /// 63 namespaces at a time are counted by themselves, the default one and those that were made first. One that comes when
    /// there are so many counts with the others, and so does one that has gone. Takes a lock; the sum of all entries is in
    /// [`stats`](Self::stats).
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(2, 4).build()?;
    /// let (session, tenant) = (cache.session(), cache.namespace(&["tenant-7"]));
    /// drop(session.match_prefix(&tenant, &[1, 2]));
    /// let queries = cache.lookups_by_namespace().into_iter().map(|of| (of.namespace, of.lookups.query_tokens));
    /// let [default, tenants, others] = queries.collect::<Vec<_>>().try_into().expect("two namespaces");
    /// assert_eq!(default, (Some(cache.default_namespace().name()), 0));
    /// assert_eq!((tenants, others), ((Some(tenant.name()), 2), (None, 0)));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn lookups_by_namespace(&self) -> Vec<NamespaceLookups> {
        self.inner.lookups_by_namespace()
    }

    /// The longest time that one thread has held the eviction lock since the last call, by the clock of
    /// [`measure_holds`](crate::measure_holds); zero if there is none. Other threads that evict, settle or need more blocks than are
    /// free wait for so long at most; lookups and inserts wait for nobody. Never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// cache.settle();
    /// assert_eq!(cache.longest_hold(), Duration::ZERO); // nothing is measured
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    #[cfg(feature = "holds")]
    pub fn longest_hold(&self) -> std::time::Duration {
        self.inner.evictor.longest_hold()
    }

    /// Checks every invariant of tree, pool, queue, ranking and counts; see [`diagnostics`](crate::diagnostics).
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
            validate(&self.inner, evictor, resources)
        })
    }
}
