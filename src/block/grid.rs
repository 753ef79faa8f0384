//! Where blocks end in a sequence of tokens. Divides by the block size with a multiplication: a lookup divides several
//! times, and a divide instruction takes as long as comparing a hundred tokens.
//!
//! In a namespace of bigrams the keys are pairs of neighbouring tokens and the tree holds raw
//! tokens: equal pairs up to `i` are equal tokens up to `i + 1`, so only the ends of blocks differ,
//! by an offset of one. Depths are tokens compared; callers see tokens filled, one less. The handle
//! and the lease have the offset, and the evictor reads it from the run's space.

/// Blocks of one size along the depths of a tree: block `k` ends at `offset + (k + 1) * tokens`.
///
/// The offset is zero where tokens are keys, and one where pairs of neighbouring tokens are: the last pair of a block needs
/// one token beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    tokens: u32,
    offset: u32,
    /// The upper 64 bits of `n * reciprocal` are `n / tokens`: exact for 32-bit operands (Lemire, Kaser, Kurz:
    /// "Faster remainder by direct computation", 2019). Zero for a size of one, whose reciprocal needs a bit more.
    reciprocal: u64,
}

impl Grid {
    /// Blocks of `tokens` tokens, at least one, without an offset.
    pub(crate) fn new(tokens: u32) -> Self {
        let reciprocal = if tokens == 1 { 0 } else { u64::MAX / u64::from(tokens) + 1 };
        Self { tokens, offset: 0, reciprocal }
    }

    /// The same blocks with another offset.
    #[inline]
    pub(crate) fn with_offset(self, offset: u32) -> Self {
        Self { offset, ..self }
    }

    /// Tokens in a block.
    #[inline]
    pub(crate) fn tokens(self) -> usize {
        self.tokens as usize
    }

    #[inline]
    pub(crate) fn offset(self) -> u32 {
        self.offset
    }

    /// Whole blocks in the first `depth` tokens, which are below 2^32.
    #[inline]
    pub(crate) fn blocks(self, depth: usize) -> usize {
        debug_assert!(u32::try_from(depth).is_ok(), "{depth} tokens are more than depths can name");
        let filled = depth.saturating_sub(self.offset as usize);
        if self.reciprocal == 0 {
            return filled;
        }
        ((filled as u128 * u128::from(self.reciprocal)) >> 64) as usize
    }

    /// Depth at which `blocks` blocks end; zero for none.
    #[inline]
    pub(crate) fn end_of(self, blocks: usize) -> usize {
        let offset = if blocks == 0 { 0 } else { self.offset as usize };
        blocks * self.tokens() + offset
    }

    /// The deepest boundary in the first `depth` tokens.
    #[inline]
    pub(crate) fn boundary(self, depth: usize) -> usize {
        self.end_of(self.blocks(depth))
    }

    /// Tokens whose keys and values the blocks up to this boundary hold.
    #[inline]
    pub(crate) fn filled(self, boundary: usize) -> usize {
        boundary.saturating_sub(self.offset as usize)
    }

    /// Depth of the boundary up to which `filled` tokens have keys and values.
    #[inline]
    pub(crate) fn depth_of(self, filled: usize) -> usize {
        if filled == 0 { 0 } else { filled + self.offset as usize }
    }
}

#[cfg(test)]
mod tests;
