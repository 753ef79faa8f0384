//! Steps: what can be done to a cache.
//!
//! A step names leases and reservations by an index that is taken modulo what is held, so that any
//! sequence of steps means something and dropping steps from a failing case leaves a case.

use radixkv::{PolicyKind, Token};

/// A sequence of tokens: a piece of a stem, then a tail of its own.
///
/// Stems part from stem 0 at different depths, mostly inside a block, so that a few of them give
/// shared prefixes, branches inside blocks and branches at the same place.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub stem: u8,
    /// Length of the piece in quarters of a block, rounded up.
    pub quarters: u8,
    pub tail: Vec<u8>,
}

impl Sequence {
    /// The tokens, for blocks of this size.
    pub fn tokens(&self, block_size: usize) -> Vec<Token> {
        let stem = usize::from(self.stem);
        let parts_at = stem * (block_size + 1) + block_size / 2;
        let len = (usize::from(self.quarters) * block_size).div_ceil(4);
        let token = |i: usize| {
            if stem == 0 || i < parts_at { i % 3 } else { stem + i % 2 }
        };
        let tail = self.tail.iter().map(|&t| Token::from(t));
        (0..len).map(|i| token(i) as Token).chain(tail).collect()
    }
}

/// How the reservation of an insert misses what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    OneTooMany,
    OneTooFew,
}

/// One call, or for `Serve` the calls of a whole request.
#[derive(Debug, Clone)]
pub enum Step {
    Match(usize, Sequence),
    Lease(usize, Sequence),
    Peek(usize, Sequence),
    Resume(usize, Sequence),
    /// From a lease, with a least number of tokens; what it finds is held as a lease.
    Partial(usize, Sequence, usize),
    Clone(usize),
    Release(usize),
    Reserve(usize),
    Abort(usize),
    /// From a lease, with a reservation made for it.
    Insert(usize, Sequence),
    /// From a lease, with the first blocks of a held reservation if it has enough.
    InsertFrom(usize, Sequence, usize),
    /// From a lease, these many blocks of one token behind it.
    Append(usize, u8, u8),
    InsertWrong(usize, Sequence, Fault),
    /// Match, insert, release both.
    Serve(usize, Sequence),
    Evict(usize),
    EvictOf(usize, usize),
    /// As `Evict`, by the verb that keeps the victims for a while.
    EvictInto(usize),
    /// What of a namespace was not used for so long.
    EvictIdle(usize, u8),
    /// One of the blocks in use.
    Invalidate(usize),
    Downgrade(usize),
    Upgrade(usize),
    Grow(usize),
    /// Of a lease's prefix, for so many units of time or for good.
    Prioritize(usize, i64, Option<u8>),
    Retain(usize, u8),
    ReleaseRetained(usize),
    Demote(usize),
    Renew(usize),
    CountUse(usize),
    /// So many units of time pass.
    Wait(u8),
    Settle,
    SetPolicy(PolicyKind),
    /// Limits of a namespace on cached and on pinned blocks, and its time to idle.
    SetQuota(usize, Option<usize>, Option<usize>, Option<u8>),
    Clear,
    DropNamespace(usize),
}
