//! Retention: what a session may ask for a prefix beside using it.
//!
//! All of it is asked for the prefix of a lease, from the root of its namespace to the lease's end, and stays with
//! those blocks: what hangs beyond is not concerned, and protects them anyway, because nothing is evicted before what
//! continues it.

use std::fmt;
use std::time::Duration;

use super::{Lease, Session};
use crate::tree::Marked;

/// How much a prefix is worth keeping, from 0 to 100, and for how long: what [`PolicyKind::Priority`] goes by.
///
/// [`PolicyKind::Priority`]: crate::PolicyKind::Priority
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use radixkv::{Priority, PriorityError};
///
/// let interactive = Priority::new(80)?.expiring_after(Duration::from_secs(60));
/// assert_eq!((interactive.level(), interactive.ttl()), (80, Some(Duration::from_secs(60))));
/// assert_eq!(Priority::new(101), Err(PriorityError { level: 101 }));
/// # Ok::<_, PriorityError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Priority {
    level: u8,
    ttl: Option<Duration>,
}

/// A priority above [`Priority::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityError {
    /// What was asked for.
    pub level: u64,
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a priority of {} is not from 0 to {}", self.level, Priority::MAX)
    }
}

impl std::error::Error for PriorityError {}

impl Priority {
    /// The highest level.
    pub const MAX: u8 = 100;

    /// That of a prefix which nobody gave one, or whose priorities have all expired: a third of the way up, so that
    /// there is room below it.
    pub const DEFAULT: Self = Self { level: 35, ttl: None };

    /// A priority that does not expire.
    ///
    /// # Errors
    ///
    /// [`PriorityError`] for a level above 100.
    pub const fn new(level: u8) -> Result<Self, PriorityError> {
        if level > Self::MAX {
            return Err(PriorityError { level: level as u64 });
        }
        Ok(Self { level, ttl: None })
    }

    /// The same, from the moment it is given until `ttl` has passed.
    #[must_use]
    pub const fn expiring_after(self, ttl: Duration) -> Self {
        Self { level: self.level, ttl: Some(ttl) }
    }

    /// From 0, evicted first, to 100.
    pub const fn level(self) -> u8 {
        self.level
    }

    /// How long it counts once it is given; nothing if it does not expire.
    pub const fn ttl(self) -> Option<Duration> {
        self.ttl
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why a prefix was not retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetainError {
    /// The lease's namespace was dropped or cleared: nothing finds the prefix any more.
    NamespaceDropped,
    /// The prefix holds as many leases as can be counted: try again when some have gone.
    TooManyLeases,
}

impl fmt::Display for RetainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NamespaceDropped => "the lease's namespace was dropped or cleared",
            Self::TooManyLeases => "the prefix holds too many leases",
        })
    }
}

impl std::error::Error for RetainError {}

impl Session {
    /// Gives the prefix of `lease` a priority.
    ///
    /// The highest that has not expired counts, so a lower one takes nothing away; without any the prefix has
    /// [`Priority::DEFAULT`]. Two are remembered: the highest (of equals the one that lasts longer) and the one that
    /// lasts longest; what lies in between is dropped, and so is everything else while a highest one that has expired
    /// stays behind. When a continuation is evicted, its priorities were given to what remains as well: a shared prefix
    /// has the highest of all that were given through it.
    ///
    /// Kept under every policy; [`PolicyKind::Priority`](crate::PolicyKind::Priority) alone goes by it. Without effect
    /// on an empty lease. Lock-free; allocates where it changes anything.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
    pub fn prioritize(&self, lease: &Lease, priority: Priority) {
        let expiry = priority.ttl.map(|ttl| self.inner().time.after(ttl));
        self.mark(lease, Marked::priority(priority.level, expiry));
    }

    /// Keeps the prefix of `lease` from being evicted until `duration` has passed, whatever becomes of the lease.
    ///
    /// Its blocks count as protected until then: it is a lease that the cache holds. Of several the longest counts.
    /// Ended early by [`release_retained`](Self::release_retained), and by clearing or dropping the namespace. Also
    /// ends a demotion. It is over when the evictor next works after the deadline: every `reserve` that must evict,
    /// [`settle`](crate::PrefixCache::settle), [`stats`](crate::PrefixCache::stats), or at the deadline itself the background thread.
    ///
    /// Without effect on an empty lease. Lock-free; allocates.
    ///
    /// # Errors
    ///
    /// [`RetainError`]; nothing has changed.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
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
        self.check_lease(lease);
        let inner = self.inner();
        let point = match lease.held() {
            Some(held) if !held.point.run().space().is_detached() => held.point,
            _ => return Err(RetainError::NamespaceDropped),
        };
        if point.depth() == 0 {
            return Ok(());
        }
        if !point.word.lease_more() {
            return Err(RetainError::TooManyLeases);
        }
        crate::sync::point!("retain::leased");
        let until = inner.time.after(duration);
        let guard = self.pin();
        point.statistics.marks.ask(inner.demotions.undone(), until, &guard);
        guard.hand_over();
        drop(guard);
        crate::sync::point!("retain::noted");
        if point.word.announce() {
            inner.queue.push(point);
        }
        if let Some(background) = inner.background.get() {
            background.changes_pending();
        }
        self.help();
        Ok(())
    }

    /// Ends what [`retain`](Self::retain) promised of the very prefix of `lease`; of shorter and longer ones it does
    /// not.
    ///
    /// Waits its turn if another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
    pub fn release_retained(&self, lease: &Lease) {
        self.check_lease(lease);
        if let Some(held) = lease.held() {
            self.inner().evicting(|evictor, resources| evictor.end_retention(held.point, resources));
        }
    }

    /// The prefix of `lease` is evicted before all that is not demoted, under every policy, until it is used again.
    ///
    /// A match, a resume or an insert after it, at the same logical time too, undoes it for the blocks that it passes,
    /// [`retain`](Self::retain) for those that it retains; what is leased or retained stays as long as that lasts.
    /// Among demoted prefixes the policy chooses. Without effect on an empty lease. Lock-free; allocates where
    /// it changes anything.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
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
            let guard = self.pin();
            held.point.statistics.marks.join(marked, &guard);
            // A record that was replaced is not worth keeping until there are more.
            guard.hand_over();
        }
    }

    fn check_lease(&self, lease: &Lease) {
        assert!(self.is_ours(lease.cache()), "the lease is of another cache");
    }
}
