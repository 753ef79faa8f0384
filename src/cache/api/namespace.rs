//! The public methods of `Namespace`, in the order in which a reader needs them.

use std::time::Duration;

use crate::cache::eviction::evicting;
use crate::cache::evictor::SortGoal;
use crate::cache::matching::walk::{self, CachedRun};
use crate::cache::namespaces::namespace::{Namespace, NamespaceInUse, clearing};
use crate::cache::namespaces::quota::{self, NamespaceStats, Quota};
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::turn::LockMode;
use crate::name::{Keys, NamespaceName};
use crate::sync::Arc;

/// # Identity
impl Namespace {
    /// The name. It outlives the namespace.
    pub fn name(&self) -> NamespaceName {
        self.0.account.name.clone()
    }

    /// The unit that its lookups compare: single tokens or pairs of tokens.
    pub fn keys(&self) -> Keys {
        self.0.account.name.keys()
    }

    /// Whether this cache owns the namespace; using another cache's is
    /// [misuse](PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let build = || radixkv::PrefixCache::builder(2, 2).build();
    /// let (cache, other) = (build()?, build()?);
    /// let tenant = cache.namespace("tenant-7");
    /// assert!(tenant.is_of(&cache) && !tenant.is_of(&other));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn is_of(&self, cache: &PrefixCache) -> bool {
        cache.inner.namespaces.has_made(self)
    }
}

/// # Limits and numbers
impl Namespace {
    /// Sets the limits of the namespace.
    ///
    /// Blocks cached beyond a limit are evicted by the next insert into a namespace with such a
    /// limit, by the next eviction (before all other victims), and by
    /// [`settle`](crate::PrefixCache::settle) or [`run_once`](crate::PrefixCache::run_once); a
    /// background evictor is woken at once. If several namespaces exceed their limits, the one
    /// whose limit was set first loses blocks first. A namespace with a quota is kept when it is
    /// empty. Clearing it keeps the quota, and its old blocks that are still leased count against
    /// it; removing it ends both.
    ///
    /// A waiting request is refused if the new limit is lower than the number of blocks it needs.
    ///
    /// Takes the evictor's lock. The first limit on cached blocks, or time to idle, of a namespace
    /// that has cached blocks sorts all candidates for eviction again, in slices, as
    /// [`Settings::set_policy`](crate::Settings::set_policy) does. A limit on pinned blocks, each
    /// time that it is set, looks at every run of the namespace, also in slices.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{BlockRequest, PrefixCache, Quota, ReserveError};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// let tenant = cache.namespace("tenant-7");
    /// tenant.set_quota(Quota::default().cached_blocks(256).pinned_blocks(64));
    ///
    /// let session = cache.session();
    /// let fill = session.reserve(BlockRequest::new(60).paid_by(&tenant)).expect("within the quota");
    /// let refused = session.reserve(BlockRequest::new(5).paid_by(&tenant)).expect_err("beyond it");
    /// assert_eq!(refused, ReserveError::OverQuota { requested: 5, pinned: 60, limit: 64 });
    /// # drop(fill);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) {
        if let Some(cache) = self.cache() {
            quota::set_quota(&cache, self, quota);
        }
    }

    /// The limits of the namespace, as last set. Never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::Quota;
    /// # let cache = radixkv::PrefixCache::builder(16, 1024).build()?;
    /// let tenant = cache.namespace("tenant-7");
    /// assert_eq!(tenant.quota(), Quota::default()); // no limits
    /// tenant.set_quota(Quota::default().pinned_blocks(64));
    /// assert_eq!(tenant.quota().pinned_blocks, Some(64));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn quota(&self) -> Quota {
        let account = &self.0.account;
        let (cached_blocks, pinned_blocks) = account.both_limits();
        Quota { cached_blocks, pinned_blocks, time_to_idle: account.time_to_idle() }
    }

    /// The statistics of the namespace. Never waits; brings the counts up to date first, unless
    /// another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::BlockRequest;
    /// # let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let tenant = cache.namespace("tenant-7");
    /// let filling = cache.session().reserve(BlockRequest::new(3).paid_by(&tenant))?;
    /// let stats = tenant.stats();
    /// assert_eq!((stats.cached_blocks, stats.reserved_blocks), (0, 3));
    /// # drop(filling);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> NamespaceStats {
        let Some(cache) = self.cache() else { return NamespaceStats::default() };
        cache.inner.settle_by(LockMode::Tries);
        let account = &self.0.account;
        NamespaceStats {
            cached_blocks: account.cached(),
            protected_blocks: account.protected(),
            reserved_blocks: account.reserved(),
            quota: self.quota(),
            lookups: cache.inner.lookups_of(account),
        }
    }

    /// Visits each cached run of the namespace, parents before children.
    ///
    /// It visits the runs cached at one moment of the call, and sees every change made before the
    /// call. Runs are listed in slices, between which other threads get their turn; a run that is
    /// evicted meanwhile is listed as it was. Leases and uses are counted at the visit. `visit`
    /// runs under no lock and may call any method. Time is linear in runs, points and branches;
    /// allocates a list of the runs. A namespace that was removed has no runs. Takes the evictor's
    /// lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # drop(session.insert(session.match_prefix(&space, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
    /// let mut blocks = 0;
    /// space.walk(|run| blocks += run.blocks.len());
    /// assert_eq!(blocks, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn walk(&self, visit: impl FnMut(CachedRun<'_>)) {
        if let Some(cache) = self.cache() {
            walk::walk(&cache, self, visit);
        }
    }
}

/// # Emptying
impl Namespace {
    /// Empties the namespace: its idle blocks are free when this returns, leased blocks when their
    /// leases are dropped.
    ///
    /// Lookups that begin after this find none of the old blocks. Inserting from an older lease is
    /// refused; [`resume`](crate::Session::resume) and
    /// [`match_partial`](crate::Session::match_partial) from one still find the old blocks that
    /// leases keep. Takes the evictor's lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.namespace("lora-7"));
    /// drop(session.insert(session.match_prefix(&space, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
    /// space.clear(); // the adapter's weights have changed
    /// assert_eq!(session.peek(&space, &[1, 2]), 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) {
        if let Some(cache) = self.cache() {
            cache.inner.replace_space(&self.0, true);
        }
    }

    /// Empties the namespace if nothing uses it; otherwise changes nothing.
    ///
    /// It checks and clears in one hold of the evictor's lock: any lease or reservation that is
    /// counted by then prevents the clearing. A match that runs at the same time but is not counted
    /// yet keeps its blocks until it is dropped, as after [`clear`](Self::clear).
    ///
    /// # Errors
    ///
    /// [`NamespaceInUse`], with the numbers of blocks in use.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.namespace("lora-7"));
    /// let lease = session.insert(session.match_prefix(&space, &[]).lease(), &[1, 2], session.reserve(1)?)?.lease;
    /// let refused = space.clear_if_unused().unwrap_err();
    /// assert_eq!(refused.to_string(), "the namespace is in use: 1 blocks leased, 0 reserved");
    /// drop(lease);
    /// space.clear_if_unused()?;
    /// assert_eq!(cache.stats().free_blocks, 8);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_if_unused(&self) -> Result<(), NamespaceInUse> {
        self.cache().map(|cache| clearing::clear_if_unused(&cache, self)).unwrap_or(Ok(()))
    }

    /// Removes the namespace from its cache: its idle blocks are free when this returns, leased
    /// blocks when their leases are dropped.
    ///
    /// Matches through old handles are empty and inserts are refused; requesting the name again
    /// creates a new, empty namespace. The default namespace is cleared instead. Takes the
    /// evictor's lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// let old = cache.namespace("model-v1");
    /// old.remove();
    /// assert!(old != cache.namespace("model-v1")); // a new one
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn remove(&self) {
        if let Some(cache) = self.cache() {
            let is_default = Arc::ptr_eq(&self.0, &cache.inner.namespaces.default);
            cache.inner.replace_space(&self.0, is_default);
        }
    }

    /// Evicts up to `blocks` blocks of this namespace as
    /// [`PrefixCache::evict`](crate::PrefixCache::evict) does; returns the number of evicted
    /// blocks.
    ///
    /// The first call for a namespace without a limit on its cached blocks sorts all candidates
    /// again, as [`set_quota`](Self::set_quota) does, in slices between which other threads get
    /// their turn. It also fixes the namespace's place in the order in which limits were set.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let tenant = cache.namespace("tenant-7");
    /// for space in [&tenant, &space] {
    ///     let miss = session.match_prefix(space, &[1, 2, 3, 4]);
    ///     drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
    /// }
    /// assert_eq!(tenant.evict(8), 2);
    /// assert_eq!((session.peek(&tenant, &[1, 2, 3, 4]), session.peek(&space, &[1, 2, 3, 4])), (0, 4));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict(&self, blocks: usize) -> usize {
        let Some(cache) = self.cache() else { return 0 };
        let mut sorting = SortGoal::default();
        cache.inner.evict_in_turns(blocks, |evictor, want, resources| {
            // A removed namespace has no blocks.
            let there = self.0.root(resources.guard);
            there.map_or(Some(0), |_| evictor.evict_of(&self.0.account, want, &mut sorting, resources))
        })
    }

    /// Evicts every prefix of the namespace that was not used for `idle`; returns the number of
    /// evicted blocks.
    ///
    /// The blocks count as [aged](crate::Stats::aged_blocks).
    /// [`Builder::time_to_idle`](crate::Builder::time_to_idle) for all namespaces and
    /// [`Quota::time_to_idle`](crate::Quota::time_to_idle) for one do the same continually. Looks
    /// at every run of the namespace, in slices between which other threads get their turn; takes
    /// the evictor's lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use radixkv::{Clock, PrefixCache};
    /// let cache = PrefixCache::builder(2, 8).clock(Clock::Logical).build()?;
    /// # let session = cache.session();
    /// let tenant = cache.namespace("tenant-7");
    /// for (time, prompt) in [(0, [1, 2, 3, 4]), (90, [1, 2, 5, 6])] {
    ///     cache.set_time(time);
    ///     let start = session.acquire(&tenant, &prompt, 0)?;
    ///     drop(session.insert(start.hit.lease(), &prompt, start.blocks)?);
    /// }
    /// cache.set_time(100);
    /// assert_eq!(tenant.evict_idle(Duration::from_nanos(50)), 1); // 3, 4
    /// assert_eq!(session.peek(&tenant, &[1, 2, 5, 6]), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_idle(&self, idle: Duration) -> usize {
        self.cache().map(|cache| evicting::evict_idle(&cache, self, idle)).unwrap_or(0)
    }
}
