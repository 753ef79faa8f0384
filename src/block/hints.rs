//! Where free blocks may be: a tree of bits above the words of the pool.
//!
//! A bit of the lowest level stands for a word of the pool, a bit of each further level for a word of the level below,
//! up to a level of one word. So the next word that may have free blocks is found in a few steps, however large the pool is.
//!
//! All of it is a hint, and every access is relaxed: a bit may be set where nothing is free, and for a moment clear where
//! something is. A thread that was promised blocks and finds no bit looks at the words themselves.

use crate::sync::gauge::{AtomicU64, Relaxed};

const BITS: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Hints {
    /// From the words of the pool upwards; the last level is one word.
    levels: Box<[Box<[AtomicU64]>]>,
}

impl Hints {
    /// For a pool of `words`, all with free blocks or none.
    pub(super) fn new(words: usize, free: bool) -> Self {
        let mut levels = Vec::new();
        let mut below = words;
        while levels.is_empty() || below > 1 {
            let bits = |i: usize| match below - i * BITS {
                _ if !free => 0,
                bits if bits >= BITS => u64::MAX,
                bits => (1 << bits) - 1,
            };
            levels.push((0..below.div_ceil(BITS)).map(|i| AtomicU64::new(bits(i))).collect());
            below = below.div_ceil(BITS);
        }
        Self { levels: levels.into() }
    }

    /// Word `at` has free blocks.
    pub(super) fn set(&self, mut at: usize) {
        for level in &self.levels {
            let (word, bit) = (&level[at / BITS], 1 << (at % BITS));
            // Most givers find it set: a load leaves the line shared.
            if word.load(Relaxed) & bit != 0 {
                return;
            }
            word.fetch_or(bit, Relaxed);
            at /= BITS;
        }
    }

    /// Word `at` was seen without free blocks. The caller looks at it again, and sets the hint anew if it has some now.
    pub(super) fn clear(&self, mut at: usize) {
        for level in &self.levels {
            let (word, bit) = (&level[at / BITS], 1 << (at % BITS));
            if word.load(Relaxed) & bit == 0 || word.fetch_and(!bit, Relaxed) & !bit != 0 {
                return;
            }
            at /= BITS;
        }
    }

    /// The first word beyond `at` that may have free blocks, or the first of all; nothing if no bit is set.
    pub(super) fn after(&self, at: usize) -> Option<usize> {
        self.from(at + 1).or_else(|| self.from(0))
    }

    /// The first word from `at` on that may have free blocks.
    fn from(&self, mut at: usize) -> Option<usize> {
        for (height, level) in self.levels.iter().enumerate() {
            let bits = level.get(at / BITS)?.load(Relaxed) & u64::MAX << (at % BITS);
            if bits != 0 {
                return self.lowest(height, at / BITS * BITS + bits.trailing_zeros() as usize);
            }
            at = at / BITS + 1;
        }
        None
    }

    /// The first word of the pool below bit `at` of a level; nothing if another thread has just cleared its hints.
    fn lowest(&self, height: usize, mut at: usize) -> Option<usize> {
        for level in self.levels[..height].iter().rev() {
            let bits = level[at].load(Relaxed);
            if bits == 0 {
                return None;
            }
            at = at * BITS + bits.trailing_zeros() as usize;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_hint_is_found_over_four_decades() {
        for words in [1, 2, 63, 64, 65, 4_095, 4_096, 4_097, 300_000] {
            let hints = Hints::new(words, false);
            assert_eq!(hints.after(0), None);
            let set: Vec<usize> =
                [0, 1, words / 3, words / 2, words - 1].into_iter().filter(|at| *at < words).collect();
            for (i, &at) in set.iter().enumerate() {
                hints.set(at);
                let mut known = set[..=i].to_vec();
                known.sort_unstable();
                for from in [0, at.saturating_sub(1), at, words - 1] {
                    let next = known.iter().find(|hint| **hint > from).or(known.first());
                    assert_eq!(hints.after(from), next.copied(), "{words} words, after {from}");
                }
            }
            set.iter().for_each(|&at| hints.clear(at));
            assert_eq!(hints.after(words / 2), None, "{words} words");
        }
    }

    #[test]
    fn all_hints_are_set_where_all_is_free() {
        for words in [1, 64, 65, 5_000] {
            let hints = Hints::new(words, true);
            (0..words).for_each(|at| assert_eq!(hints.after(at), Some((at + 1) % words)));
        }
    }
}
