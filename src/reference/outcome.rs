//! What the reference's verbs hand out, and why they refuse.

use std::fmt;

use super::BlockId;
use super::store::{Place, TreeId};
use crate::cache::InsertErrorKind;

/// A promise that a path stays cached, until [`super::Reference::release`] takes it back.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    pub(super) tree: TreeId,
    pub(super) at: Place,
    pub(super) len_tokens: usize,
    /// Whether the request that holds the lease has had its touch on this path.
    pub(super) touched: bool,
}

/// The answer of a match, a lease or a resume.
#[derive(Debug)]
#[must_use]
pub struct PrefixMatch {
    /// On the whole path.
    pub lease: Lease,
    /// All blocks of the path, from the root.
    pub blocks: Vec<BlockId>,
}

/// Blocks to be filled, until [`super::Reference::insert`] or [`super::Reference::abort`] takes them.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    pub(super) blocks: Vec<BlockId>,
}

/// What an insert did.
#[derive(Debug)]
#[must_use]
pub struct Inserted {
    /// On the whole sequence now cached.
    pub lease: Lease,
    /// The cached blocks from the end of the old lease to that of the new one.
    pub blocks: Vec<BlockId>,
    /// The given blocks whose tokens were cached already: the first ones.
    pub duplicates: Reservation,
    /// Tokens that fill no block and were not stored.
    pub dropped_tokens: usize,
}

/// A refused insert, with what was given for it.
#[derive(Debug)]
pub struct InsertError {
    /// As it was given.
    pub reservation: Reservation,
    /// Why; the first that applies of a namespace dropped, a sequence too short and a count that does not fit.
    pub kind: InsertErrorKind,
}

/// Where all the blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// In no use.
    pub free_blocks: usize,
    /// In reservations.
    pub reserved_blocks: usize,
    /// Cached, and no lease needs them.
    pub evictable_blocks: usize,
    /// Cached under a lease.
    pub protected_blocks: usize,
}

/// The first broken invariant that [`super::Reference::validate`] met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation(pub(super) &'static str);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Violation {}

impl Lease {
    /// Length of the leased path.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }
}

impl Reservation {
    /// The reserved blocks.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Takes the first `n` blocks into a reservation of their own.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer.
    pub fn split(&mut self, n: usize) -> Self {
        let rest = self.blocks.split_off(n);
        let blocks = std::mem::replace(&mut self.blocks, rest);
        Self { blocks }
    }
}
