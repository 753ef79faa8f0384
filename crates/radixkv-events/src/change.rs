//! Changes of a cache, as the cache tells them: in block ids.

use crate::event::{BlockId, Scope, Token};

/// A place where a cache keeps blocks, by its position in [`RecorderBuilder::media`](crate::RecorderBuilder::media).
pub type Tier = usize;

/// A change of a cache; changes are recorded in the order in which the cache made them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change<'a> {
    /// Blocks of one sequence were stored.
    Stored {
        /// Where.
        tier: Tier,
        /// The scope of the blocks.
        scope: &'a Scope,
        /// The block before the first of them, and where it is; `None` at the start of a sequence.
        parent: Option<(Tier, BlockId)>,
        /// The names of the blocks, in the order of the sequence.
        blocks: &'a [BlockId],
        /// Their tokens; of blocks of pairs, the one behind them too.
        tokens: &'a [Token],
        /// Whether they are blocks of pairs of neighbouring tokens ([`Stored::bigrams`](crate::Stored::bigrams)). In one scope,
        /// blocks of pairs and of tokens continue only their own kind.
        bigrams: bool,
    },
    /// Blocks left a tier. One trim is one change: its blocks from the end of the sequence on.
    Removed {
        /// Which.
        tier: Tier,
        /// The blocks, children before their parents.
        blocks: &'a [BlockId],
    },
    /// All blocks of a scope were removed, in all tiers.
    ScopeCleared {
        /// Whose blocks.
        scope: &'a Scope,
        /// Whether its blocks of pairs are meant; if not, those of tokens.
        bigrams: bool,
    },
    /// All blocks were removed.
    Cleared,
}

/// Why a change was not recorded. Nothing of it was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The tier has no medium: name it when the recorder is built.
    #[error("tier {tier} is out of range: the recorder has {tiers} tiers")]
    UnknownTier {
        /// The tier of the change.
        tier: Tier,
        /// Tiers that have a medium.
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
    #[error("block {block} of tier {tier} is of another scope or kind than the blocks after it")]
    OtherScope {
        /// The tier.
        tier: Tier,
        /// The block.
        block: BlockId,
    },
    /// The number of tokens does not fit the blocks: blocks are whole, and those of pairs need one
    /// token more.
    #[error("{tokens} tokens for {blocks} blocks of {block_size}")]
    Tokens {
        /// Tokens of the change.
        tokens: usize,
        /// Blocks of the change.
        blocks: usize,
        /// Tokens per block.
        block_size: usize,
    },
}
