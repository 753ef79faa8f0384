//! A session: the verbs of one scheduler thread.

use std::cell::Cell;
use std::fmt;

use super::inner::Inner;
use super::lease::{Lease, PrefixMatch};
use super::namespace::Namespace;
use super::reservation::Reservation;
use super::strong_ref::{StrongRef, StrongRefs};
use crate::block::{BlockId, Grid};
use crate::key::Token;
use crate::reclaim::{Guard, Local, Ref};
use crate::sync::{Arc, model_size};
use crate::tree::insert::{Sequence, insert};
use crate::tree::lease::{lease_deepest, release};
use crate::tree::path::append_blocks;
use crate::tree::{HeldLease, Ledger, Point, Position, walk};

/// Tokens of the longest sequence that can be inserted: depths have 31 bits, and on 32-bit machines an allocation is the
/// limit.
pub(crate) const MAX_TOKENS: usize = if usize::BITS > 32 { i32::MAX as usize } else { 1 << 27 };

/// Verbs of a session between two looks at the evictor's queue, and the entries that it then takes out unless another
/// thread does: so no eviction meets a long backlog left by lookups.
const HELP_EVERY: u32 = model_size(256, u32::MAX as usize) as u32;
const HELP_ENTRIES: usize = 1024;

/// One thread's access to a cache; made by [`PrefixCache::session`](super::PrefixCache::session).
///
/// Not `Send`: each thread makes its own. What it returns ([`Lease`], [`Reservation`]) may go to any thread and outlive
/// it.
///
/// An idle session costs other threads nothing. A thread that stops inside a lock-free verb stops no other thread and
/// keeps no block, but index memory that other threads remove is not freed until that verb ends: 7 to 9 KB for each
/// request that they serve.
///
/// # Examples
///
/// The life of a request:
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(4, 64).build()?;
/// # let everyone = cache.default_namespace();
/// let session = cache.session();
/// let prompt: Vec<u32> = (0..10).collect();
/// let hit = session.match_prefix(&everyone, &prompt);
/// let missing = prompt.len() / cache.block_size() - hit.blocks().len();
/// let blocks = session.reserve(missing)?;
/// // ... compute `prompt[hit.len_tokens()..]` into `blocks.blocks()` ...
/// let inserted = session.insert(hit.lease(), &prompt, blocks)?;
/// // ... decode; dropping the lease makes the prefix evictable ...
/// drop(inserted.lease);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    /// `Some` until the session is dropped.
    local: Option<Local>,
    pub(super) strong_refs: StrongRefs<Inner>,
    /// The stripe on which it counts leases of hot points.
    stripe: u8,
    verbs: Cell<u32>,
    /// Makes the session neither `Send` nor `Sync`.
    not_send: std::marker::PhantomData<*const ()>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// What an insert made of a sequence.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping it releases the lease on what was inserted"]
pub struct Inserted {
    /// A lease on the whole sequence that is cached now.
    pub lease: Lease,
    /// The blocks that are cached for the tokens beyond the lease that the insert started from: those of another insert
    /// where it was first.
    pub blocks: Vec<BlockId>,
    /// The caller's blocks that were not needed, because their tokens were cached already; dropping them gives them
    /// back.
    pub duplicates: Reservation,
    /// Tokens at the end that fill no whole block and were not stored; with bigrams, at least the last token.
    pub dropped_tokens: usize,
}

/// Why nothing was inserted, and the reservation back.
#[derive(Debug)]
#[non_exhaustive]
pub struct InsertError {
    /// The reservation that was given to the insert.
    pub reservation: Reservation,
    /// The reason.
    pub kind: InsertErrorKind,
}

/// Why nothing was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertErrorKind {
    /// The reservation does not hold as many blocks as the sequence has whole blocks beyond the lease.
    BlockCount {
        /// Whole blocks beyond the lease.
        needed: usize,
        /// Blocks of the reservation.
        given: usize,
    },
    /// The sequence is shorter than the prefix that the lease is on: pass the whole sequence.
    TokensTooShort {
        /// Tokens that the lease was matched by: in a namespace of [bigrams](super::Keys::Bigrams) one more than it
        /// protects.
        leased: usize,
        /// Tokens of the sequence.
        given: usize,
    },
    /// The sequence is longer than 2^31 - 1 tokens (2^27 on 32-bit machines).
    TooLong {
        /// Tokens of the sequence.
        tokens: usize,
    },
    /// A fork of the reservation holds this block too: [`make_unique`](Reservation::make_unique) first.
    SharedBlock {
        /// Its index in the reservation.
        index: usize,
    },
    /// The lease is of another cache.
    ForeignLease,
    /// The reservation is of another cache.
    ForeignReservation,
    /// The lease's namespace was dropped or cleared since: match again.
    NamespaceDropped,
    /// Too many sequences part at one place, or too many leases are held there: retry once some are released.
    TooManyBranches,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            InsertErrorKind::BlockCount { needed, given } => {
                write!(
                    f,
                    "the reservation holds {given} blocks, but {needed} whole blocks of tokens lie beyond the lease"
                )
            }
            InsertErrorKind::TokensTooShort { leased, given } => {
                write!(
                    f,
                    "the sequence has {given} tokens, fewer than the {leased} of its lease: pass the whole sequence"
                )
            }
            InsertErrorKind::TooLong { tokens } => {
                write!(f, "the sequence has {tokens} tokens, more than the {MAX_TOKENS} that can be cached")
            }
            InsertErrorKind::SharedBlock { index } => {
                write!(f, "a fork also holds block {index} of the reservation: make it unique first")
            }
            InsertErrorKind::ForeignLease => f.write_str("the lease is of another cache"),
            InsertErrorKind::ForeignReservation => f.write_str("the reservation is of another cache"),
            InsertErrorKind::NamespaceDropped => {
                f.write_str("the lease's namespace was dropped or cleared: match again")
            }
            InsertErrorKind::TooManyBranches => f.write_str("too many sequences part at one place"),
        }
    }
}

impl std::error::Error for InsertError {}

/// Whether a lookup counts as a use of what it finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Counted,
    Uncounted,
}

impl Session {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            local: Some(inner.idle.take().unwrap_or_else(|| inner.domain.register())),
            strong_refs: StrongRefs::new(inner),
            stripe: inner.next_stripe(),
            verbs: Cell::new(0),
            not_send: std::marker::PhantomData,
        }
    }

    pub(super) fn inner(&self) -> &Inner {
        self.strong_refs.inner()
    }

    #[inline]
    pub(super) fn pin(&self) -> Guard<'_> {
        self.local.as_ref().expect("a session has its participant until it is dropped").pin()
    }

    pub(super) fn ledger(&self) -> Ledger<'_> {
        self.strong_refs.inner().ledger(self.stripe)
    }

    /// Leases the longest cached prefix of `tokens` and counts as a use of it.
    ///
    /// Only whole blocks match; a miss is an empty match. Lock-free: retries only if another thread changed the place
    /// that it was about to lease. Allocates the result, and a point for a match that ends inside a run.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache, or its root holds 2^28 leases.
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

    /// [`match_prefix`](Self::match_prefix) that writes the blocks to `blocks`, which is cleared first: no allocation for
    /// the result.
    ///
    /// # Panics
    ///
    /// As `match_prefix`.
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
        blocks.clear();
        self.look_up(namespace, tokens, Use::Counted, blocks)
    }

    /// As [`match_prefix`](Self::match_prefix), but the match does not count as a use: for prefetching and admission.
    ///
    /// # Panics
    ///
    /// As `match_prefix`.
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

    fn look_up(&self, namespace: &Namespace, tokens: &[Token], use_: Use, blocks: &mut Vec<BlockId>) -> Lease {
        let inner = &**self.strong_refs.inner();
        inner.namespaces.check(namespace);
        // Read first, so that the comparing hides the latency of the counter.
        let now = if use_ == Use::Counted { inner.time.now() } else { 0 };
        let guard = self.pin();
        let Some(held) = self.lease_longest(namespace, tokens, &guard) else {
            return Lease::of_nothing(namespace.0.grid, self.strong_refs.take());
        };
        let counted = use_ == Use::Counted && held.point.depth() > 0;
        let lease = Lease::new(held, counted, namespace.0.grid, self.strong_refs.take());
        crate::sync::failpoint!("session::leased");
        if counted {
            inner.hot.statistics(&held).touch(now);
            inner.undo_demotions(held.point, now, &guard);
        }
        append_blocks(held.point, 0, namespace.0.grid, blocks, &guard);
        drop(guard);
        self.help();
        lease
    }

    /// Leases the deepest block boundary that `tokens` reach; `None` if the namespace was dropped.
    fn lease_longest<'g>(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        guard: &'g Guard<'g>,
    ) -> Option<HeldLease<'g>> {
        let grid = namespace.0.grid;
        loop {
            let root = namespace.0.root(guard)?;
            let reached = walk(root, tokens, guard);
            // A dead root belongs to a space that was detached after it was loaded: the next round loads the new one.
            if let Ok(held) = lease_deepest(reached.boundary(grid), grid, self.ledger(), guard) {
                return Some(held);
            }
        }
    }

    /// Continues from a lease: looks only at what lies beyond it.
    ///
    /// `tokens` is the whole sequence; the tokens that the lease covers are not compared again. The ids of all blocks are
    /// copied, which takes about 70 us for a million; [`resume_into`](Self::resume_into) copies only those beyond the
    /// lease, at a cost that does not depend on how much it covers. A request counts as one use, at the deepest prefix
    /// that it reached: if the lease was counted, its use moves along; if not (a lease of
    /// [`match_prefix_untouched`](Self::match_prefix_untouched), or a clone), it is counted now.
    ///
    /// # Panics
    ///
    /// If `tokens` is shorter than the lease, the lease is of another cache, or every boundary down to the root holds
    /// 2^28 leases.
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
        let lease = self.go_on(lease, tokens, 0, &mut blocks);
        PrefixMatch { lease, blocks }
    }

    /// [`resume`](Self::resume) that writes the blocks beyond the lease, and only those, to `blocks`, which is cleared
    /// first.
    ///
    /// # Panics
    ///
    /// As `resume`.
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
        blocks.clear();
        let known = self.strong_refs.inner().grid.blocks(lease.len_tokens());
        self.go_on(lease, tokens, known, blocks)
    }

    fn go_on(&self, lease: Lease, tokens: &[Token], first: usize, blocks: &mut Vec<BlockId>) -> Lease {
        assert!(self.is_ours(lease.cache()), "the lease is of another cache");
        let inner = &**self.strong_refs.inner();
        let grid = lease.grid(inner);
        let leased = grid.depth_of(lease.len_tokens());
        assert!(tokens.len() >= leased, "{} tokens given for a longer lease", tokens.len());
        let guard = self.pin();
        let Some(from) = lease.held() else {
            return lease;
        };
        let reached = walk(from.point, tokens, &guard).boundary(grid);
        let deeper = if reached.end() > leased { self.lease_beyond(reached, from, grid, &guard) } else { None };
        let now = inner.time.now();
        let tip = deeper.unwrap_or(from);
        let counted = tip.point.end() > 0;
        let resumed = deeper.map(|deeper| Lease::new(deeper, counted, grid, self.strong_refs.take()));
        match (lease.counted, deeper.is_some()) {
            (true, true) => {
                inner.hot.statistics(&from).move_on();
                inner.hot.statistics(&tip).touch(now);
            }
            (true, false) => inner.hot.statistics(&tip).stamp(now),
            (false, _) if counted => inner.hot.statistics(&tip).touch(now),
            (false, _) => {}
        }
        inner.undo_demotions(tip.point, now, &guard);
        append_blocks(tip.point, first, grid, blocks, &guard);
        drop(guard);
        let mut lease = resumed.unwrap_or(lease);
        // Written only if it changes: a store here would delay the copy of the whole lease that follows.
        if lease.counted != counted {
            lease.counted = counted;
        }
        self.help();
        lease
    }

    /// Leases the deepest boundary up to `reached`, if it lies beyond `from`, which the caller holds.
    fn lease_beyond<'g>(
        &self,
        reached: Position<'g>,
        from: HeldLease<'g>,
        grid: Grid,
        guard: &'g Guard<'g>,
    ) -> Option<HeldLease<'g>> {
        // While a lease is held, the root of its tree is not dead.
        let found = lease_deepest(reached, grid, self.ledger(), guard).ok()?;
        if found.point.end() > from.point.end() {
            return Some(found);
        }
        release(found, self.ledger());
        self.strong_refs.inner().ring();
        None
    }

    /// Tokens of the longest cached prefix of `tokens`. Changes nothing and leases nothing: the prefix may be evicted at
    /// any moment.
    ///
    /// Lock-free; allocates nothing.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
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
        self.strong_refs.inner().namespaces.check(namespace);
        let guard = self.pin();
        let grid = namespace.0.grid;
        let root = namespace.0.root(&guard);
        root.map_or(0, |root| grid.filled(walk(root, tokens, &guard).boundary(grid).end()))
    }

    /// Publishes the whole blocks of `tokens` beyond `lease`, computed into the reservation's blocks.
    ///
    /// `tokens` is the whole sequence; its first `lease.len_tokens()` must be the tokens that the lease was matched by,
    /// and are not compared. Where another insert has published the same tokens meanwhile, its blocks stay cached and
    /// the caller's come back as duplicates: let your block table point to [`Inserted::blocks`]. Lock-free: one
    /// compare-and-swap publishes.
    ///
    /// # Errors
    ///
    /// [`InsertError`] with the reservation; nothing has changed.
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
    pub fn insert(
        &self,
        lease: &Lease,
        tokens: &[Token],
        mut reservation: Reservation,
    ) -> Result<Inserted, InsertError> {
        let inner = &**self.strong_refs.inner();
        let refused = |kind, reservation| Err(InsertError { reservation, kind });
        let grid = lease.grid(inner);
        let from = match self.check_insert(lease, tokens, &mut reservation) {
            Ok(from) => from,
            Err(kind) => return refused(kind, reservation),
        };
        let guard = self.pin();
        let aligned = grid.boundary(tokens.len()).max(from.end());
        let now = inner.time.now();
        // Out of the reservation: a panic halfway then loses blocks, but never gives back blocks that the tree holds.
        let given = std::mem::take(&mut reservation.blocks);
        let holdings = &from.run().space().holdings;
        let (charged, limited) = (reservation.charge.blocks_of(holdings), holdings.cached_limit().is_some());
        let sequence = Sequence { tokens: &tokens[..aligned], blocks: &given, grid, now, charged };
        let published = insert(from, sequence, self.ledger(), &guard);
        reservation.blocks = given;
        let Ok(published) = published else {
            // Leases that it took on its way were released.
            inner.ring();
            return refused(InsertErrorKind::TooManyBranches, reservation);
        };
        // The blocks beyond the duplicates belong to the tree now.
        let inserted = reservation.blocks.len() - published.duplicates;
        reservation.blocks.truncate(published.duplicates);
        reservation.charge.spend(inserted, charged > 0);
        // Counted: a resume from here counts a use only of what lies beyond.
        let new_lease = Lease::new(published.tip, aligned > 0, grid, self.strong_refs.take());
        let mut blocks = Vec::new();
        append_blocks(published.tip.point, grid.blocks(from.end()), grid, &mut blocks, &guard);
        if !published.fresh && aligned > 0 {
            inner.hot.statistics(&published.tip).stamp(now);
        }
        inner.undo_demotions(published.tip.point, now, &guard);
        drop(guard);
        if limited && inserted > 0 {
            inner.keep_to_quotas(HELP_ENTRIES);
        } else {
            self.help();
        }
        let dropped_tokens = tokens.len() - new_lease.len_tokens();
        Ok(Inserted { lease: new_lease, blocks, duplicates: reservation, dropped_tokens })
    }

    fn check_insert<'l>(
        &self,
        lease: &'l Lease,
        tokens: &[Token],
        reservation: &mut Reservation,
    ) -> Result<Ref<'l, Point>, InsertErrorKind> {
        if !self.is_ours(lease.cache()) {
            return Err(InsertErrorKind::ForeignLease);
        }
        if !self.is_ours(&reservation.cache) {
            return Err(InsertErrorKind::ForeignReservation);
        }
        if tokens.len() > MAX_TOKENS {
            return Err(InsertErrorKind::TooLong { tokens: tokens.len() });
        }
        let grid = lease.grid(self.strong_refs.inner());
        let leased = grid.depth_of(lease.len_tokens());
        if tokens.len() < leased {
            return Err(InsertErrorKind::TokensTooShort { leased, given: tokens.len() });
        }
        let (needed, given) = (grid.blocks(tokens.len()) - grid.blocks(leased), reservation.blocks.len());
        if needed != given {
            return Err(InsertErrorKind::BlockCount { needed, given });
        }
        if let Some(index) = reservation.first_shared() {
            return Err(InsertErrorKind::SharedBlock { index });
        }
        match lease.held() {
            Some(held) if !held.point.run().space().is_detached() => Ok(held.point),
            _ => Err(InsertErrorKind::NamespaceDropped),
        }
    }

    pub(super) fn is_ours(&self, cache: &StrongRef<Inner>) -> bool {
        cache.is_of(self.strong_refs.inner())
    }

    /// Now and then takes entries out of the evictor's queue.
    #[inline]
    pub(super) fn help(&self) {
        let verbs = self.verbs.get() + 1;
        if verbs < HELP_EVERY {
            self.verbs.set(verbs);
        } else {
            self.verbs.set(0);
            self.strong_refs.inner().help(HELP_ENTRIES);
        }
    }
}

impl Drop for Session {
    /// Leaves its participant to the next session, because registering one is the slowest part of making a session.
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            local.hand_over();
            // A participant that finds no room is dropped here, before `strong_refs`, which keeps the domain alive.
            drop(self.strong_refs.inner().idle.put(local));
        }
    }
}
