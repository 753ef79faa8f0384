//! Changes of a cache, as the cache tells them: in block ids.

use crate::event::{BlockId, Scope, Token};

/// A place where a cache keeps blocks, by its position in [`RecorderBuilder::media`](crate::RecorderBuilder::media).
pub type Tier = usize;

/// A change of a cache, in the order in which the cache's accounts took it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change<'a> {
    /// Blocks of one sequence were stored.
    Stored {
        /// Where.
        tier: Tier,
        /// Whose blocks they are.
        scope: &'a Scope,
        /// The block before the first of them, and where it is; `None` at the start of a sequence.
        parent: Option<(Tier, BlockId)>,
        /// The blocks, from the one that is nearest to the start of the sequence on.
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
    /// Everything of a scope was dropped, in all tiers.
    ScopeCleared {
        /// Whose blocks.
        scope: &'a Scope,
        /// Whether its blocks of pairs are meant; if not, those of tokens.
        bigrams: bool,
    },
    /// Everything there was was dropped.
    Cleared,
}

/// Why a change was not recorded. Nothing of it was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Name the tier's medium when the recorder is built.
    #[error("tier {tier} of {tiers}")]
    UnknownTier {
        /// The tier of the change.
        tier: Tier,
        /// Tiers that have a medium.
        tiers: usize,
    },
    /// The change before which the block was stored is missing: record from an empty cache on, or from a list of what
    /// is held.
    #[error("block {block} of tier {tier} is not held")]
    NotHeld {
        /// The tier.
        tier: Tier,
        /// The block.
        block: BlockId,
    },
    /// The block's removal is missing.
    #[error("block {block} of tier {tier} is held already")]
    Held {
        /// The tier.
        tier: Tier,
        /// The block.
        block: BlockId,
    },
    /// A sequence is of one scope, and all its blocks are of tokens, or all of pairs.
    #[error("block {block} of tier {tier} is of another scope or kind than the blocks after it")]
    OtherScope {
        /// The tier.
        tier: Tier,
        /// The block.
        block: BlockId,
    },
    /// Blocks are stored whole; those of pairs have one token more.
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
