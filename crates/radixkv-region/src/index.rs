//! The index: buckets of cells, each a hint to the entry that holds a key. Lookups, puts and
//! removals of `region` use it.
//!
//! The entry's record decides. A cell that leads to an entry of another key, or to no entry, is
//! dead; the next thread that needs a cell in its bucket reuses it. A key has two buckets; the
//! second is used when the first has no cell left.
//!
//! | bits of a cell | field | meaning |
//! |---|---|---|
//! | 0 to 31 | entry | its number plus 1; 0 in an empty cell |
//! | 32 to 63 | tag | bits of the key's hash, so that entries of most other keys are skipped |

use crate::{
    geometry::{CELLS, Geometry},
    memory::Memory,
    sync::{Acquire, AtomicU64, Relaxed, Release},
};

/// How often a thread tries again to write a cell.
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

    /// The entries that may hold a key: at most one for each cell of its buckets.
    pub(crate) fn candidates(&self, hash: [u64; 2]) -> impl Iterator<Item = usize> + use<'a> {
        let entries = self.geometry.entries;
        // Acquire: E4.
        let cells = self.cells(hash).map(|cell| cell.load(Acquire));
        cells.filter(move |cell| cell >> 32 == tag(hash)).filter_map(move |cell| entry_of(cell, entries))
    }

    /// Writes a cell that leads to an entry; false if another entry of the same key has one
    /// already. `hash_of` returns the hash of an entry's key, if it has one. If both buckets are
    /// full of other keys, one of those loses its cell.
    ///
    /// All threads take the first empty cell. So two threads that put one key at the same time
    /// compete for the same cell, and the loser sees the winner's.
    pub(crate) fn insert(&self, hash: [u64; 2], entry: usize, hash_of: impl Fn(usize) -> Option<[u64; 2]>) -> bool {
        let buckets = self.numbers(hash);
        // A round fails only if another thread changed the bucket. After the last round the entry
        // has no cell; the only effect is that it is not found.
        for _ in 0..ROUNDS {
            let (mut empty, mut dead) = (None, None);
            for word in self.cells(hash) {
                // Acquire: E4.
                let seen = word.load(Acquire);
                let other = entry_of(seen, self.geometry.entries).filter(|other| *other != entry);
                match other.and_then(&hash_of) {
                    Some(other) if other == hash => return false,
                    Some(other) if tag(other) == seen >> 32 && self.share_a_bucket(other, buckets) => {}
                    _ if seen == 0 => empty = empty.or(Some((word, seen))),
                    _ => dead = dead.or(Some((word, seen))),
                }
            }
            let displaced = || {
                let word = &self.bucket(buckets.0)[tag(hash) as usize % CELLS];
                // Relaxed: the cell is a hint, and is replaced whatever its value.
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

    /// Empties the cells that lead from a key to an entry. The caller owns the entry.
    pub(crate) fn remove(&self, hash: [u64; 2], entry: usize) {
        for word in self.cells(hash) {
            // Relaxed, both: a hint is removed; a thread that still sees it checks the entry.
            if word.load(Relaxed) == cell(hash, entry) {
                let _ = word.compare_exchange(cell(hash, entry), 0, Relaxed, Relaxed);
            }
        }
    }

    /// The cells of a key's buckets, in the order in which they are filled.
    fn cells(&self, hash: [u64; 2]) -> impl Iterator<Item = &'a AtomicU64> + use<'a> {
        let (first, second) = self.numbers(hash);
        let second = second.map_or(&[][..], |second| self.bucket(second));
        self.bucket(first).iter().chain(second)
    }

    fn bucket(&self, number: usize) -> &'a [AtomicU64] {
        self.memory.words(self.geometry.bucket(number))
    }

    /// The buckets of a key; they differ, unless there is only one.
    fn numbers(&self, hash: [u64; 2]) -> (usize, Option<usize>) {
        let (mixed, mask) = (mixed(hash), self.geometry.buckets - 1);
        let first = (mixed >> 34) as usize & mask;
        // XOR with an odd number is never the identity, so the second bucket is another one.
        (first, (mask > 0).then_some(first ^ ((mixed >> 4) as usize & mask | 1)))
    }

    fn share_a_bucket(&self, hash: [u64; 2], (first, second): (usize, Option<usize>)) -> bool {
        let other = self.numbers(hash);
        other.0 == first
            || Some(other.0) == second
            || other.1.is_some_and(|other| other == first || Some(other) == second)
    }
}

/// Mixes all bits of a hash, in case another program's hashes are consecutive numbers.
fn mixed(hash: [u64; 2]) -> u64 {
    (hash[0] ^ hash[1].rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn tag(hash: [u64; 2]) -> u64 {
    (hash[0].rotate_left(24) ^ hash[1]).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32
}

fn cell(hash: [u64; 2], entry: usize) -> u64 {
    tag(hash) << 32 | (entry as u64 + 1)
}

fn entry_of(cell: u64, entries: usize) -> Option<usize> {
    let entry = (cell as u32 as usize).checked_sub(1)?;
    (entry < entries).then_some(entry)
}
