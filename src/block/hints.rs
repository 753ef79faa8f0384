//! Hints for finding free blocks: a tree of bits above the words of the pool's bitmap.
//!
//! A bit of the lowest level represents a word of the pool, and a bit of each further level a word
//! of the level below, up to a level of one word. So the next word that may have free blocks is
//! found in a few steps in a pool of any size.
//!
//! All bits are hints, and every access is relaxed: a bit may be set where no block is free, and
//! briefly clear where one is. A thread that was promised blocks and finds no bit set searches the
//! words themselves.

use crate::sync::gauge::{AtomicU64, Relaxed};

const BITS: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Hints {
    /// The lowest level first; the last level is one word.
    levels: Box<[Box<[AtomicU64]>]>,
}

impl Hints {
    /// Makes the hints for a pool of `words` words, of which the first `free` have free blocks.
    pub(super) fn new(words: usize, free: usize) -> Self {
        let mut levels = Vec::new();
        let (mut below, mut free) = (words, free);
        while levels.is_empty() || below > 1 {
            let bits = |i: usize| match free.saturating_sub(i * BITS) {
                bits if bits >= BITS => u64::MAX,
                bits => (1 << bits) - 1,
            };
            levels.push((0..below.div_ceil(BITS)).map(|i| AtomicU64::new(bits(i))).collect());
            (below, free) = (below.div_ceil(BITS), free.div_ceil(BITS));
        }
        Self { levels: levels.into() }
    }

    /// Marks that word `at` has free blocks.
    pub(super) fn set(&self, at: usize) {
        self.set_from(0, at);
    }

    /// Sets bit `at` of the level at `height`, and the bits above that lead to it.
    fn set_from(&self, height: usize, mut at: usize) {
        for level in &self.levels[height..] {
            let (word, bit) = (&level[at / BITS], 1 << (at % BITS));
            // Most threads that give blocks back find it set: a load leaves the cache line shared.
            if word.load(Relaxed) & bit != 0 {
                return;
            }
            word.fetch_or(bit, Relaxed);
            at /= BITS;
        }
    }

    /// Marks that word `at` had no free blocks. The caller then loads the word again, and sets the
    /// hint if it has some.
    pub(super) fn clear(&self, at: usize) {
        self.clear_from(0, at);
    }

    /// Clears bit `at` of the level at `height`, and each bit above whose word is then zero.
    fn clear_from(&self, height: usize, mut at: usize) {
        for height in height..self.levels.len() {
            let (word, bit) = (&self.levels[height][at / BITS], 1 << (at % BITS));
            if word.load(Relaxed) & bit == 0 {
                return;
            }
            let left = word.fetch_and(!bit, Relaxed) & !bit;
            // Another thread may have set a bit below and found this one set.
            if height > 0 && self.levels[height - 1][at].load(Relaxed) != 0 {
                return self.set_from(height, at);
            }
            if left != 0 {
                return;
            }
            at /= BITS;
        }
    }

    /// The first word after `at` that may have free blocks, or else the first of the pool; `None`
    /// if no bit is set.
    pub(super) fn after(&self, at: usize) -> Option<usize> {
        self.from(at + 1).or_else(|| self.from(0))
    }

    /// The first word at or after `at` that may have free blocks.
    fn from(&self, at: usize) -> Option<usize> {
        let (mut height, mut next) = (0, at);
        while let Some(level) = self.levels.get(height) {
            let bits = level.get(next / BITS)?.load(Relaxed) & u64::MAX << (next % BITS);
            if bits == 0 {
                (height, next) = (height + 1, next / BITS + 1);
                continue;
            }
            match self.lowest(height, next / BITS * BITS + bits.trailing_zeros() as usize) {
                Ok(word) => return Some(word),
                // The bit leads to nothing: clear it and search again.
                Err(empty) => {
                    self.clear_from(empty.0, empty.1);
                    (height, next) = (0, at);
                }
            }
        }
        None
    }

    /// The first word of the pool below bit `at` of a level.
    ///
    /// # Errors
    ///
    /// Height and index of a bit with no set bit below it: a thread set it after another one had
    /// cleared the lower bit.
    fn lowest(&self, height: usize, mut at: usize) -> Result<usize, (usize, usize)> {
        for below in (0..height).rev() {
            let bits = self.levels[below][at].load(Relaxed);
            if bits == 0 {
                return Err((below + 1, at));
            }
            at = at * BITS + bits.trailing_zeros() as usize;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests;
