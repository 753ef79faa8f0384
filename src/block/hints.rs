//! Hints for finding free blocks: a bit for each word of the pool's bitmap.
//!
//! One word of hints represents 4,096 blocks, so in a pool of a million blocks the next word that
//! may have free blocks is found in at most 256 steps, over 2 KiB.
//!
//! All bits are hints, and every access is relaxed: a bit may be set where no block is free, and
//! briefly clear where one is. A thread that was promised blocks and finds no bit set searches the
//! words themselves.

use crate::sync::gauge::{AtomicU64, Relaxed};

pub(super) const BITS: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Hints(Box<[AtomicU64]>);

impl Hints {
    /// Makes the hints for a pool of `words` words, of which the first `free` have free blocks.
    pub(super) fn new(words: usize, free: usize) -> Self {
        Self((0..words.div_ceil(BITS)).map(|i| AtomicU64::new(leading(free, i))).collect())
    }

    /// Marks that word `at` has free blocks.
    pub(super) fn set(&self, at: usize) {
        let (word, bit) = (&self.0[at / BITS], 1 << (at % BITS));
        // Most threads that give blocks back find it set: a load leaves the cache line shared.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Marks that word `at` had no free blocks. The caller then loads the word again, and sets the
    /// hint if it has some.
    pub(super) fn clear(&self, at: usize) {
        let (word, bit) = (&self.0[at / BITS], 1 << (at % BITS));
        if word.load(Relaxed) & bit != 0 {
            word.fetch_and(!bit, Relaxed);
        }
    }

    /// The first word after `at` that may have free blocks, or else the first of the pool; `None`
    /// if no bit is set.
    pub(super) fn after(&self, at: usize) -> Option<usize> {
        self.from(at + 1).or_else(|| self.from(0))
    }

    /// The first word at or after `at` that may have free blocks.
    fn from(&self, at: usize) -> Option<usize> {
        let mut wanted = u64::MAX << (at % BITS);
        (at / BITS..self.0.len()).find_map(|i| {
            let bits = self.0[i].load(Relaxed) & std::mem::replace(&mut wanted, u64::MAX);
            (bits != 0).then(|| i * BITS + bits.trailing_zeros() as usize)
        })
    }
}

/// Word `i` of a bitmap whose first `set` bits are set.
pub(super) fn leading(set: usize, i: usize) -> u64 {
    match set.saturating_sub(i * BITS) {
        bits if bits >= BITS => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

#[cfg(test)]
mod tests;
