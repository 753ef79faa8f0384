//! The results and errors of the reference's verbs.

use super::store::{BlockId, Place, TreeId};
use crate::cache::InsertErrorKind;

/// A promise that a path stays cached, until it is given back to [`super::Reference::release`].
#[derive(Debug)]
#[must_use]
pub struct Lease {
    pub(super) tree: TreeId,
    pub(super) at: Place,
    pub(super) len_tokens: usize,
    /// Whether the lease's request has been counted on this path.
    pub(super) touched: bool,
}

/// The result of a match or a resume.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub struct PrefixMatch {
    /// A lease on the whole path.
    pub lease: Lease,
    /// All blocks of the path, from the root.
    pub blocks: Vec<BlockId>,
}

/// Blocks to be filled; given to [`super::Reference::insert`] or back to [`super::Reference::abort`].
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    pub(super) blocks: Vec<BlockId>,
}

/// The result of an insert.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub struct Inserted {
    /// A lease on the whole sequence that is cached now.
    pub lease: Lease,
    /// The cached blocks from the end of the old lease to that of the new one.
    pub blocks: Vec<BlockId>,
    /// The given blocks that were not needed, because their tokens were cached already: the first ones.
    pub duplicates: Reservation,
    /// Tokens that fill no block and were not stored.
    pub dropped_tokens: usize,
}

/// A refused insert.
#[derive(Debug)]
#[non_exhaustive]
pub struct InsertError {
    /// The reservation, as it was given.
    pub reservation: Reservation,
    /// The reason. If several apply, the first of: namespace dropped, sequence too short, wrong number of blocks.
    pub kind: InsertErrorKind,
}

/// The numbers of blocks by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Unused.
    pub free_blocks: usize,
    /// In reservations.
    pub reserved_blocks: usize,
    /// Cached, and not protected by a lease.
    pub evictable_blocks: usize,
    /// Cached, and protected by a lease.
    pub protected_blocks: usize,
}

impl Lease {
    /// Length of the leased path, in tokens.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }
}

impl Reservation {
    /// The reserved blocks.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Moves the first `n` blocks into a new reservation.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn split(&mut self, n: usize) -> Self {
        let rest = self.blocks.split_off(n);
        let blocks = std::mem::replace(&mut self.blocks, rest);
        Self { blocks }
    }
}
