//! Reservations: blocks that their owner fills. `allocate` makes them, inserts consume them, and
//! dropping one gives its blocks back.

use std::fmt;

use super::shared_blocks::SharedBlocks;
use crate::block::BlockId;
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::StrongRef;
use crate::cache::namespaces::quota::QuotaCharge;

/// Blocks that its owner fills and then inserts; dropping it gives them back.
///
/// All that earlier owners of a block did before they dropped their leases and reservations happens
/// before the reservation returns: the new owner may write to the block at once.
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
    pub(in crate::cache) blocks: Vec<BlockId>,
    pub(in crate::cache) charge: QuotaCharge,
    pub(in crate::cache) shared: SharedBlocks,
    pub(in crate::cache) cache: StrongRef<Inner>,
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
    /// Too many blocks are leased or reserved right now; retry once leases or reservations are
    /// dropped.
    Exhausted {
        /// Blocks requested.
        requested: usize,
        /// Blocks that were free or evictable.
        available: usize,
    },
    /// The namespace would have more blocks in leases and reservations than its quota allows; retry
    /// once some of its leases or reservations are dropped.
    OverQuota {
        /// Blocks requested.
        requested: usize,
        /// Blocks that it has in leases and reservations now.
        pinned: usize,
        /// The most blocks that its quota allows.
        limit: usize,
    },
    /// The engine owns the pool: [`adopt`](crate::ExternalPool::adopt) its blocks instead.
    External,
    /// The deadline passed before enough blocks became available; retry, or end a running request.
    TimedOut {
        /// Blocks requested.
        requested: usize,
        /// Blocks that were free or evictable at the last attempt: possibly enough, if earlier
        /// requests were still waiting.
        available: usize,
    },
    /// The request can never fit, however much is evicted: split it, or build a larger cache.
    TooLarge {
        /// Blocks requested.
        requested: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { requested, available } => {
                write!(
                    f,
                    "{requested} blocks requested, {available} free or evictable: \
                     retry once leases or reservations are dropped"
                )
            }
            Self::OverQuota { requested, pinned, limit } => {
                write!(f, "namespace quota exceeded: {requested} more blocks requested, {pinned} of {limit} pinned")
            }
            Self::External => f.write_str("the engine owns the block pool: adopt its blocks instead of reserving"),
            Self::TimedOut { requested, available } => {
                write!(f, "{requested} blocks requested, {available} free or evictable at the deadline")
            }
            Self::TooLarge { requested, capacity } => {
                write!(f, "{requested} blocks requested, but the cache has only {capacity}")
            }
        }
    }
}

impl std::error::Error for ReserveError {}

impl ReserveError {
    /// Whether the same request may be served later.
    pub(in crate::cache) fn is_for_now(&self) -> bool {
        match self {
            Self::Exhausted { .. } | Self::TimedOut { .. } => true,
            Self::OverQuota { requested, limit, .. } => requested <= limit,
            Self::External | Self::TooLarge { .. } => false,
        }
    }

    /// The error that a waiting request returns if this was its last refusal before the deadline.
    pub(in crate::cache) fn timed_out(self) -> Self {
        match self {
            Self::Exhausted { requested, available } => Self::TimedOut { requested, available },
            other => other,
        }
    }
}

impl Reservation {
    /// A reservation of blocks that no fork has.
    #[inline]
    pub(in crate::cache) fn of(blocks: Vec<BlockId>, charge: QuotaCharge, cache: StrongRef<Inner>) -> Self {
        Self { blocks, charge, shared: SharedBlocks::default(), cache }
    }

    pub(in crate::cache) fn is_same_cache(&self, other: &Self) -> bool {
        std::ptr::eq::<Inner>(&*self.cache, &*other.cache)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shared.keep_alone(&mut self.blocks, &mut self.charge);
        // Before the blocks return: a waiter that they wake may wait for the quota.
        let charged = self.charge.end();
        if self.blocks.is_empty() {
            charged.into_iter().for_each(|account| self.cache.charge_refused(account));
        } else {
            self.cache.give_back(&self.blocks);
        }
    }
}

impl Inner {
    /// Takes back blocks that no reservation has any more, and wakes a waiter. An attempt that took
    /// nothing does not call it: it would wake the waiter that made it.
    pub(in crate::cache) fn give_back(&self, blocks: &[BlockId]) {
        self.sink().give_back(blocks);
        self.ring();
    }
}
