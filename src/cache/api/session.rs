//! The public methods of `Session`, in the order in which a reader needs them.

use std::time::{Duration, Instant};

use crate::block::BlockId;
use crate::cache::blocks::acquire::{Acquired, Asking, Prompt};
use crate::cache::blocks::allocate::{self, Effort};
use crate::cache::blocks::block_request::BlockRequest;
use crate::cache::blocks::reservation::{Reservation, ReserveError};
use crate::cache::insert::{self, InsertError, Inserted};
use crate::cache::leases::lease::{Lease, PrefixMatch};
use crate::cache::leases::priority::Priority;
use crate::cache::leases::retention::{self, RetainError};
use crate::cache::leases::sharing::{self, SharedSpan};
use crate::cache::leases::weak_lease::{self, WeakLease};
use crate::cache::line::in_line::serve_by;
use crate::cache::matching::lookup::{self, Use};
use crate::cache::matching::partial::{self, PartialHit};
use crate::cache::namespaces::namespace::Namespace;
use crate::key::Token;
use crate::tree::Marked;

use crate::cache::session::Session;

/// # The life of a request
impl Session {
    /// Finds and leases the longest cached prefix of `tokens`, and counts a use of it.
    ///
    /// Only whole blocks match; a miss is an empty match. Lock-free: retries only if another thread
    /// changed the point that it was about to lease. Allocates the result, and a point if the match
    /// ends inside a run.
    ///
    /// A prefix counts up to 2^28 leases at once. If it has that many, the match is shorter; if the
    /// root also has that many, the match is empty and leases nothing.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
    /// # drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two.
    /// let hit = session.match_prefix(&space, &[1, 2, 3, 9]);
    /// assert_eq!((hit.len_tokens(), hit.blocks().len()), (2, 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn match_prefix(&self, namespace: &Namespace, tokens: &[Token]) -> PrefixMatch {
        let mut blocks = Vec::new();
        let lease = self.look_up(namespace, tokens, Use::Counted, &mut blocks);
        PrefixMatch { lease, blocks }
    }

    /// As [`match_prefix`](Self::match_prefix), but writes the blocks to `blocks`, which is cleared
    /// first, so that the result needs no allocation.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let mut blocks = Vec::new(); // kept for the next request
    /// let lease = session.match_prefix_into(&space, &[1, 2, 3], &mut blocks);
    /// assert_eq!((lease.len_tokens(), blocks.len()), (0, 0));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn match_prefix_into(&self, namespace: &Namespace, tokens: &[Token], blocks: &mut Vec<BlockId>) -> Lease {
        self.look_up(namespace, tokens, Use::Counted, blocks)
    }

    /// Returns the number of tokens in the longest cached prefix of `tokens`, without a lease.
    /// It changes nothing, and the prefix may be evicted at any moment.
    ///
    /// Lock-free; allocates nothing.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// // For an order of the waiting queue: the request with the longest cached prefix first.
    /// let waiting = [vec![1, 2, 3], vec![4, 5]];
    /// let first = waiting.iter().max_by_key(|prompt| session.peek(&space, prompt));
    /// # assert!(first.is_some());
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn peek(&self, namespace: &Namespace, tokens: &[Token]) -> usize {
        lookup::peek(self, namespace, tokens)
    }

    /// Matches `tokens`, leases the cached prefix, and reserves blocks for the rest and for `room`
    /// more tokens; or takes nothing. The match counts as a use; the namespace pays for the blocks.
    ///
    /// An engine that wants the logits of the last token passes the tokens before it, and one more
    /// token of `room`. The call does not wait, and overtakes waiting requests: to admit in order
    /// of arrival use [`acquire_until`](Self::acquire_until). Lock-free under the same conditions
    /// as [`match_prefix`](Self::match_prefix) and [`reserve`](Self::reserve).
    ///
    /// # Errors
    ///
    /// As for `reserve`. [`ReserveError::OverQuota`] with `requested` above `limit` means that the
    /// whole sequence exceeds the namespace's limit and is not completely cached; then `requested`
    /// counts all blocks of the sequence.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PrefixCache, ReserveError};
    ///
    /// let cache = PrefixCache::builder(4, 8).build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// let start = session.acquire(&space, &[1, 2, 3, 4, 5], 10)?;
    /// assert_eq!((start.hit.len_tokens(), start.blocks.len()), (0, 4)); // 15 tokens
    /// let refused = session.acquire(&space, &[7; 17], 0).unwrap_err();
    /// assert_eq!(refused, ReserveError::Exhausted { requested: 5, available: 4 });
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire(&self, namespace: &Namespace, tokens: &[Token], room: usize) -> Result<Acquired, ReserveError> {
        let acquired = self.acquire_once(Prompt { namespace, tokens, room }, Effort::Once);
        self.count_acquired(&acquired);
        acquired
    }

    /// Matches and reserves as [`acquire`](Self::acquire) does, and waits until `deadline` if
    /// leases and reservations hold too many blocks. While it waits it holds no lease and no block;
    /// it waits in the same list as [`reserve`](Self::reserve).
    ///
    /// # Errors
    ///
    /// As for `reserve` with a deadline.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let cache = radixkv::PrefixCache::builder(4, 8).build()?;
    /// let running = cache.session().reserve(6)?;
    /// let waiting = std::thread::spawn({
    ///     let cache = cache.clone();
    ///     move || {
    ///         let (session, space) = (cache.session(), cache.default_namespace());
    ///         let start = session.acquire_until(&space, &[7; 12], 4, Instant::now() + Duration::from_secs(60))?;
    ///         Ok::<_, radixkv::ReserveError>(start.blocks.len())
    ///     }
    /// });
    /// drop(running);
    /// assert_eq!(waiting.join().unwrap(), Ok(4));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_until(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        room: usize,
        deadline: Instant,
    ) -> Result<Acquired, ReserveError> {
        let asking = Asking { session: self, prompt: Prompt { namespace, tokens, room } };
        let acquired = serve_by(&asking, deadline);
        self.count_acquired(&acquired);
        acquired
    }

    /// Takes the blocks of a [`BlockRequest`], all or none. A number is a request that the default
    /// namespace pays for and that does not wait.
    ///
    /// If fewer blocks are free, it evicts exactly the missing ones, in the policy's order.
    /// Lock-free while enough are free and the paying namespace has no limit on pinned blocks;
    /// otherwise it takes the evictor's lock.
    ///
    /// A request that needs more than 512 victims evicts them in steps and keeps the freed blocks
    /// between steps, even if other threads reserve all the time. If new leases leave too few
    /// blocks for it, it gives them back.
    ///
    /// A request [without a deadline](BlockRequest::until) does not wait and overtakes waiting
    /// requests, so that a running sequence can grow while others wait to be admitted. A request
    /// with a deadline waits, after requests
    /// [for running sequences](BlockRequest::for_running_sequence) and in order of arrival; futures
    /// of `PrefixCache::reserve_async` wait in the same list. A request whose namespace is at its
    /// limit does not delay requests of other namespaces. Blocks become available when leases and
    /// reservations are dropped: do not wait for blocks that this thread itself leases.
    ///
    /// # Errors
    ///
    /// At once [`ReserveError::TooLarge`] if the cache has fewer blocks, and
    /// [`ReserveError::External`] if the engine owns the pool.
    ///
    /// Without a deadline [`ReserveError::Exhausted`] if leases and reservations hold too many
    /// blocks, and [`ReserveError::OverQuota`] if the paying namespace would exceed its limit;
    /// nothing was evicted then, unless leases were taken meanwhile.
    ///
    /// With a deadline [`ReserveError::TimedOut`] or [`ReserveError::OverQuota`] when it passes,
    /// and `OverQuota` at once if the limit is lower than the request.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PrefixCache, ReserveError};
    ///
    /// let cache = PrefixCache::builder(16, 8).build()?;
    /// let session = cache.session();
    /// let first = session.reserve(6)?;
    /// let refused = session.reserve(3).unwrap_err();
    /// assert_eq!(refused, ReserveError::Exhausted { requested: 3, available: 2 });
    /// # drop(first);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<'a>(&self, request: impl Into<BlockRequest<'a>>) -> Result<Reservation, ReserveError> {
        allocate::reserve(self, request)
    }

    /// Publishes the whole blocks of `tokens` beyond `lease`, which were computed into the
    /// reservation's blocks.
    ///
    /// `tokens` is the whole sequence; its first `lease.len_tokens()` must be the tokens with which
    /// the lease was matched, and are not compared. If another insert has published the same tokens
    /// meanwhile, its blocks stay cached and the caller's are returned as duplicates: let your
    /// block table point to [`Inserted::blocks`]. Lock-free: one compare-and-swap publishes. It
    /// takes the evictor's lock only if the namespace has a limit: on pinned blocks, if it did not
    /// pay for these blocks; on cached blocks, to evict its blocks beyond the limit, unless another
    /// thread is evicting or there is a background evictor.
    ///
    /// The insert happens before every match that finds its blocks: what this thread wrote before
    /// the call, keys and values included, is visible to the matching thread. For a device, order
    /// the kernels on its streams as well.
    ///
    /// # Errors
    ///
    /// [`InsertError`] with the reservation; nothing has changed.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4, 5];
    /// let hit = session.match_prefix(&space, &prompt);
    /// let blocks = session.reserve(2)?; // whole blocks beyond the lease
    /// let inserted = session.insert(hit.lease(), &prompt, blocks)?;
    /// assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (4, 1));
    /// assert!(inserted.duplicates.is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&self, lease: &Lease, tokens: &[Token], reservation: Reservation) -> Result<Inserted, InsertError> {
        insert::insert(self, lease, tokens, reservation)
    }
}

/// # Longer matches, partial blocks, later leases
impl Session {
    /// Continues the match of a lease: looks up only the tokens beyond it.
    ///
    /// `tokens` is the whole sequence; the tokens that the lease covers are not compared again. The
    /// ids of all blocks are copied, which takes about 70 us for a million;
    /// [`resume_into`](Self::resume_into) copies only those beyond the lease, at a cost that does
    /// not depend on the length of the lease. A request counts as one use, at the deepest prefix
    /// that it reached. If the lease was counted, its use moves to that prefix; if not (a lease of
    /// [`match_prefix_untouched`](Self::match_prefix_untouched), or a clone), it is counted now.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4];
    /// let early = session.match_prefix(&space, &prompt).into_lease();
    /// # let miss = session.match_prefix(&space, &prompt);
    /// # drop(session.insert(miss.lease(), &prompt, session.reserve(2)?)?);
    /// // ... another request inserts the same tokens meanwhile ...
    /// let hit = session.resume(early, &prompt);
    /// assert_eq!(hit.len_tokens(), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self, lease: Lease, tokens: &[Token]) -> PrefixMatch {
        let mut blocks = Vec::new();
        let lease = self.extend_lease(lease, tokens, 0, &mut blocks);
        PrefixMatch { lease, blocks }
    }

    /// As [`resume`](Self::resume), but writes only the blocks beyond the lease to `blocks`, which
    /// is cleared first.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
    /// # drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two.
    /// let lease = session.match_prefix(&space, &[1, 2]).into_lease();
    /// let mut beyond = Vec::new();
    /// let lease = session.resume_into(lease, &[1, 2, 3, 4], &mut beyond);
    /// assert_eq!((lease.len_tokens(), beyond.len()), (4, 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume_into(&self, lease: Lease, tokens: &[Token], blocks: &mut Vec<BlockId>) -> Lease {
        let known = self.strong_refs.inner().layout.blocks(lease.len_tokens());
        self.extend_lease(lease, tokens, known, blocks)
    }

    /// Leases the cached block just beyond `lease` that agrees longest with `tokens`, the whole
    /// sequence; `None` if no block agrees in at least `min_tokens` tokens, or in one if
    /// `min_tokens` is 0.
    ///
    /// A match ends at a block boundary. If a cached sequence differs from `tokens` only inside the
    /// next block, that block also holds the keys and values of the tokens before the difference,
    /// and this method finds it. If several blocks agree equally long it returns any of them. It
    /// does not count as a use. If a whole block agrees, the block was published after the match:
    /// call [`resume`](Self::resume) instead.
    ///
    /// Lock-free. Costs no more than comparing a block, unless branches inside the block were
    /// evicted.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(4, 8).build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// let cached = [1, 2, 3, 4, 5, 6, 7, 8];
    /// drop(session.insert(session.match_prefix(&space, &cached).lease(), &cached, session.reserve(2)?)?);
    ///
    /// let prompt = [1, 2, 3, 4, 5, 6, 9, 9];
    /// let hit = session.match_prefix(&space, &prompt);
    /// assert_eq!(hit.len_tokens(), 4);
    /// let mine = session.reserve(1)?;
    /// let mut done = hit.len_tokens();
    /// if let Some(partial) = session.match_partial(hit.lease(), &prompt, 1) {
    ///     // ... copy two tokens of `partial.block()` into `mine.blocks()[0]` ...
    ///     done += partial.len_tokens();
    /// }
    /// // ... compute the tokens from `done` on ...
    /// assert_eq!(done, 6);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn match_partial(&self, lease: &Lease, tokens: &[Token], min_tokens: usize) -> Option<PartialHit> {
        partial::match_partial(self, lease, tokens, min_tokens)
    }

    /// Matches as [`match_prefix`](Self::match_prefix) does, without counting a use: for
    /// prefetching and admission.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// // Keep what is cached of a waiting request, without making it look recently used.
    /// let kept = session.match_prefix_untouched(&space, &[1, 2, 3]).into_lease();
    /// // It counts when the request runs:
    /// let hit = session.resume(kept, &[1, 2, 3]);
    /// # drop(hit);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn match_prefix_untouched(&self, namespace: &Namespace, tokens: &[Token]) -> PrefixMatch {
        let mut blocks = Vec::new();
        let lease = self.look_up(namespace, tokens, Use::Uncounted, &mut blocks);
        PrefixMatch { lease, blocks }
    }

    /// Upgrades a weak lease to a lease on its whole prefix, with the blocks that were matched.
    ///
    /// Returns `None` if any of its blocks was evicted or is about to be, or was invalidated; if
    /// its namespace was cleared or removed; or if the prefix has 2^28 leases. An empty prefix also
    /// gives `None`.
    ///
    /// Does not count as a use: [`renew`](Self::renew) and [`count_use`](Self::count_use) do, and
    /// [`resume`](Self::resume), which also looks for tokens that were cached beyond it meanwhile.
    /// Lock-free; costs as much as a lease, and compares no tokens.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    pub fn upgrade(&self, weak: &WeakLease) -> Option<Lease> {
        weak_lease::upgrade(self, weak)
    }
}

/// # Control: recency, priority, retention
impl Session {
    /// Makes the prefix of a lease as recent as a new match would, without counting a use.
    ///
    /// For keeping a prefix from growing old without raising its frequency, such as for a waiting
    /// request or a warm-up. Takes effect in the policy's order when the lease is released.
    /// Lock-free.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).clock(radixkv::Clock::Logical).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # for prompt in [[1, 2], [3, 4]] {
    /// #     drop(session.insert(session.match_prefix(&space, &[]).lease(), &prompt, session.reserve(1)?)?);
    /// #     cache.set_time(cache.stats().inserted_blocks);
    /// # }
    /// // Cached are 1 2, and later 3 4.
    /// session.renew(session.match_prefix_untouched(&space, &[1, 2]).lease());
    /// cache.evict(1);
    /// assert_eq!((session.peek(&space, &[1, 2]), session.peek(&space, &[3, 4])), (2, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew(&self, lease: &Lease) {
        let inner = self.inner();
        self.check_lease(lease);
        let now = inner.time.now();
        let participant = self.participant();
        let guard = participant.pin();
        if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
            inner.hot.statistics(&held).stamp(now);
            inner.undo_demotions(held.point, now, &guard);
        }
    }

    /// Counts a use of the prefix of a lease, without making it more recent.
    ///
    /// For a use that was served from elsewhere, or that is counted late. Takes effect in the
    /// policy's order when the lease is released. Lock-free.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).policy(radixkv::PolicyKind::Lfu).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # for prompt in [[1, 2], [3, 4]] {
    /// #     drop(session.insert(session.match_prefix(&space, &[]).lease(), &prompt, session.reserve(1)?)?);
    /// # }
    /// // Cached are 1 2 and 3 4, and the least often used goes first.
    /// session.count_use(session.match_prefix_untouched(&space, &[1, 2]).lease());
    /// cache.evict(1);
    /// assert_eq!((session.peek(&space, &[1, 2]), session.peek(&space, &[3, 4])), (2, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn count_use(&self, lease: &Lease) {
        self.check_lease(lease);
        if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
            self.inner().hot.statistics(&held).count();
        }
    }

    /// Gives the prefix of `lease` a priority.
    ///
    /// The highest priority that has not expired counts, so a lower one given later changes
    /// nothing. A prefix without an unexpired priority has [`Priority::DEFAULT`]. Two priorities
    /// are remembered, even after they have expired: the highest one (of equals, the one that lasts
    /// longer) and the one that lasts longest. All others are forgotten. A priority of a longer
    /// prefix also counts for the shorter prefixes in it: a shared prefix has the highest priority
    /// of all prefixes that contain it.
    ///
    /// Priorities are kept under every policy, but only
    /// [`PolicyKind::Priority`](crate::PolicyKind::Priority) evicts by them. No effect on an empty
    /// lease. Lock-free; allocates if it changes anything.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use radixkv::{PolicyKind, PrefixCache, Priority};
    /// # let cache = PrefixCache::builder(2, 8).policy(PolicyKind::Priority).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// for (prompt, level) in [([1, 2], 80), ([3, 4], 10)] {
    ///     let miss = session.match_prefix(&space, &prompt);
    ///     let inserted = session.insert(miss.lease(), &prompt, session.reserve(1)?)?;
    ///     session.prioritize(&inserted.lease, Priority::new(level).expiring_after(Duration::from_secs(60)));
    /// }
    /// cache.evict(1);
    /// assert_eq!((session.peek(&space, &[1, 2]), session.peek(&space, &[3, 4])), (2, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn prioritize(&self, lease: &Lease, priority: Priority) {
        let expiry = priority.ttl().map(|ttl| self.inner().time.after(ttl));
        self.mark(lease, Marked::priority(priority.level(), expiry));
    }

    /// Keeps the prefix of `lease` from being evicted until `duration` has passed, even if the
    /// lease is dropped.
    ///
    /// Its blocks count as protected until then, because the cache itself has a lease on them. If a
    /// prefix is retained several times, the latest deadline counts.
    /// [`release_retained`](Self::release_retained) ends a retention early, and so does clearing or
    /// removing the namespace. Retaining a prefix also ends its demotion.
    ///
    /// After the deadline the retention ends when the evictor next runs: in a `reserve` that must
    /// evict, in [`evict`](crate::PrefixCache::evict), [`settle`](crate::PrefixCache::settle) or
    /// [`stats`](crate::PrefixCache::stats), or on the background thread, which wakes at the
    /// deadline.
    ///
    /// No effect on an empty lease. Lock-free while no request waits for blocks; else it may take
    /// the wait list's lock, to wake the first waiter. Allocates.
    ///
    /// # Errors
    ///
    /// [`RetainError`]; nothing has changed.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use radixkv::PrefixCache;
    /// # let cache = PrefixCache::builder(4, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let prompt: Vec<u32> = (0..8).collect();
    /// # let cold = session.match_prefix(&space, &prompt);
    /// # drop(session.insert(cold.lease(), &prompt, session.reserve(2)?)?);
    /// # drop(cold);
    /// let hit = session.match_prefix(&space, &prompt);
    /// session.retain(hit.lease(), Duration::from_secs(600))?;
    /// drop(hit);
    /// assert_eq!(cache.evict(8), 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn retain(&self, lease: &Lease, duration: Duration) -> Result<(), RetainError> {
        retention::retain(self, lease, duration)
    }

    /// Ends the retention ([`retain`](Self::retain)) of exactly the prefix of `lease`; retentions
    /// of shorter and longer prefixes continue.
    ///
    /// Takes the evictor's lock.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # drop(session.insert(session.match_prefix(&space, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
    /// let hit = session.match_prefix(&space, &[1, 2]);
    /// session.retain(hit.lease(), Duration::from_secs(60))?;
    /// session.release_retained(hit.lease());
    /// drop(hit);
    /// assert_eq!(cache.evict(1), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn release_retained(&self, lease: &Lease) {
        self.check_lease(lease);
        if let Some(held) = lease.held() {
            self.inner().evicting(|evictor, resources| evictor.end_retention(held.point, resources));
        }
    }

    /// Demotes the prefix of `lease`: it is evicted before all prefixes that are not demoted, under
    /// every policy, until it is used again.
    ///
    /// A later match, resume, insert or [`renew`](Self::renew), even at the same logical time,
    /// undoes the demotion of the blocks on its path; [`retain`](Self::retain) undoes it for the
    /// blocks that it retains.
    /// Leased and retained blocks are not evicted before that ends. Among demoted prefixes the
    /// policy chooses. No effect on an empty lease. Lock-free; allocates if it changes anything.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # for prompt in [[1, 2], [3, 4]] {
    /// #     drop(session.insert(session.match_prefix(&space, &prompt).lease(), &prompt, session.reserve(1)?)?);
    /// # }
    /// // The request that used 3, 4 was cancelled: nothing will continue it.
    /// session.demote(session.match_prefix_untouched(&space, &[3, 4]).lease());
    /// cache.evict(1);
    /// assert_eq!((session.peek(&space, &[1, 2]), session.peek(&space, &[3, 4])), (2, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn demote(&self, lease: &Lease) {
        self.check_lease(lease);
        let inner = self.inner();
        if lease.held().is_some_and(|held| held.point.depth() > 0) {
            self.mark(lease, inner.demotions.demote(inner.time.now()));
        }
    }
}

/// # Observation
impl Session {
    /// Returns, for each lease, spans of its blocks that the same number of these leases share: the
    /// parts that a batch can compute once, and the prefix that the whole batch shares.
    ///
    /// Compares positions in the tree, not block ids. Allocates the result; time linear in the runs
    /// of the paths and in the spans. Lock-free.
    ///
    /// # Panics
    ///
    /// On [misuse](crate::PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let mut leases = Vec::new();
    /// for prompt in [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8], [1, 2, 9, 9, 9, 9]] {
    ///     let start = session.acquire(&space, &prompt, 0)?;
    ///     leases.push(session.insert(start.hit.lease(), &prompt, start.blocks)?.lease);
    /// }
    /// let spans = session.shared_spans(&leases.iter().collect::<Vec<_>>());
    /// let of_first: Vec<_> = spans[0].iter().map(|span| (span.blocks, span.leases)).collect();
    /// assert_eq!(of_first, [(1, 3), (1, 2), (1, 1)]);
    /// // What all of them share:
    /// let common: usize = spans[0].iter().take_while(|span| span.leases == 3).map(|span| span.blocks).sum();
    /// assert_eq!(common, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared_spans(&self, leases: &[&Lease]) -> Vec<Vec<SharedSpan>> {
        sharing::shared_spans(self, leases)
    }
}
