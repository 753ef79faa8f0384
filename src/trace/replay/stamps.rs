//! Whether a hit is what it claims to be.
//!
//! Whoever fills a block writes a stamp beside it that depends on every token from the start of the sequence to the
//! end of the block. Whoever hits the block computes the stamp its own tokens should have and compares. The stamps
//! stand for the KV data: they are written between reserve and insert and read under a lease, exactly as it would be.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{BlockId, Token, trace::tokens::splitmix64};

/// A hit whose block held something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Row of the request that was misled.
    pub row: usize,
    /// Which block of the request, from 0.
    pub at: usize,
    /// The block.
    pub block: BlockId,
}

/// One stamp for each block of the cache; zero where nothing was written.
#[derive(Debug)]
pub(super) struct Stamps(Vec<AtomicU64>);

impl Stamps {
    pub(super) fn new(capacity: usize) -> Self {
        Self((0..capacity).map(|_| AtomicU64::new(0)).collect())
    }

    /// Stamps blocks that the caller has reserved.
    pub(super) fn write(&self, blocks: &[BlockId], stamps: &[u64]) {
        for (&block, &stamp) in blocks.iter().zip(stamps) {
            if let Some(cell) = self.0.get(block as usize) {
                // Relaxed: whoever reads it got the block from a match that follows this block's insert.
                cell.store(stamp, Relaxed);
            }
        }
    }

    /// Places at which leased blocks do not carry the stamps they should; a block beyond the capacity never does.
    pub(super) fn check<'a>(&'a self, blocks: &'a [BlockId], stamps: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
        let wrong = move |at: &usize| {
            let cell = blocks.get(*at).and_then(|&block| self.0.get(block as usize));
            // Relaxed: as above; a lease keeps it from being written again.
            cell.map(|cell| cell.load(Relaxed)) != stamps.get(*at).copied()
        };
        (0..blocks.len().max(stamps.len())).filter(wrong)
    }
}

/// Computes the stamps of all whole blocks of `tokens`.
pub(super) fn stamp(tokens: &[Token], block_size: usize, stamps: &mut Vec<u64>) {
    stamps.clear();
    let mut state = 0;
    for block in tokens.chunks_exact(block_size) {
        for &token in block {
            state = splitmix64(state ^ u64::from(token));
        }
        stamps.push(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_knows_every_token_before_it() {
        let tokens: Vec<Token> = (0..70).collect();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        stamp(&tokens, 16, &mut a);
        assert_eq!(a.len(), 4);
        let mut other = tokens.clone();
        other[17] ^= 1;
        stamp(&other, 16, &mut b);
        assert_eq!(a[0], b[0]);
        assert!((1..4).all(|at| a[at] != b[at]));
    }

    #[test]
    fn wrong_blocks_are_found() {
        let stamps = Stamps::new(4);
        stamps.write(&[3, 1], &[30, 10]);
        assert_eq!(stamps.check(&[3, 1], &[30, 10]).count(), 0);
        assert_eq!(stamps.check(&[1, 3], &[30, 10]).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(stamps.check(&[3, 9], &[30, 10]).collect::<Vec<_>>(), [1], "no such block");
        assert_eq!(stamps.check(&[3], &[30, 10]).collect::<Vec<_>>(), [1], "a block too few");
        assert_eq!(stamps.check(&[3, 1, 1], &[30, 10]).collect::<Vec<_>>(), [2], "a block too many");
    }
}
