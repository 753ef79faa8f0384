//! Verifies that the blocks of a hit were filled with the tokens that were matched.
//!
//! A thread that fills a block writes a *stamp* for it: a checksum of every token from the start of
//! the sequence to the end of the block. A thread that hits the block computes the stamp of its own
//! tokens and compares the two. The stamps take the place of the KV data: like it, they are written
//! between reserve and insert, and read under a lease.

use std::{
    collections::TryReserveError,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use radixkv::{BlockId, Token};

use crate::tokens::splitmix64;

/// A block of a hit whose tokens differ from the matched tokens.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let replayed = replay(&CLASSES[2].trace(0), &ReplayConfig::default().verify(true), &|| {})?;
/// assert_eq!(replayed.mismatches, []);
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Row of the request, counted from 0.
    pub row: usize,
    /// Index of the block in the request, counted from 0.
    pub at: usize,
    /// Id of the block.
    pub block: BlockId,
}

/// Number of stamps in a chunk, which is allocated when its first stamp is written: a cache may
/// have billions of blocks.
const CHUNK: usize = 1 << 14;

type Chunk = OnceLock<Vec<AtomicU64>>;

/// One stamp for each block of the cache; zero until it is written.
#[derive(Debug)]
pub(super) struct Stamps {
    chunks: Vec<Chunk>,
    capacity: usize,
}

impl Stamps {
    pub(super) fn new(capacity: usize) -> Result<Self, TryReserveError> {
        let (mut chunks, count) = (Vec::new(), capacity.div_ceil(CHUNK));
        chunks.try_reserve_exact(count)?;
        chunks.resize_with(count, Chunk::new);
        Ok(Self { chunks, capacity })
    }

    /// Writes the stamps of blocks that the caller has reserved.
    pub(super) fn write(&self, blocks: &[BlockId], stamps: &[u64]) -> Result<(), TryReserveError> {
        for (&block, &stamp) in blocks.iter().zip(stamps) {
            if let Some(chunk) = self.chunks.get(block as usize / CHUNK).filter(|chunk| chunk.get().is_none()) {
                // If another thread has set the chunk in the meantime, that chunk stays.
                let _ = chunk.set(blank()?);
            }
            if let Some(cell) = self.cell(block) {
                // Relaxed: a reader got the block from a match that follows this block's insert.
                cell.store(stamp, Relaxed);
            }
        }
        Ok(())
    }

    /// Indices of the leased blocks whose stamp is not the expected one, or that have no
    /// counterpart; a block beyond the capacity is always among them.
    pub(super) fn check<'a>(&'a self, blocks: &'a [BlockId], stamps: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
        let wrong = move |at: &usize| {
            let cell = blocks.get(*at).and_then(|&block| self.cell(block));
            // Relaxed: as above; no thread writes the stamp of a leased block.
            cell.map(|cell| cell.load(Relaxed)) != stamps.get(*at).copied()
        };
        (0..blocks.len().max(stamps.len())).filter(wrong)
    }

    /// The stamp of a block; `None` if its chunk is not allocated or the block is beyond the
    /// capacity.
    fn cell(&self, block: BlockId) -> Option<&AtomicU64> {
        let block = Some(block as usize).filter(|&block| block < self.capacity)?;
        self.chunks.get(block / CHUNK)?.get()?.get(block % CHUNK)
    }
}

fn blank() -> Result<Vec<AtomicU64>, TryReserveError> {
    let mut chunk = Vec::new();
    chunk.try_reserve_exact(CHUNK)?;
    chunk.resize_with(CHUNK, AtomicU64::default);
    Ok(chunk)
}

/// Computes the stamps of all whole blocks of `tokens`.
pub(super) fn stamp(tokens: &[Token], block_size: usize, stamps: &mut Vec<u64>) -> Result<(), TryReserveError> {
    stamps.clear();
    stamps.try_reserve(tokens.len() / block_size)?;
    let mut state = 0;
    for block in tokens.chunks_exact(block_size) {
        for &token in block {
            state = splitmix64(state ^ u64::from(token));
        }
        stamps.push(state);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_knows_every_token_before_it() {
        let tokens: Vec<Token> = (0..70).collect();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        stamp(&tokens, 16, &mut a).expect("memory");
        assert_eq!(a.len(), 4);
        let mut other = tokens.clone();
        other[17] ^= 1;
        stamp(&other, 16, &mut b).expect("memory");
        assert_eq!(a[0], b[0]);
        assert!((1..4).all(|at| a[at] != b[at]));
    }

    // Holds: RP10.
    #[test]
    fn wrong_blocks_are_found() {
        let stamps = Stamps::new(4).expect("memory");
        stamps.write(&[3, 1, 4], &[30, 10, 40]).expect("memory");
        assert_eq!(stamps.check(&[3, 1], &[30, 10]).count(), 0);
        assert_eq!(stamps.check(&[1, 3], &[30, 10]).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(stamps.check(&[3, 9], &[30, 10]).collect::<Vec<_>>(), [1], "no such block");
        assert_eq!(stamps.check(&[4], &[40]).collect::<Vec<_>>(), [0], "beyond the capacity");
        assert_eq!(stamps.check(&[3], &[30, 10]).collect::<Vec<_>>(), [1], "a block too few");
        assert_eq!(stamps.check(&[3, 1, 1], &[30, 10]).collect::<Vec<_>>(), [2], "a block too many");
    }

    #[test]
    fn the_largest_cache_takes_memory_for_what_is_written() {
        let stamps = Stamps::new(BlockId::MAX as usize).expect("memory");
        stamps.write(&[0, BlockId::MAX - 1], &[1, 2]).expect("memory");
        assert_eq!(stamps.check(&[BlockId::MAX - 1, 0], &[2, 1]).count(), 0);
        assert_eq!(stamps.chunks.iter().filter(|chunk| chunk.get().is_some()).count(), 2);
    }
}
