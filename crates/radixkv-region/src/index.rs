//! The index: buckets of cells, each a hint where an entry is. The entry's record is the truth; a cell that leads to an entry
//! of another key, or to none, is dead, and is used again by the next thread that wants a cell of its bucket.
//!
//! | bits of a cell | field | meaning |
//! |---|---|---|
//! | 0 to 31 | entry | its number and one more; 0 in an empty cell |
//! | 32 to 63 | tag | bits of the key, so that most other keys are not looked at |

use crate::{
    geometry::{CELLS, Geometry},
    memory::Memory,
    sync::{Acquire, AtomicU64, Relaxed, Release},
};

/// How often a thread looks again for a cell.
const ROUNDS: usize = 4 * CELLS;

/// The index of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index<'a> {
    memory: &'a Memory,
    geometry: &'a Geometry,
}

impl<'a> Index<'a> {
    pub(crate) fn of(memory: &'a Memory, geometry: &'a Geometry) -> Self {
        Self { memory, geometry }
    }

    /// The entries that may hold a key: at most one for each cell of its bucket.
    pub(crate) fn candidates(&self, hash: [u64; 2]) -> impl Iterator<Item = usize> + use<'a> {
        let entries = self.geometry.entries;
        // Acquire: E4.
        let cells = self.bucket(hash).iter().map(|cell| cell.load(Acquire));
        cells.filter(move |cell| cell >> 32 == tag(hash)).filter_map(move |cell| entry_of(cell, entries))
    }

    /// Lets a cell lead to an entry; false if one leads to another entry of the same key already. `hash_of` says which key an
    /// entry has, if it has one. Where the bucket is full of other keys, one of them loses its cell.
    ///
    /// All threads take the first empty cell: so two that put one key at one time want the same, and one of them sees
    /// the other.
    pub(crate) fn insert(&self, hash: [u64; 2], entry: usize, hash_of: impl Fn(usize) -> Option<[u64; 2]>) -> bool {
        let bucket = self.bucket(hash);
        // Each round is lost to a thread that has changed the bucket. The last one ends it: an entry without a cell is not
        // found, no more.
        for _ in 0..ROUNDS {
            let (mut empty, mut dead) = (None, None);
            for word in bucket {
                // Acquire: E4.
                let seen = word.load(Acquire);
                let other = entry_of(seen, self.geometry.entries).filter(|other| *other != entry);
                match other.and_then(&hash_of) {
                    Some(other) if other == hash => return false,
                    Some(other) if self.number(other) == self.number(hash) && tag(other) == seen >> 32 => {}
                    _ if seen == 0 => empty = empty.or(Some((word, seen))),
                    _ => dead = dead.or(Some((word, seen))),
                }
            }
            let displaced = || {
                let word = &bucket[hash[0] as usize % CELLS];
                // Relaxed: a hint is replaced, whatever it says.
                (word, word.load(Relaxed))
            };
            let (word, seen) = empty.or(dead).unwrap_or_else(displaced);
            // Release: E4.
            if word.compare_exchange(seen, cell(hash, entry), Release, Relaxed).is_ok() {
                break;
            }
        }
        true
    }

    /// Empties the cells that lead from a key to an entry. The entry is the caller's.
    pub(crate) fn remove(&self, hash: [u64; 2], entry: usize) {
        for word in self.bucket(hash) {
            // Relaxed, both: a hint that goes; a thread that still sees it looks at the entry.
            if word.load(Relaxed) == cell(hash, entry) {
                let _ = word.compare_exchange(cell(hash, entry), 0, Relaxed, Relaxed);
            }
        }
    }

    fn bucket(&self, hash: [u64; 2]) -> &'a [AtomicU64] {
        self.memory.words(self.geometry.bucket(self.number(hash)))
    }

    fn number(&self, hash: [u64; 2]) -> usize {
        (hash[0] >> 8) as usize & (self.geometry.buckets - 1)
    }
}

fn tag(hash: [u64; 2]) -> u64 {
    hash[1] >> 32
}

fn cell(hash: [u64; 2], entry: usize) -> u64 {
    tag(hash) << 32 | (entry as u64 + 1)
}

fn entry_of(cell: u64, entries: usize) -> Option<usize> {
    let entry = (cell as u32 as usize).checked_sub(1)?;
    (entry < entries).then_some(entry)
}
