//! Computes the depths at which blocks end in a sequence of tokens. It divides by the block size
//! with a multiplication, because a lookup divides several times, and one divide instruction takes
//! as long as comparing a hundred tokens.
//!
//! In a namespace of bigrams the keys are pairs of neighbouring tokens, but the tree holds single
//! tokens. Equal pairs up to `i` are equal tokens up to `i + 1`, so only the ends of blocks differ,
//! by an offset of one. Depths count compared tokens. Callers see one fewer, the *filled* tokens
//! (with keys and values). Handles and leases keep the offset; the evictor reads it from the run's
//! space.

/// The blocks of one size along the depths of a tree: block `k` ends at
/// `offset + (k + 1) * tokens`.
///
/// The offset is zero if tokens are keys, and one if pairs of neighbouring tokens are keys: the
/// last pair of a block needs one token beyond the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    tokens: u32,
    offset: u32,
    /// The upper 64 bits of `n * reciprocal` are `n / tokens`, exactly for 32-bit operands (Lemire,
    /// Kaser, Kurz: "Faster remainder by direct computation", 2019). Zero for a block size of one,
    /// whose reciprocal would need one more bit.
    reciprocal: u64,
}

impl BlockLayout {
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

    /// Number of tokens in a block.
    #[inline]
    pub(crate) fn tokens(self) -> usize {
        self.tokens as usize
    }

    #[inline]
    pub(crate) fn offset(self) -> u32 {
        self.offset
    }

    /// Number of whole blocks in the first `depth` tokens; `depth` is below 2^32.
    #[inline]
    pub(crate) fn blocks(self, depth: usize) -> usize {
        debug_assert!(u32::try_from(depth).is_ok(), "{depth} tokens exceed the maximum depth");
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

    /// Number of tokens whose keys and values are in the blocks up to this boundary.
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
