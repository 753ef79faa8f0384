//! Reservations: blocks taken to be filled.

use std::fmt;

use super::hold::Hold;
use crate::block::BlockId;

/// Blocks that the holder fills and then inserts; dropping it gives them back.
#[derive(Debug)]
pub struct Reservation {
    pub(super) blocks: Vec<BlockId>,
    pub(super) hold: Hold,
}

/// Why a reservation was refused. Nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// Too many blocks are leased or reserved right now; retry once some are let go.
    Exhausted {
        /// Blocks asked for.
        requested: usize,
        /// Blocks that were free or evictable.
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
            Self::TooLarge { requested, capacity } => {
                write!(f, "{requested} blocks requested from a cache of {capacity}")
            }
        }
    }
}

impl std::error::Error for ReserveError {}

impl Reservation {
    /// The blocks, in the order in which an insert uses them.
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

    /// Moves the first `n` blocks into a reservation of their own, for a prompt that is inserted in chunks.
    ///
    /// # Panics
    ///
    /// If it holds fewer.
    #[must_use = "dropping the part gives its blocks back"]
    pub fn split(&mut self, n: usize) -> Self {
        let rest = self.blocks.split_off(n);
        Self { blocks: std::mem::replace(&mut self.blocks, rest), hold: self.hold.clone() }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.hold.pool.give_back(&self.blocks);
    }
}
