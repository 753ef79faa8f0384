//! A session: the verbs of one scheduler thread.

use std::cell::Cell;
use std::fmt;

use super::inner::Inner;
use super::lease::{Lease, PrefixMatch};
use super::lookups::{Query, count_resumed};
use super::namespace::Namespace;
use super::participant::Participant;
use super::strong_ref::{StrongRef, StrongRefs};
use crate::block::{BlockId, Grid};
use crate::key::Token;
use crate::reclaim::{Guard, Local};
use crate::sync::gauge::Relaxed;
use crate::sync::{Arc, model_size};
use crate::tree::lease::{Refused, lease_deepest, release};
use crate::tree::path::append_blocks;
use crate::tree::{HeldLease, Ledger, Position, walk};

/// Sessions that have a participant of their own; each further one borrows one for a verb. Now and then a verb looks at every
/// participant, so their number must not follow that of idle sessions.
const OWN_PARTICIPANTS: usize = model_size(64, 1 << 16);

/// Verbs of a session between two looks at the evictor's queue: so no eviction meets a long backlog left by lookups.
const HELP_EVERY: u32 = model_size(256, u32::MAX as usize) as u32;
/// The same where there is little to do: many sessions that look often take each other's points out of the queue, only for them to go
/// into it again.
const HELP_SELDOM: u32 = model_size(1024, u32::MAX as usize) as u32;
/// Entries that it then takes out, unless another thread does; with fewer than that many there is little to do.
const HELP_ENTRIES: usize = 1024;
const FEW_ENTRIES: usize = HELP_EVERY as usize;

/// One thread's access to a cache; made by [`PrefixCache::session`](super::PrefixCache::session).
///
/// `Send` and not `Sync`: each thread or task makes its own, and a task may keep it from one thread to another. What it returns
/// ([`Lease`], [`Reservation`](crate::Reservation)) may go to any thread and outlive it.
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
/// # let namespace = cache.default_namespace();
/// let session = cache.session();
/// let prompt: Vec<u32> = (0..10).collect();
/// let hit = session.match_prefix(&namespace, &prompt);
/// let missing = prompt.len() / cache.block_size() - hit.blocks().len();
/// let blocks = session.reserve(missing)?;
/// // ... compute `prompt[hit.len_tokens()..]` into `blocks.blocks()` ...
/// let inserted = session.insert(hit.lease(), &prompt, blocks)?;
/// // ... decode; dropping the lease makes the prefix evictable ...
/// drop(inserted.lease);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    /// Its own participant, if it is one of the first.
    local: Option<Local>,
    pub(super) strong_refs: StrongRefs<Inner>,
    /// The stripe on which it counts leases of hot points.
    stripe: u8,
    /// Makes the session not `Sync`, as its participant and its references do.
    verbs_left: Cell<u32>,
    /// Its last lookup agreed with no token.
    has_missed: Cell<bool>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// Whether a lookup counts as a use of what it finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Counted,
    Uncounted,
}

impl Session {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        // Relaxed, here and where it ends: a bound that a race may miss by the racing threads.
        let is_one_of_few = inner.own_participants.load(Relaxed) < OWN_PARTICIPANTS;
        let own = is_one_of_few.then(|| {
            inner.own_participants.fetch_add(1, Relaxed);
            inner.idle.take().unwrap_or_else(|| inner.domain.register())
        });
        Self {
            local: own,
            strong_refs: StrongRefs::new(inner),
            stripe: inner.next_stripe(),
            verbs_left: Cell::new(HELP_EVERY),
            has_missed: Cell::new(false),
        }
    }

    pub(super) fn inner(&self) -> &Inner {
        self.strong_refs.inner()
    }

    /// The participant through which a verb pins the index.
    #[inline]
    pub(super) fn participant(&self) -> Participant<'_> {
        match &self.local {
            Some(own) => Participant::Own(own),
            None => self.strong_refs.inner().lend(self.near()),
        }
    }

    /// Near which slot it borrows a participant: not the one of the other sessions.
    pub(super) fn near(&self) -> usize {
        model_size(self.stripe.into(), 0)
    }

    pub(super) fn ledger(&self) -> Ledger<'_> {
        self.strong_refs.inner().ledger(self.stripe)
    }

    /// Leases the longest cached prefix of `tokens` and counts as a use of it.
    ///
    /// Only whole blocks match; a miss is an empty match. Lock-free: retries only if another thread changed the place
    /// that it was about to lease. Allocates the result, and a point for a match that ends inside a run.
    ///
    /// A prefix counts up to 2^28 leases at once: beyond them a match is shorter, and where the root, too, has so many it is
    /// empty and leases nothing.
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

    /// [`match_prefix`](Self::match_prefix) that writes the blocks to `blocks`, which is cleared first: no allocation
    /// for the result.
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
        let participant = self.participant();
        let guard = participant.pin();
        let Some(held) = self.lease_longest(namespace, tokens, &guard) else {
            return self.find_nothing(namespace, tokens, use_, &guard);
        };
        let counted = use_ == Use::Counted && held.point.depth() > 0;
        let mut lease = Lease::new(held, counted, namespace.0.grid, self.strong_refs.take());
        crate::sync::failpoint!("session::leased");
        if use_ == Use::Counted {
            lease.queried = true;
            inner.count_lookup(namespace.query(tokens), &lease, &guard);
        }
        if counted {
            inner.hot.statistics(&held).touch(now);
            inner.undo_demotions(held.point, now, &guard);
        }
        append_blocks(held.point, 0, namespace.0.grid, blocks, &guard);
        drop(guard);
        self.help();
        lease
    }

    /// The result of a lookup in a namespace that was dropped, or can count no more leases.
    #[cold]
    fn find_nothing(&self, namespace: &Namespace, tokens: &[Token], use_: Use, guard: &Guard<'_>) -> Lease {
        let lease = Lease::of_nothing(namespace.0.grid, self.strong_refs.take());
        if use_ == Use::Counted {
            self.inner().count_lookup(namespace.query(tokens), &lease, guard);
        }
        lease
    }

    /// Leases the deepest block boundary that `tokens` reach; `None` if the namespace was dropped, or can count no more leases.
    fn lease_longest<'g>(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        guard: &'g Guard<'g>,
    ) -> Option<HeldLease<'g>> {
        let grid = namespace.0.grid;
        loop {
            let root = namespace.0.root(guard)?;
            // After a miss comes another one, often: what that needs comes while the walk waits for memory.
            if self.has_missed.get() {
                self.foresee_miss(0, tokens, namespace);
            }
            let reached = walk(root, tokens, guard);
            self.has_missed.set(reached.end == 0);
            if reached.end < tokens.len() {
                self.foresee_miss(reached.end, tokens, namespace);
            }
            match lease_deepest(reached.boundary(grid), grid, self.ledger(), guard) {
                Ok(held) => return Some(held),
                Err(Refused::Full) => return None,
                // The root of a space that was detached after it was loaded: the next round loads the new one.
                Err(_) => {}
            }
        }
    }

    /// Prefetches what counting a lookup reads that reaches no more than so many tokens.
    #[cold]
    fn foresee_miss(&self, reached: usize, tokens: &[Token], namespace: &Namespace) {
        let grid = namespace.0.grid;
        if let Some(with_next) = tokens.get(..grid.end_of(grid.blocks(reached) + 1)) {
            self.inner().seen.prefetch(with_next, grid);
        }
    }

    /// Continues from a lease: looks only at what lies beyond it.
    ///
    /// `tokens` is the whole sequence; the tokens that the lease covers are not compared again. The ids of all blocks
    /// are copied, which takes about 70 us for a million; [`resume_into`](Self::resume_into) copies only those beyond
    /// the lease, at a cost that does not depend on how much it covers. A request counts as one use, at the deepest
    /// prefix that it reached: if the lease was counted, its use moves along; if not (a lease of
    /// [`match_prefix_untouched`](Self::match_prefix_untouched), or a clone), it is counted now.
    ///
    /// # Panics
    ///
    /// If `tokens` is shorter than the lease, or the lease is of another cache.
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
        self.check_lease_of(&lease, tokens).unwrap_or_else(|refused| panic!("{refused}"));
        let inner = &**self.strong_refs.inner();
        let grid = lease.grid(inner);
        let leased = grid.depth_of(lease.len_tokens());
        let participant = self.participant();
        let guard = participant.pin();
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
        let row = tip.point.run().space().holdings.row.id();
        let (was_queried, known) = (lease.queried, lease.len_tokens());
        let mut lease = resumed.unwrap_or(lease);
        if was_queried {
            count_resumed(row, lease.len_tokens() - known, &guard);
        } else {
            inner.count_lookup(Query { row, grid, tokens }, &lease, &guard);
        }
        drop(guard);
        // Written only if it changes: a store here would delay the copy of the whole lease that follows.
        if !lease.queried || lease.counted != counted {
            (lease.queried, lease.counted) = (true, counted);
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

    /// Tokens of the longest cached prefix of `tokens`. Changes nothing and leases nothing: the prefix may be evicted
    /// at any moment.
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
        let participant = self.participant();
        let guard = participant.pin();
        let grid = namespace.0.grid;
        let root = namespace.0.root(&guard);
        root.map_or(0, |root| grid.filled(walk(root, tokens, &guard).boundary(grid).end()))
    }

    pub(super) fn is_ours(&self, cache: &StrongRef<Inner>) -> bool {
        cache.is_of(self.strong_refs.inner())
    }

    /// Now and then takes entries out of the evictor's queue.
    #[inline]
    pub(super) fn help(&self) {
        let left = self.verbs_left.get() - 1;
        self.verbs_left.set(left);
        if left == 0 {
            let is_little = self.strong_refs.inner().help(HELP_ENTRIES, FEW_ENTRIES);
            self.verbs_left.set(if is_little { HELP_SELDOM } else { HELP_EVERY });
        }
    }
}

impl Drop for Session {
    /// Leaves its participant to the next session, because registering one is the slowest part of making a session.
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            let inner = &**self.strong_refs.inner();
            local.hand_over();
            if inner.gauges.runs() == 0 && local.give_memory_back() {
                inner.domain.cool_down();
            }
            inner.own_participants.fetch_sub(1, Relaxed);
            // A participant that finds no room is dropped here, before `strong_refs`, which keeps the domain alive.
            drop(inner.idle.put(local));
        }
    }
}
