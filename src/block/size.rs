//! The block size, and dividing by it without a division: lookups divide several times, and a divide instruction takes
//! as long as comparing a hundred tokens.

use std::ops::{Div, Mul, Rem};

/// Tokens in a block, at least one; divides token counts below 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockSize {
    tokens: u32,
    /// The upper 64 bits of `n * reciprocal` are `n / tokens`: exact for 32-bit operands (Lemire, Kaser, Kurz:
    /// "Faster remainder by direct computation", 2019). Zero for a size of one, whose reciprocal needs a bit more.
    reciprocal: u64,
}

impl BlockSize {
    /// `tokens` is not zero.
    pub(crate) fn new(tokens: u32) -> Self {
        let reciprocal = if tokens == 1 { 0 } else { u64::MAX / u64::from(tokens) + 1 };
        Self { tokens, reciprocal }
    }

    pub(crate) fn tokens(self) -> usize {
        self.tokens as usize
    }
}

impl Div<BlockSize> for usize {
    type Output = usize;

    /// Whole blocks in so many tokens.
    #[inline]
    fn div(self, size: BlockSize) -> usize {
        debug_assert!(u32::try_from(self).is_ok(), "{self} tokens are more than depths can name");
        if size.reciprocal == 0 {
            return self;
        }
        ((self as u128 * u128::from(size.reciprocal)) >> 64) as usize
    }
}

impl Rem<BlockSize> for usize {
    type Output = usize;

    /// Tokens beyond the last whole block.
    #[inline]
    fn rem(self, size: BlockSize) -> usize {
        self - self / size * size
    }
}

impl Mul<BlockSize> for usize {
    type Output = usize;

    /// Tokens in so many blocks.
    #[inline]
    fn mul(self, size: BlockSize) -> usize {
        self * size.tokens()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_as_division_does() {
        let largest = u32::MAX as usize;
        for size in (1..=100).chain([255, 256, 257, 4096, 65_537, u32::MAX / 2, u32::MAX - 1, u32::MAX]) {
            let by = BlockSize::new(size);
            let size = size as usize;
            let edges = (0..200).flat_map(|i| [i * size, (i * size).saturating_sub(1), i * size + 1]);
            for n in edges.chain([largest, largest - 1, largest / 2, 1 << 31]).filter(|n| *n <= largest) {
                assert_eq!((n / by, n % by), (n / size, n % size), "{n} / {size}");
            }
        }
    }
}
