//! The depths at which blocks end in a namespace's sequences. They are different for bigram keys.

use radixkv::Keys;

/// Block size and offset. A *depth* counts the tokens that identify a prefix: with bigram keys, one
/// more than the tokens that have keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    block_size: usize,
    offset: usize,
}

impl Grid {
    pub(crate) fn new(block_size: usize, keys: Keys) -> Self {
        Self { block_size, offset: offset(keys) }
    }

    /// The depth at which block number `block` ends.
    pub(crate) fn end_of(self, block: usize) -> usize {
        (block + 1) * self.block_size + self.offset
    }

    /// The number of whole blocks of a prefix.
    pub(crate) fn blocks(self, depth: usize) -> usize {
        depth.saturating_sub(self.offset) / self.block_size
    }
}

/// Number of tokens that identify a prefix, beyond the tokens with keys and values.
pub(crate) fn offset(keys: Keys) -> usize {
    usize::from(keys == Keys::Bigrams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_pairs_ends_one_token_later() {
        let (tokens, pairs) = (Grid::new(4, Keys::Tokens), Grid::new(4, Keys::Bigrams));
        assert_eq!((tokens.end_of(0), pairs.end_of(0)), (4, 5));
        for depth in 0..30 {
            assert_eq!(tokens.blocks(depth), (0..30).filter(|&block| tokens.end_of(block) <= depth).count());
            assert_eq!(pairs.blocks(depth), (0..30).filter(|&block| pairs.end_of(block) <= depth).count());
        }
    }
}
