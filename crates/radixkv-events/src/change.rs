//! The input of a [`Recorder`](crate::Recorder): changes of a cache, with blocks given by their
//! ids.

use crate::event::{BlockId, Scope, Token};

/// An index of a tier (a place where a cache keeps blocks): its position in
/// [`RecorderBuilder::media`](crate::RecorderBuilder::media).
pub type Tier = usize;

/// A change of a cache. Record changes in the order in which the cache made them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change<'a> {
    /// Blocks of one sequence were stored.
    Stored {
        /// The tier that stores them.
        tier: Tier,
        /// The scope of the blocks.
        scope: &'a Scope,
        /// The block before the first of them, and its tier; `None` at the start of a sequence.
        parent: Option<(Tier, BlockId)>,
        /// The ids of the blocks, in the order of the sequence.
        blocks: &'a [BlockId],
        /// The tokens of the blocks; with `bigrams`, also the one token after them.
        tokens: &'a [Token],
        /// Whether the blocks hold pairs of neighbouring tokens
        /// ([`Stored::bigrams`](crate::Stored::bigrams)). A block of pairs continues only blocks of
        /// pairs, and a block of tokens only blocks of tokens.
        bigrams: bool,
    },
    /// Blocks left a tier. One trim is one change, with the blocks from the end of the sequence
    /// backwards.
    Removed {
        /// The tier that they left.
        tier: Tier,
        /// The blocks, children before their parents.
        blocks: &'a [BlockId],
    },
    /// All blocks of a scope were removed, in all tiers.
    ScopeCleared {
        /// The scope.
        scope: &'a Scope,
        /// Whether the scope's blocks of pairs were removed; if false, its blocks of tokens.
        bigrams: bool,
    },
    /// All blocks were removed.
    Cleared,
}

/// Why a change was not recorded. A rejected change has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The tier has no medium: name it when the recorder is built.
    #[error("tier {tier} is out of range: the recorder has {tiers} tiers")]
    UnknownTier {
        /// The tier of the change.
        tier: Tier,
        /// The number of tiers with a medium.
        tiers: usize,
    },
    /// The block was never recorded as stored: start recording with an empty cache, or with a list
    /// of its blocks.
    #[error("block {block} of tier {tier} is not held")]
    NotHeld {
        /// The tier.
        tier: Tier,
        /// The block.
        block: BlockId,
    },
    /// The block is already recorded as stored: a removal is missing.
    #[error("block {block} of tier {tier} is already held")]
    Held {
        /// The tier.
        tier: Tier,
        /// The block.
        block: BlockId,
    },
    /// A sequence mixes scopes, or blocks of tokens with blocks of pairs.
    #[error("block {block} of tier {tier} has another scope or kind than the blocks after it")]
    OtherScope {
        /// The tier.
        tier: Tier,
        /// The block.
        block: BlockId,
    },
    /// The number of tokens does not fit the blocks: each block needs `block_size` tokens, and
    /// blocks of pairs need one more in all.
    #[error("{tokens} tokens do not match {blocks} blocks of {block_size}")]
    Tokens {
        /// Tokens of the change.
        tokens: usize,
        /// Blocks of the change.
        blocks: usize,
        /// Tokens per block.
        block_size: usize,
    },
}
