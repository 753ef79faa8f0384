//! Configuring a cache.

use std::fmt;

use super::clock::{Clock, Time};
use super::evictor::Seat;
use super::namespace::Registry;
use super::stats::Gauges;
use super::{Inner, PrefixCache};
use crate::block::{BlockId, BlockSize, Pool};
use crate::policy::PolicyKind;
use crate::reclaim::Domain;
use crate::sync::{Arc, Mutex};
use crate::tree::Queue;

/// Sets up a [`PrefixCache`]; everything is checked by [`build`](Builder::build).
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    block_size: usize,
    capacity: usize,
    policy: PolicyKind,
    clock: Clock,
}

/// Why a cache could not be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A block needs at least one token.
    ZeroBlockSize,
    /// A cache needs at least one block.
    ZeroCapacity,
    /// Block ids are `u32`; build several caches.
    CapacityTooLarge {
        /// Blocks asked for.
        capacity: usize,
    },
    /// No sequence could fill such a block.
    BlockSizeTooLarge {
        /// Tokens asked for.
        block_size: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroBlockSize => f.write_str("the block size is 0 tokens"),
            Self::ZeroCapacity => f.write_str("the capacity is 0 blocks"),
            Self::CapacityTooLarge { capacity } => {
                write!(f, "a capacity of {capacity} blocks exceeds the {} that ids can name", BlockId::MAX)
            }
            Self::BlockSizeTooLarge { block_size } => {
                write!(f, "a block size of {block_size} tokens exceeds the longest sequence of {MAX_TOKENS}")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Tokens of the longest sequence that can be inserted.
pub(super) const MAX_TOKENS: usize = i32::MAX as usize;

impl Builder {
    pub(super) fn new(block_size: usize, capacity: usize) -> Self {
        Self { block_size, capacity, policy: PolicyKind::default(), clock: Clock::default() }
    }

    /// Which idle prefix is evicted first. Default: [`PolicyKind::Lru`].
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.policy = policy;
        self
    }

    /// What stamps matches and inserts. Default: [`Clock::Monotonic`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the cache; all its blocks are free.
    ///
    /// # Errors
    ///
    /// If block size or capacity are zero or larger than ids and depths can name.
    pub fn build(self) -> Result<PrefixCache, BuildError> {
        match (self.block_size, self.capacity) {
            (0, _) => return Err(BuildError::ZeroBlockSize),
            (_, 0) => return Err(BuildError::ZeroCapacity),
            (_, capacity) if capacity > BlockId::MAX as usize => {
                return Err(BuildError::CapacityTooLarge { capacity });
            }
            (block_size, _) if block_size > MAX_TOKENS => {
                return Err(BuildError::BlockSizeTooLarge { block_size });
            }
            _ => {}
        }
        let domain = Domain::new();
        let seat = Seat::new(&domain, self.policy);
        let namespaces = Registry::new(&seat.local);
        let inner = Inner {
            block_size: BlockSize::new(self.block_size as u32),
            queue: Queue::new(),
            pool: Pool::new(self.capacity),
            time: Time::new(self.clock),
            gauges: Gauges::default(),
            namespaces,
            seat: Mutex::new(seat),
            domain,
        };
        Ok(PrefixCache { inner: Arc::new(inner) })
    }
}
