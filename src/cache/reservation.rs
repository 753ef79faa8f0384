//! Reservations: blocks taken to be filled.

use std::fmt;

use super::inner::Inner;
use super::quota::QuotaCharge;
use super::shared_blocks::SharedBlocks;
use super::strong_ref::StrongRef;
use crate::block::BlockId;

/// Blocks that its owner fills and then inserts; dropping it gives them back.
///
/// # Examples
///
/// ```
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let session = cache.session();
/// let mut prompt = session.reserve(4)?;
/// let chunk = prompt.split(1); // for the first chunk of the prompt
/// prompt.append(session.reserve(2)?); // the sequence grows
/// assert_eq!((chunk.len(), prompt.len(), cache.stats().free_blocks), (1, 5, 2));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reservation {
    pub(super) blocks: Vec<BlockId>,
    pub(super) charge: QuotaCharge,
    pub(super) shared: SharedBlocks,
    pub(super) cache: StrongRef<Inner>,
}

/// Why a reservation was refused. Nothing was taken.
///
/// # Examples
///
/// ```
/// use radixkv::{PrefixCache, ReserveError};
///
/// let cache = PrefixCache::builder(16, 8).build()?;
/// let session = cache.session();
/// let running = session.reserve(6)?;
/// // When the running request ends:
/// assert_eq!(session.reserve(4).unwrap_err(), ReserveError::Exhausted { requested: 4, available: 2 });
/// // Never:
/// assert_eq!(session.reserve(9).unwrap_err(), ReserveError::TooLarge { requested: 9, capacity: 8 });
/// # drop(running);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// Too many blocks are leased or reserved right now; retry once leases or reservations are dropped.
    Exhausted {
        /// Blocks asked for.
        requested: usize,
        /// Blocks that were free or evictable.
        available: usize,
    },
    /// The namespace would have more blocks in leases and reservations than its quota allows; retry once some of its
    /// leases or reservations are dropped.
    OverQuota {
        /// Blocks asked for.
        requested: usize,
        /// Blocks that it has in leases and reservations now.
        pinned: usize,
        /// The most blocks that it may have there.
        limit: usize,
    },
    /// The engine owns the pool: [`adopt`](super::Session::adopt) its blocks instead.
    External,
    /// The deadline passed before enough blocks became available; retry, or end a running request.
    TimedOut {
        /// Blocks asked for.
        requested: usize,
        /// Blocks that were free or evictable at the last attempt: enough, perhaps, if requests before it were still waiting.
        available: usize,
    },
    /// The request can never fit, however much is evicted: split it, or build a larger cache.
    TooLarge {
        /// Blocks asked for.
        requested: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { requested, available } => {
                write!(f, "{requested} blocks requested, {available} available")
            }
            Self::OverQuota { requested, pinned, limit } => {
                write!(f, "{requested} blocks requested for a namespace that has {pinned} pinned and may have {limit}")
            }
            Self::External => {
                f.write_str("the engine owns the pool, so nothing can be reserved: adopt the engine's blocks")
            }
            Self::TimedOut { requested, available } => {
                write!(f, "{requested} blocks requested, {available} available at the deadline")
            }
            Self::TooLarge { requested, capacity } => {
                write!(f, "{requested} blocks requested from a cache of {capacity}")
            }
        }
    }
}

impl std::error::Error for ReserveError {}

impl ReserveError {
    /// Whether the same request may be served later.
    pub(super) fn is_for_now(&self) -> bool {
        match self {
            Self::Exhausted { .. } | Self::TimedOut { .. } => true,
            Self::OverQuota { requested, limit, .. } => requested <= limit,
            Self::External | Self::TooLarge { .. } => false,
        }
    }

    /// What a request returns that was refused so until its deadline.
    pub(super) fn timed_out(self) -> Self {
        match self {
            Self::Exhausted { requested, available } => Self::TimedOut { requested, available },
            other => other,
        }
    }
}

impl Reservation {
    /// The blocks, in the order in which an insert takes them.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let reservation = cache.session().reserve(2)?;
    /// let mut block_table: Vec<u32> = Vec::new();
    /// block_table.extend(reservation.blocks()); // what the engine fills
    /// assert_eq!(block_table.len(), 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it holds no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Moves the first `n` blocks into a new reservation, for a prompt that is inserted in chunks.
    ///
    /// # Panics
    ///
    /// If it holds fewer.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4];
    /// let mut blocks = session.reserve(2)?;
    /// let miss = session.match_prefix(&space, &prompt);
    /// // The first chunk is computed and published, then the rest.
    /// let chunk = session.insert(miss.lease(), &prompt[..2], blocks.split(1))?;
    /// let whole = session.insert(&chunk.lease, &prompt, blocks)?;
    /// assert_eq!(whole.lease.len_tokens(), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the part gives its blocks back"]
    pub fn split(&mut self, n: usize) -> Self {
        let rest = self.blocks.split_off(n);
        let shared = self.shared.split_off(n);
        let (blocks, shared) = (std::mem::replace(&mut self.blocks, rest), std::mem::replace(&mut self.shared, shared));
        let charge = self.charge.split(n - shared.counted());
        Self { blocks, shared, charge, cache: self.cache.clone() }
    }

    /// Adds the blocks of `other` behind its own: for a sequence that grows.
    ///
    /// # Panics
    ///
    /// If `other` is of another cache, or different namespaces pay for the two
    /// ([`BlockRequest::paid_by`](crate::BlockRequest::paid_by)).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let mut blocks = session.reserve(2)?;
    /// blocks.append(session.reserve(1)?); // for the next tokens of the sequence
    /// assert_eq!(blocks.len(), 3);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn append(&mut self, other: Self) {
        // Nothing has moved if it panics: `self` is as it was, and `other` gives its blocks back.
        self.try_append(other).unwrap_or_else(|refused| panic!("{refused}"));
    }

    /// As [`append`](Self::append), without its panics.
    ///
    /// # Errors
    ///
    /// [`AppendError`] with `other`; nothing has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let session = cache.session();
    /// let [one, two] = ["one", "two"].map(|name| cache.namespace(&[name]));
    /// let (mut blocks, others) = (session.reserve_in(&one, 2)?, session.reserve_in(&two, 1)?);
    /// let refused = blocks.try_append(others).unwrap_err();
    /// assert_eq!(refused.to_string(), "different namespaces pay for the two reservations");
    /// assert_eq!((blocks.len(), refused.reservation.len()), (2, 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_append(&mut self, mut other: Self) -> Result<(), AppendError> {
        let refused = |kind, reservation| Err(AppendError { reservation, kind });
        if !std::ptr::eq::<Inner>(&*self.cache, &*other.cache) {
            return refused(AppendErrorKind::ForeignReservation, other);
        }
        if !self.charge.goes_with(&other.charge) {
            return refused(AppendErrorKind::OtherPayer, other);
        }
        self.shared.append(self.blocks.len(), std::mem::take(&mut other.shared));
        self.charge.append(std::mem::take(&mut other.charge));
        self.blocks.append(&mut other.blocks);
        Ok(())
    }
}

/// Why a reservation was not appended, and that reservation back.
#[derive(Debug)]
#[non_exhaustive]
pub struct AppendError {
    /// The reservation that was to be appended.
    pub reservation: Reservation,
    /// The reason.
    pub kind: AppendErrorKind,
}

/// Why a reservation was not appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendErrorKind {
    /// It is of another cache.
    ForeignReservation,
    /// Different namespaces pay for the two: reserve with the same payer ([`BlockRequest::paid_by`](crate::BlockRequest::paid_by)).
    OtherPayer,
}

impl fmt::Display for AppendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ForeignReservation => "the reservation is of another cache",
            Self::OtherPayer => "different namespaces pay for the two reservations",
        })
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for AppendErrorKind {}

impl std::error::Error for AppendError {}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shared.keep_alone(&mut self.blocks, &mut self.charge);
        // First: a waiter that the blocks wake may wait for the quota.
        self.charge.end();
        self.cache.give_back(&self.blocks);
    }
}

impl Inner {
    /// Takes back blocks that are in no reservation any more.
    pub(super) fn give_back(&self, blocks: &[BlockId]) {
        // An attempt that took nothing must not wake the waiter that made it.
        if blocks.is_empty() {
            return;
        }
        self.sink().give_back(blocks);
        self.ring();
    }
}
