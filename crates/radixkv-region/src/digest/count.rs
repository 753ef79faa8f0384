//! One count of blocks. `charge` describes when it is changed.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0 to 33 | blocks | a signed number; negative while a block is moved and removed at the same moment |
//! | 34 to 49 | epoch | the epoch that counted them |
//! | 50 to 63 | life | of a process: low bits of the life number of its slot |
//!
//! A change belongs to an epoch and a life, and is dropped if those are over: the blocks are counted
//! again, or no longer. The first change of an epoch lets the count begin at 0. A second word of the
//! same form estimates how many blocks of the epoch before were not moved yet. It is added when the
//! count is compared with a quota, and is 0 when all are moved.

use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};

const STAMP_AT: u32 = 34;
const EPOCH_BITS: u32 = 16;

/// The number of blocks of a namespace or a process, and the epoch and life to which changes belong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count<'a> {
    pub(crate) blocks: &'a AtomicU64,
    /// An estimate of the blocks that are not moved to the epoch of `blocks`.
    pub(crate) unmoved: &'a AtomicU64,
    /// The current epoch.
    pub(crate) epoch: &'a AtomicU64,
    /// The current life of a process's slot.
    pub(crate) life: Option<&'a AtomicU64>,
    /// The epoch and the life to which the changes belong.
    pub(crate) of: [u64; 2],
}

impl Count<'_> {
    /// Adds to the count if it satisfies a condition. False if it does not.
    pub(crate) fn add(&self, difference: i64, is_meant: impl Fn(i64) -> bool) -> bool {
        loop {
            let seen = self.current();
            if !is_meant(self.total(seen)) {
                return false;
            }
            if stamp(seen) != pack(self.of) {
                // A block of the epoch before is removed before it was moved.
                if difference < 0 && is_same_life(stamp(seen), pack(self.of)) {
                    self.subtract_unmoved(stamp(seen));
                }
                return true;
            }
            if replace(self.blocks, seen, word(stamp(seen), value(seen) + difference)) {
                return true;
            }
        }
    }

    /// Counts a block that was moved to the epoch.
    pub(crate) fn add_moved(&self) {
        self.add(1, |_| true);
        self.subtract_unmoved(pack(self.of));
    }

    /// All blocks were moved to the epoch.
    pub(crate) fn finish(&self) {
        if stamp(self.current()) == pack(self.of) {
            let mut seen = self.unmoved.load(Relaxed);
            while stamp(seen) == pack(self.of)
                && value(seen) != 0
                && !replace(self.unmoved, seen, word(pack(self.of), 0))
            {
                seen = self.unmoved.load(Relaxed);
            }
        }
    }

    /// The blocks, counted in the current epoch.
    #[cfg(any(test, radixkv_loom))]
    pub(crate) fn blocks(&self) -> i64 {
        self.total(self.current())
    }

    /// The count in the current epoch and life, in which it begins at 0.
    fn current(&self) -> u64 {
        loop {
            // Acquire: the epoch and the life that are loaded next are not older than the count's.
            let seen = self.blocks.load(Acquire);
            let now = pack([self.epoch.load(Acquire), self.life.map_or(0, |life| life.load(Acquire))]);
            if stamp(seen) == now {
                return seen;
            }
            let unmoved = self.unmoved.load(Acquire);
            if stamp(unmoved) != now {
                let estimate = if is_same_life(stamp(seen), now) { self.total(seen).max(0) } else { 0 };
                replace(self.unmoved, unmoved, word(now, estimate));
            }
            replace(self.blocks, seen, word(now, 0));
        }
    }

    /// A count, with the blocks that are not moved yet.
    fn total(&self, seen: u64) -> i64 {
        // Relaxed: an estimate.
        let unmoved = self.unmoved.load(Relaxed);
        value(seen) + if stamp(unmoved) == stamp(seen) { value(unmoved) } else { 0 }
    }

    /// Estimates one block less that is not moved. False if there is none.
    fn subtract_unmoved(&self, stamp_of: u64) -> bool {
        loop {
            // Relaxed: an estimate.
            let seen = self.unmoved.load(Relaxed);
            if stamp(seen) != stamp_of || value(seen) <= 0 {
                return false;
            }
            if replace(self.unmoved, seen, word(stamp_of, value(seen) - 1)) {
                return true;
            }
        }
    }
}

/// Release and Acquire: as in `current`.
fn replace(word: &AtomicU64, seen: u64, next: u64) -> bool {
    word.compare_exchange(seen, next, AcqRel, Relaxed).is_ok()
}

fn word(stamp: u64, blocks: i64) -> u64 {
    stamp << STAMP_AT | blocks as u64 & ((1 << STAMP_AT) - 1)
}

fn stamp(word: u64) -> u64 {
    word >> STAMP_AT
}

fn value(word: u64) -> i64 {
    (word << (64 - STAMP_AT)) as i64 >> (64 - STAMP_AT)
}

/// An epoch and a life, as a stamp.
fn pack([epoch, life]: [u64; 2]) -> u64 {
    ((life << EPOCH_BITS) | epoch & ((1 << EPOCH_BITS) - 1)) & ((1 << (64 - STAMP_AT)) - 1)
}

fn is_same_life(one: u64, other: u64) -> bool {
    one >> EPOCH_BITS == other >> EPOCH_BITS
}
