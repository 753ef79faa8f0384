//! Configuring a cache.

use std::fmt;

use crossbeam_queue::ArrayQueue;

use super::background::{Background, Eviction, Watermarks};
use super::clock::{Clock, Time};
use super::evictor::Seat;
use super::namespace::Registry;
use super::stats::Gauges;
use super::{Inner, PrefixCache, STEP};
use crate::block::{BlockId, BlockSize, Pool};
use crate::policy::PolicyKind;
use crate::reclaim::Domain;
use crate::sync::{Arc, Mutex, OnceLock};
use crate::tree::Queue;

/// Sets up a [`PrefixCache`]; everything is checked by [`build`](Builder::build).
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    block_size: usize,
    capacity: usize,
    policy: PolicyKind,
    clock: Clock,
    eviction: Eviction,
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
    /// The watermarks must rise from low to high, and high may not exceed the capacity.
    Watermarks {
        /// The low one.
        low: usize,
        /// The high one.
        high: usize,
        /// Blocks asked for.
        capacity: usize,
    },
    /// The system refused to start the evictor's thread.
    NoThread {
        /// The system's reason.
        kind: std::io::ErrorKind,
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
            Self::Watermarks { low, high, capacity } => {
                write!(f, "watermarks of {low} and {high} blocks do not rise within a capacity of {capacity}")
            }
            Self::NoThread { kind } => write!(f, "the evictor's thread was not started: {kind}"),
            Self::BlockSizeTooLarge { block_size } => {
                write!(f, "a block size of {block_size} tokens exceeds the longest sequence of {MAX_TOKENS}")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Participants of ended sessions that are kept for the next ones.
const IDLE_SESSIONS: usize = 64;

/// Tokens of the longest sequence that can be inserted.
pub(super) const MAX_TOKENS: usize = i32::MAX as usize;

impl Builder {
    pub(super) fn new(block_size: usize, capacity: usize) -> Self {
        Self {
            block_size,
            capacity,
            policy: PolicyKind::default(),
            clock: Clock::default(),
            eviction: Eviction::Inline,
        }
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

    /// Who evicts. Default: [`Eviction::Inline`], and no thread is started.
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.eviction = eviction;
        self
    }

    /// Makes the cache; all its blocks are free.
    ///
    /// # Errors
    ///
    /// If block size or capacity are zero or larger than ids and depths can name, if watermarks are out of order, or if
    /// the system gives no thread.
    pub fn build(self) -> Result<PrefixCache, BuildError> {
        self.check()?;
        let patience = match self.eviction {
            Eviction::Inline => usize::MAX,
            Eviction::Background(_) => STEP,
        };
        let domain = Domain::new();
        let seat = Seat::new(&domain, self.policy, patience);
        let namespaces = Registry::new(&seat.local);
        let inner = Inner {
            block_size: BlockSize::new(self.block_size as u32),
            queue: Queue::new(),
            pool: Pool::new(self.capacity),
            time: Time::new(self.clock),
            gauges: Gauges::default(),
            namespaces,
            background: OnceLock::new(),
            seat: Mutex::new(seat),
            idle: ArrayQueue::new(IDLE_SESSIONS),
            domain,
        };
        let inner = Arc::new(inner);
        if let Eviction::Background(watermarks) = self.eviction {
            let background = Background::start(Arc::downgrade(&inner), watermarks)
                .map_err(|error| BuildError::NoThread { kind: error.kind() })?;
            inner.background.get_or_init(|| background);
        }
        Ok(PrefixCache { inner })
    }

    fn check(&self) -> Result<(), BuildError> {
        let (block_size, capacity) = (self.block_size, self.capacity);
        if block_size == 0 {
            return Err(BuildError::ZeroBlockSize);
        }
        if capacity == 0 {
            return Err(BuildError::ZeroCapacity);
        }
        if capacity > BlockId::MAX as usize {
            return Err(BuildError::CapacityTooLarge { capacity });
        }
        if block_size > MAX_TOKENS {
            return Err(BuildError::BlockSizeTooLarge { block_size });
        }
        match self.eviction {
            Eviction::Background(Watermarks { low, high }) if low > high || high > capacity => {
                Err(BuildError::Watermarks { low, high, capacity })
            }
            _ => Ok(()),
        }
    }
}
