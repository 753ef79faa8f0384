//! Which entries are taken: a tree of bits, in which a put finds a free entry anywhere.
//!
//! Each entry has a bit, 64 of them are a word. A bit of the level above says that all bits of one
//! word are set. Bits are hints: the state of an entry decides.
//!
//! - The owner of an entry sets its bit after claiming it, and clears it before giving it back. So
//!   an entry that is free and not claimed has a clear bit.
//! - *Set*: set the bit; if its word is full, set the bit above, and look at the word again: if a
//!   bit was cleared meanwhile, clear the bit above.
//! - *Clear*: clear the bit, then all bits above it, whatever they are.
//!
//! A bit that is clear for no reason costs a look at an entry, which sets it again. Only a process
//! that is killed leaves a bit that is set for no reason; the process that recovers it clears it.

use crate::{
    geometry::Geometry,
    memory::Memory,
    sync::{AcqRel, Acquire, AtomicU64, model_size},
};

/// Bits of a word that are used.
const BITS: usize = model_size(64, 2);

/// The bits of a region's entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    memory: &'a Memory,
    geometry: &'a Geometry,
}

/// The words that a tree of bits takes.
pub(crate) fn words(entries: usize) -> usize {
    let words = entries.div_ceil(BITS);
    if words > 1 { words + self::words(words) } else { words }
}

impl<'a> Taken<'a> {
    pub(crate) fn of(memory: &'a Memory, geometry: &'a Geometry) -> Self {
        Self { memory, geometry }
    }

    /// The first entry from `from` on that may be free.
    pub(crate) fn next_free(&self, from: usize) -> Option<usize> {
        let (mut level, mut at) = (0, from);
        loop {
            let (words, bits) = self.level(level);
            if at < bits {
                let before = (1 << (at % BITS)) - 1;
                let word = load(words, bits, at / BITS) | before;
                if word != u64::MAX {
                    at = at / BITS * BITS + word.trailing_ones() as usize;
                    if level == 0 {
                        return Some(at);
                    }
                    (level, at) = (level - 1, at * BITS);
                    continue;
                }
                if before == 0 && words.len() > 1 {
                    // The bit above was clear for no reason.
                    self.set_above(level, at);
                }
            }
            if words.len() == 1 {
                return None;
            }
            (level, at) = (level + 1, at / BITS + 1);
        }
    }

    /// Whether a bit of a free entry is set, so that no put finds it.
    pub(crate) fn is_hidden(&self, entry: usize) -> bool {
        let (mut level, mut at) = (0, entry);
        loop {
            let (words, bits) = self.level(level);
            let is_set = load(words, bits, at / BITS) >> (at % BITS) & 1 == 1;
            if is_set || words.len() == 1 {
                return is_set;
            }
            (level, at) = (level + 1, at / BITS);
        }
    }

    pub(crate) fn set(&self, entry: usize) {
        self.set_at(0, entry);
    }

    pub(crate) fn clear(&self, entry: usize) {
        self.clear_at(0, entry);
    }

    fn set_at(&self, level: usize, at: usize) {
        let (words, bits) = self.level(level);
        // AcqRel: E9.
        let seen = words[at / BITS].fetch_or(1 << (at % BITS), AcqRel) | 1 << (at % BITS);
        if seen | beyond(bits, at / BITS) == u64::MAX && words.len() > 1 {
            self.set_above(level, at);
        }
    }

    /// Sets the bit above a full word.
    fn set_above(&self, level: usize, at: usize) {
        self.set_at(level + 1, at / BITS);
        let (words, bits) = self.level(level);
        if load(words, bits, at / BITS) != u64::MAX {
            self.clear_at(level + 1, at / BITS);
        }
    }

    fn clear_at(&self, level: usize, at: usize) {
        let (words, _) = self.level(level);
        // AcqRel: E9.
        words[at / BITS].fetch_and(!(1 << (at % BITS)), AcqRel);
        if words.len() > 1 {
            self.clear_at(level + 1, at / BITS);
        }
    }

    /// The words of a level, and how many bits it has.
    fn level(&self, level: usize) -> (&'a [AtomicU64], usize) {
        let (mut start, mut bits) = (self.geometry.taken(), self.geometry.entries);
        for _ in 0..level {
            start += bits.div_ceil(BITS);
            bits = bits.div_ceil(BITS);
        }
        (self.memory.words(start..start + bits.div_ceil(BITS)), bits)
    }
}

/// A word, in which the bits beyond the last one are set.
fn load(words: &[AtomicU64], bits: usize, word: usize) -> u64 {
    // Acquire: E9.
    words[word].load(Acquire) | beyond(bits, word)
}

/// The bits of a word that are beyond the last one of its level, or not used.
fn beyond(bits: usize, word: usize) -> u64 {
    let used = (bits - (word * BITS).min(bits)).min(BITS);
    u64::MAX.checked_shl(used as u32).unwrap_or(0)
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;
    use crate::{Layout, sync::Relaxed};

    #[test]
    fn what_is_clear_is_found_in_trees_of_any_size() {
        let mut random = fastrand::Rng::with_seed(3);
        for entries in [1, 2, 63, 64, 65, 4095, 4096, 4097, 9000] {
            let geometry = Geometry::of(&Layout::new(1, 8, entries)).expect("a layout");
            let memory = Memory::anonymous(geometry.bytes()).expect("memory");
            let (taken, entries) = (Taken::of(&memory, &geometry), entries as usize);
            let mut model = vec![false; entries];
            for step in 0..3 * entries.min(3000) {
                let entry = random.usize(..entries);
                if step == entries.min(1000) {
                    (0..entries).for_each(|entry| taken.set(entry));
                    model.fill(true);
                } else if random.u32(..3) == 0 {
                    taken.set(entry);
                    model[entry] = true;
                } else {
                    taken.clear(entry);
                    model[entry] = false;
                }
                let from = random.usize(..entries);
                let expected = (from..entries).find(|entry| !model[*entry]);
                assert_eq!(taken.next_free(from), expected, "{from} of {entries}, step {step}");
                assert_eq!(taken.is_hidden(entry), model[entry]);
            }
        }
    }

    #[test]
    fn any_bits_end_a_search() {
        let geometry = Geometry::of(&Layout::new(1, 8, 9000)).expect("a layout");
        let memory = Memory::anonymous(geometry.bytes()).expect("memory");
        let (taken, mut random) = (Taken::of(&memory, &geometry), fastrand::Rng::with_seed(4));
        for _ in 0..200 {
            for word in memory.words(geometry.taken()..geometry.taken() + words(9000)) {
                word.store([0, u64::MAX, random.u64(..)][random.usize(..3)], Relaxed);
            }
            let mut from = 0;
            while let Some(entry) = taken.next_free(from) {
                assert!((from..9000).contains(&entry));
                from = entry + 1;
            }
        }
    }
}
