//! The public methods of `PrefixCache`, in the order in which a reader needs them.

use std::ops::Range;

use crate::block::BlockId;
#[cfg(feature = "async")]
use crate::cache::blocks::block_request::BlockRequest;
use crate::cache::blocks::external::ExternalPool;
use crate::cache::blocks::growing::GrowError;
use crate::cache::builder::Builder;
use crate::cache::checks::validate::validate;
use crate::cache::checks::violation::Violation;
use crate::cache::eviction::evicted::{self, Evicted};
use crate::cache::eviction::invalidating;
use crate::cache::evictor::{LeasePass, Upkeep};
#[cfg(feature = "async")]
use crate::cache::line::acquiring::Acquiring;
#[cfg(feature = "async")]
use crate::cache::line::waiting::{self, Reserving};
use crate::cache::listening::events::EventBatch;
use crate::cache::listening::subscribing::{self, Subscription};
use crate::cache::matching::lookup_stats::NamespaceLookups;
use crate::cache::namespaces::namespace::{self, Namespace, Pass};
use crate::cache::numbers::stats::Stats;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::session::Session;
use crate::cache::settings::Settings;
use crate::cache::spans::within_span;
use crate::cache::turn::LockMode;
#[cfg(feature = "async")]
use crate::key::Token;
use crate::name::NamespaceName;
use crate::sync::Arc;

/// # Setup
impl PrefixCache {
    /// Configures a cache of `capacity_blocks` blocks of `block_size` tokens each.
    ///
    /// The block size is fixed for the life of the cache, and so is the capacity unless it may grow
    /// ([`Builder::growable_to`]).
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

    /// Creates a session for the calling thread. A thread may have several.
    ///
    /// Takes about 100 ns if an earlier session has ended, else a few hundred. A thread that serves
    /// many requests keeps one session; a task that may run on any thread makes one when it needs
    /// it. The first 64 sessions at a time have a record of their own; each further one borrows one
    /// for every call. Lock-free.
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

    /// The default namespace, for sequences that need no separation. Costs a reference count; takes
    /// no lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let no_parts: [&str; 0] = [];
    /// assert!(cache.default_namespace() == cache.namespace(&no_parts));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn default_namespace(&self) -> Namespace {
        Namespace(Arc::clone(&self.inner.namespaces.default))
    }

    /// Returns the namespace of this name, and creates it if it does not exist.
    ///
    /// The [name](NamespaceName) is a string, several strings (`&["tenant-7", "lora-3"]`), or a
    /// [`NamespaceName`] that also chooses tokens or bigrams as keys. A name without parts is the
    /// default namespace. Takes a lock: call it once and keep the handle. Namespaces without
    /// handle, blocks and quota are forgotten from time to time.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::{Keys, NamespaceName, PrefixCache};
    /// # let cache = PrefixCache::builder(1, 8).build()?;
    /// # let session = cache.session();
    /// let (base, lora) = (cache.default_namespace(), cache.namespace("lora-7"));
    /// drop(session.insert(session.match_prefix(&lora, &[1, 2]).lease(), &[1, 2], session.reserve(2)?)?);
    /// assert_eq!((session.peek(&lora, &[1, 2]), session.peek(&base, &[1, 2])), (2, 0));
    ///
    /// // A draft model's: pairs of tokens are compared.
    /// let draft = cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams));
    /// let tokens = [1, 2, 3, 4]; // three pairs
    /// let inserted = session.insert(session.match_prefix(&draft, &tokens).lease(), &tokens, session.reserve(3)?)?;
    /// assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (3, 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespace(&self, name: impl Into<NamespaceName>) -> Namespace {
        namespace::named(self, name.into())
    }

    /// The number of tokens in a block.
    pub fn block_size(&self) -> usize {
        self.inner.layout.tokens()
    }

    /// The number of blocks that the cache manages.
    pub fn capacity_blocks(&self) -> usize {
        self.inner.pool.capacity()
    }
}

/// # Waiting without a thread
#[cfg(feature = "async")]
impl PrefixCache {
    /// Matches and reserves as [`Session::acquire`](crate::Session::acquire) does, and waits while
    /// leases and reservations hold too many blocks, without holding a lease or block itself.
    ///
    /// Waits in the same list as [`reserve_async`](Self::reserve_async), which describes its waker
    /// and deadlines. A task needs no session for it.
    ///
    /// # Errors
    ///
    /// As for `reserve_async`.
    ///
    /// # Panics
    ///
    /// On [misuse](Self#misuse), when it is polled.
    ///
    /// # Examples
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    /// # runtime.block_on(async {
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let space = cache.default_namespace();
    /// let running = cache.reserve_async(6).await?;
    /// let prompt: Vec<u32> = (0..40).collect();
    /// let request = tokio::spawn(cache.acquire_async(&space, &prompt[..], 8));
    /// drop(running);
    /// let start = request.await??;
    /// assert_eq!((start.hit.len_tokens(), start.blocks.len()), (0, 3));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_async(&self, namespace: &Namespace, tokens: impl Into<Box<[Token]>>, room: usize) -> Acquiring {
        Acquiring { cache: self.clone(), namespace: namespace.clone(), tokens: tokens.into(), room, waiter: None }
    }

    /// Reserves the blocks of a [`BlockRequest`] (a number is one), and waits while leases and
    /// reservations hold too many.
    ///
    /// Waits in the same list as [`Session::reserve`](crate::Session::reserve), in the same order.
    /// Needs no runtime, and is cancelled by dropping it: put a deadline around it with the
    /// runtime's own timer. A poll may evict the missing blocks; it never sleeps, but takes the
    /// evictor's lock.
    ///
    /// The waker is called on the thread that makes blocks available, with no lock of the cache
    /// held: it may poll at once, and use the cache. If it panics, the panic hook reports it, and
    /// only this wake-up is lost.
    ///
    /// When a retention ([`retain`](crate::Session::retain)) ends by its deadline, a background
    /// evictor ([`Eviction::Background`](crate::Eviction::Background)) wakes the future. With
    /// inline eviction, the next thread that evicts, settles or calls [`stats`](Self::stats) does.
    ///
    /// # Errors
    ///
    /// At once [`ReserveError::TooLarge`](crate::ReserveError::TooLarge),
    /// [`ReserveError::External`](crate::ReserveError::External), and
    /// [`ReserveError::OverQuota`](crate::ReserveError::OverQuota) if the limit of its namespace is
    /// lower than the request; at a poll after the [deadline](BlockRequest::until), if there is
    /// one, [`ReserveError::TimedOut`](crate::ReserveError::TimedOut) or `OverQuota`.
    ///
    /// # Panics
    ///
    /// On [misuse](Self#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    ///
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let running = cache.reserve_async(6).await?;
    ///
    /// let waiting = cache.reserve_async(4);
    /// assert!(timeout(Duration::from_millis(5), waiting).await.is_err(), "cancelled by its deadline");
    ///
    /// let waiting = tokio::spawn(cache.reserve_async(4));
    /// tokio::task::yield_now().await;
    /// drop(running);
    /// assert_eq!(waiting.await??.len(), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve_async<'a>(&self, blocks: impl Into<BlockRequest<'a>>) -> Reserving {
        waiting::reserve_async(self, blocks)
    }
}

/// # Control
impl PrefixCache {
    /// Evicts up to `blocks` blocks that no lease protects, in the policy's exact order, and
    /// returns how many it freed.
    ///
    /// It frees exactly the requested number, or all that can be evicted when it begins: the last
    /// victim is shortened from its end. Takes the evictor's lock.
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
        self.inner.evict_in_turns(blocks, |evictor, want, resources| {
            let mut entries = usize::MAX;
            Some(evictor.evict(want, &mut entries, resources))
        })
    }

    /// Evicts up to `blocks` blocks as [`evict`](Self::evict) does, and appends them to `evicted`
    /// as entries that keep them reserved; returns the number of these blocks.
    ///
    /// Entries are in the order of eviction, and their blocks are free when the entry is dropped:
    /// for an engine that copies evicted blocks to slower memory before they are written to again.
    /// The result may be smaller than the number of evictable blocks if blocks of a namespace that
    /// is being cleared were freed instead; those are in no entry.
    ///
    /// Tokens are copied under no lock. An entry costs the length of its sequence from the
    /// beginning, so a conversation of n runs costs n squared: request as many blocks as are
    /// needed, not all. Takes the evictor's lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4];
    /// let miss = session.match_prefix(&space, &prompt);
    /// let inserted = session.insert(miss.lease(), &prompt, session.reserve(2)?)?;
    /// let ids = inserted.blocks.clone();
    /// drop((miss, inserted));
    ///
    /// let mut evicted = Vec::new();
    /// assert_eq!(cache.evict_into(1, &mut evicted), 1);
    /// let victim = evicted.pop().expect("one block");
    /// assert_eq!((victim.start, &victim.tokens[..], victim.blocks.blocks()), (2, &prompt[..], &ids[1..]));
    /// // ... copy the block to host memory ...
    /// assert_eq!(cache.stats().free_blocks, 6);
    /// drop(victim);
    /// assert_eq!(cache.stats().free_blocks, 7);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_into(&self, blocks: usize, evicted: &mut Vec<Evicted>) -> usize {
        evicted::evict_into(self, blocks, evicted)
    }

    /// Empties every namespace; see [`Namespace::clear`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let lora = cache.namespace(&["lora-7"]);
    /// for namespace in [&space, &lora] {
    ///     let miss = session.match_prefix(namespace, &[1, 2]);
    ///     drop(session.insert(miss.lease(), &[1, 2], session.reserve(1)?)?);
    /// }
    /// cache.clear(); // the model's weights have changed
    /// assert_eq!(cache.stats().free_blocks, 8);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) {
        self.inner.namespaces.all().iter().for_each(|state| self.inner.replace_space(state, true));
    }

    /// Invalidates blocks whose keys and values are wrong, after a fault of the hardware or of a
    /// kernel: lookups no longer find them or anything beyond them. Returns the number of cached
    /// blocks that lookups no longer find.
    ///
    /// Blocks without a lease or retention are free when this returns. Leases stay, so readers of
    /// the blocks are not disturbed: [`Lease::is_invalidated`](crate::Lease::is_invalidated) tells
    /// which requests to abort. Their blocks are free after the leases are dropped; retentions end
    /// at once. An insert from such a lease is refused. Leases of namespaces that were cleared or
    /// removed are also checked. The same tokens can be computed and inserted again at once.
    ///
    /// Ignores blocks in reservations and ids that are not cached; blocks that were inserted before
    /// the call count as cached. Looks at every run of the cache; invalidates up to 64 runs at a
    /// time, and other threads get their turn in between (a run that was matched at many depths is
    /// done at once, at about a microsecond for each depth). Takes the evictor's lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4, 5, 6];
    /// let start = session.acquire(&space, &prompt, 0)?;
    /// let inserted = session.insert(start.hit.lease(), &prompt, start.blocks)?;
    /// assert_eq!(cache.invalidate_blocks(&[inserted.blocks[1]]), 2); // that one, and the one beyond it
    /// assert_eq!((session.peek(&space, &prompt), inserted.lease.is_invalidated()), (2, true));
    /// drop(inserted);
    /// assert_eq!(cache.stats().invalidated_blocks, 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn invalidate_blocks(&self, blocks: &[BlockId]) -> usize {
        invalidating::invalidate_blocks(self, blocks)
    }

    /// The settings that can change while the cache runs: policy, watermarks, time to idle.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PolicyKind, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// cache.settings().set_policy(PolicyKind::Lfu);
    /// cache.settle(); // complete now, whatever was cached
    /// assert_eq!(cache.settings().policy(), PolicyKind::Lfu);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn settings(&self) -> Settings<'_> {
        Settings { cache: self }
    }

    /// Access to the pool if the engine owns it ([`Builder::external`]); `None` if the cache owns
    /// the pool.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(4, 8).external().build()?;
    /// let pool = cache.external().expect("built as external");
    /// drop(pool.adopt(&[5, 2])?); // given up without an insert
    /// let mut free = Vec::new();
    /// assert_eq!(pool.take_evicted(&mut free), 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn external(&self) -> Option<ExternalPool<'_>> {
        ExternalPool::of(self)
    }
}

/// # Observation
impl PrefixCache {
    /// The current statistics of the cache. Never waits; exact if no other thread uses the cache.
    ///
    /// Brings the counts up to date first, in steps, unless another thread is evicting;
    /// [`Stats::is_settled`] says whether it could. The four numbers of blocks add up to the
    /// capacity in any case.
    ///
    /// Takes time linear in the number of prefixes that could be evicted.
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
        let is_settled = self.inner.settle_by(LockMode::Tries);
        Stats { is_settled, ..self.inner.stats() }
    }

    /// The number of blocks that hold nothing: [`Stats::free_blocks`] without the other statistics.
    /// Costs one read.
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

    /// The hits and misses of each namespace's lookups: the default namespace first, then by name.
    /// The last entry, without a name, is the sum of all other namespaces.
    ///
    /// At most 63 namespaces at a time have their own counters: the default one and those that were
    /// created first. Namespaces created while there are that many, and removed ones, are counted
    /// together. Takes a lock; the sum of all entries is in [`stats`](Self::stats).
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

    /// Subscribes to the blocks that are stored and removed from now on, through a channel of up to
    /// `batches` batches.
    ///
    /// Batches are sent when the evictor processes changes: when it evicts, in
    /// [`settle`](Self::settle) and in [`Subscription::try_next`]. The evictor records where the
    /// tokens of each store are, and [`Subscription::try_next`] copies them; lookups cost the same
    /// as without subscribers. Until they are copied, the tokens of the batches in the channel stay
    /// in memory, even if their blocks are evicted. Takes the evictor's lock. Dropping the
    /// subscription ends it and releases these tokens.
    ///
    /// Blocks that are already cached are not reported: take a [`snapshot`](Self::snapshot) after
    /// subscribing. [`CacheEvent`](crate::CacheEvent) has an example.
    pub fn subscribe(&self, batches: usize) -> Subscription {
        subscribing::subscribe(self, batches)
    }

    /// Takes a snapshot of the cached blocks, as a batch of stores: grouped by namespace, each
    /// store after its parent.
    ///
    /// The batch has the number of the next batch that a subscriber gets: the snapshot and the
    /// batches from that number on together miss nothing.
    ///
    /// Includes every change made before the call. The runs are listed in slices, between which
    /// other threads get their turn; a run that is evicted meanwhile is listed as it was. Tokens
    /// and ids are copied after that, under no lock. Takes the evictor's lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{CacheEvent, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(2, 8).build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// for prompt in [[1, 2, 3, 4], [1, 2, 5, 6]] {
    ///     let hit = session.match_prefix(&space, &prompt);
    ///     let missing = session.reserve(2 - hit.blocks().len())?;
    ///     drop(session.insert(hit.lease(), &prompt, missing)?);
    /// }
    /// let (mut events, snapshot) = (cache.subscribe(64), cache.snapshot());
    /// assert_eq!(snapshot.number(), events.next_number());
    /// let starts = snapshot.events().map(|event| match event {
    ///     CacheEvent::Stored { start, tokens, .. } => (start, tokens.to_vec()),
    ///     other => panic!("not a store: {other:?}"),
    /// });
    /// assert_eq!(starts.collect::<Vec<_>>(), [(0, vec![1, 2, 3, 4]), (2, vec![5, 6])]);
    /// assert!(events.try_next().is_none());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> EventBatch {
        subscribing::snapshot(self)
    }
}

/// # Administration
impl PrefixCache {
    /// Brings the evictor's counts up to date with every change made before the call; see
    /// [`Stats`].
    ///
    /// Also does all other pending work: completes an exchange of the policy, removes prefixes that
    /// were idle for too long ([`Builder::time_to_idle`](crate::Builder::time_to_idle)), evicts the
    /// blocks that namespaces have beyond their quotas, and forgets namespaces without handle,
    /// blocks and quota. It works in steps of a fraction of a millisecond, between which other
    /// threads get their turn, and waits while another thread is evicting.
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
        inner.settle_by(LockMode::Waits);
        let mut work = Upkeep::new(aging);
        while inner.in_turn(|evictor, resources| evictor.keep_up(&mut work, resources)) {}
        let mut pass = Pass::default();
        while inner.in_turn(|evictor, resources| inner.namespaces.forget_empty(&mut pass, evictor, resources)) {}
        inner.reclaim();
    }

    /// Runs one bounded step of the evictor: call it in the loop of your own background thread.
    ///
    /// Takes some changes out of the queue, and does a part of all other pending work (see
    /// [`settle`](Self::settle)). Returns true if more is left. Takes the evictor's lock.
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
        within_span!("step");
        let aging = self.inner.aging();
        self.inner.in_turn(|evictor, resources| self.inner.step(aging, evictor, resources))
    }

    /// Sets the time of a cache built with [`Clock::Logical`](crate::Clock::Logical): matches and
    /// inserts are stamped with it from now on.
    ///
    /// Time may go forward by any amount, and back: a use at an earlier time makes nothing older,
    /// and deadlines (of retained prefixes, of priorities) follow the latest time that was set. No
    /// effect on any other clock. Until the first deadline is made it is lock-free while neither a
    /// request nor a background evictor waits for blocks, else it may take the wait list's lock, to
    /// wake the first waiter; from the first deadline on it also takes the evictor's lock.
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
        // A retention may have ended, or a prefix been idle for too long.
        let by_time = || inner.shortest_time_to_idle().is_some() || inner.time.has_deadlines();
        if let Some(background) = inner.background.get().filter(|_| by_time()) {
            background.changes_pending();
        }
        if inner.time.has_deadlines() {
            // A waiter joins the list and then reads the time while it holds the evictor's lock. If
            // it held the lock before this thread, `ring` sees the waiter; else the waiter sees the
            // new time.
            drop(inner.evictor.lock());
        }
        inner.ring();
    }

    /// Adds `blocks` free blocks and returns their ids, which follow the existing ones: for an
    /// engine that gets more memory while it runs.
    ///
    /// Objects that were sized by the previous capacity are not resized: create the scheduler's
    /// `WaitingQueue` after the first growth, because it refuses requests larger than the capacity
    /// at its creation.
    ///
    /// With an [external pool](crate::Builder::external) the engine has the new blocks, and may
    /// pass them to the cache from now on. Wakes requests that wait for blocks. Lock-free except
    /// for the wake-up; time linear in `blocks`.
    ///
    /// # Errors
    ///
    /// [`GrowError`] if the cache would exceed the limit that it was built with.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 64).growable_to(256).build()?;
    /// let session = cache.session();
    /// assert!(session.reserve(100).is_err());
    /// assert_eq!(cache.grow(64)?, 64..128);
    /// assert!(session.reserve(100).is_ok());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&self, blocks: usize) -> Result<Range<BlockId>, GrowError> {
        let pool = &self.inner.pool;
        let Some(added) = pool.grow(blocks) else {
            return Err(GrowError { requested: blocks, capacity: pool.capacity(), limit: pool.limit() });
        };
        self.inner.ring();
        Ok(added)
    }

    /// Checks every invariant of tree, pool, queue, ranking and counts.
    ///
    /// It compares everything that the cache keeps twice: the tree with its own links and lengths,
    /// every cached block with the pool, and the evictor's counts, candidates and deadlines with
    /// the tree. It changes only what [`settle`](Self::settle) would change.
    ///
    /// Call it in tests, after the threads have stopped, and in an engine at rest when a wrong
    /// answer is suspected: while other threads use the cache it may report a change in progress.
    /// It walks the whole index and holds the evictor's lock meanwhile: time and memory are linear
    /// in cached blocks, runs and points.
    ///
    /// # Errors
    ///
    /// The first broken invariant found, with its place and numbers: a bug of this crate, or memory
    /// that other code overwrote.
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
            evictor.account_leases(&mut LeasePass::default(), usize::MAX, resources);
            validate(&self.inner, evictor, resources)
        })
    }

    /// The longest time that one thread has held the evictor's lock since the last call, by the
    /// clock of [`measure_holds`](crate::measure_holds); zero if none is set. Other threads that
    /// evict, settle or need more blocks than are free wait at most this long for one turn; lookups
    /// and inserts do not wait. Never waits.
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
}
