//! Retention: what a session may ask for a prefix beside using it.
//!
//! Each request is for the prefix of a lease, from the root of its namespace to the lease's end, and stays with those
//! blocks. Cached continuations are not concerned; they protect the prefix anyway, because no block is evicted before
//! its continuations.

use std::fmt;
use std::time::Duration;

use super::counters::Count;
use super::lease::Lease;
use super::priority::Priority;
use super::session::Session;
use crate::tree::Marked;

/// Why a prefix was not retained.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// # use std::time::Duration;
/// use radixkv::RetainError;
///
/// let hit = session.match_prefix(&space, &[1, 2]);
/// cache.clear();
/// assert_eq!(session.retain(hit.lease(), Duration::from_secs(60)), Err(RetainError::NamespaceDropped));
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetainError {
    /// The lease's namespace was dropped or cleared: no lookup finds the prefix any more.
    NamespaceDropped,
    /// Blocks of the lease were [invalidated](crate::PrefixCache::invalidate_blocks).
    Invalidated,
    /// The prefix has as many leases as can be counted: retry when some are dropped.
    TooManyLeases,
    /// The lease is of another cache.
    ForeignLease,
}

impl fmt::Display for RetainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NamespaceDropped => "the lease's namespace was dropped or cleared",
            Self::Invalidated => "blocks of the lease were invalidated",
            Self::TooManyLeases => "the prefix has too many leases: retry when some are dropped",
            Self::ForeignLease => "the lease is of another cache",
        })
    }
}

impl std::error::Error for RetainError {}

impl Session {
    /// Gives the prefix of `lease` a priority.
    ///
    /// The highest priority that has not expired counts, so a lower one given later changes nothing; without any the
    /// prefix has [`Priority::DEFAULT`]. Two are remembered, also after they have expired: the highest one (of equals, the
    /// one that lasts longer) and the one that lasts longest. All others are forgotten. A priority given to a longer
    /// prefix also counts for the shorter ones in it: a shared prefix has the highest of all that were given through it.
    ///
    /// Priorities are kept under every policy, but only [`PolicyKind::Priority`](crate::PolicyKind::Priority) evicts by
    /// them. Without effect on an empty lease. Lock-free; allocates if it changes anything.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
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

    /// Keeps the prefix of `lease` from being evicted until `duration` has passed, even if the lease is dropped.
    ///
    /// Its blocks count as protected until then, because the cache itself has a lease on them. If a prefix is retained
    /// several times, the latest deadline counts. A retention ends early by
    /// [`release_retained`](Self::release_retained), and by clearing or dropping the namespace. It also ends a demotion.
    ///
    /// After the deadline it ends when the evictor next runs: in a `reserve` that must evict, in
    /// [`settle`](crate::PrefixCache::settle) or [`stats`](crate::PrefixCache::stats), or on the background thread, which
    /// wakes at the deadline.
    ///
    /// Without effect on an empty lease. Lock-free; allocates.
    ///
    /// # Errors
    ///
    /// [`RetainError`]; nothing has changed.
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
        if !self.is_ours(lease.cache()) {
            return Err(RetainError::ForeignLease);
        }
        let (inner, participant) = (self.inner(), self.participant());
        let guard = participant.pin();
        let point = match lease.held() {
            None => return Err(RetainError::NamespaceDropped),
            Some(held) if held.point.run().space().is_detached() => return Err(RetainError::NamespaceDropped),
            Some(held) if held.point.is_hidden(&guard) => return Err(RetainError::Invalidated),
            Some(held) => held.point,
        };
        if point.depth() == 0 {
            return Ok(());
        }
        if !point.word.lease_more() {
            return Err(RetainError::TooManyLeases);
        }
        crate::sync::failpoint!("retain::leased");
        let until = inner.time.after(duration);
        point.marks.ask(inner.demotions.undone(), until, &guard);
        guard.hand_over();
        drop(guard);
        let blocks = inner.grid.blocks(lease.len_tokens());
        participant.count([(Count::Retentions, 1), (Count::RetainedBlocks, blocks)]);
        crate::sync::failpoint!("retain::noted");
        if point.word.announce() {
            inner.queue.push(point);
        }
        if let Some(background) = inner.background.get() {
            background.changes_pending();
        }
        self.help();
        Ok(())
    }

    /// Ends the retention ([`retain`](Self::retain)) of exactly the prefix of `lease`; retentions of shorter and longer
    /// prefixes go on.
    ///
    /// Waits its turn if another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
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

    /// Makes the prefix of `lease` go before all prefixes that are not demoted, under every policy, until it is used
    /// again.
    ///
    /// A later match, resume or insert, even at the same logical time, undoes the demotion of the blocks on its path;
    /// [`retain`](Self::retain) undoes it for the blocks that it retains. Leased and retained blocks stay as long as that
    /// lasts. Among demoted prefixes the policy chooses. Without effect on an empty lease. Lock-free; allocates if it
    /// changes anything.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
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

    /// Marks the point of a lease. The lease's release tells the evictor (tree/marks.rs).
    fn mark(&self, lease: &Lease, marked: Marked) {
        self.check_lease(lease);
        if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
            let participant = self.participant();
            let guard = participant.pin();
            held.point.marks.join(marked, &guard);
            // A replaced record is handed over at once, so that it does not wait for more garbage.
            guard.hand_over();
        }
    }

    fn check_lease(&self, lease: &Lease) {
        assert!(self.is_ours(lease.cache()), "the lease is of another cache");
    }
}
