//! The pool of free blocks: a bitmap and a count.
//!
//! Taking is all-or-nothing: a thread first lowers the count by `n`, in one step or not at all,
//! then claims `n` set bits, up to 64 in one read-modify-write. Giving back sets the bits first and
//! then raises the count, so a thread that has lowered the count by `n` always finds `n` set bits
//! in the end. Neighbouring bits make contiguous ids, and a bitmap has no ABA problem.
//!
//! If callers choose the ids (`take_these`), the count promises nothing and only follows the bits.
//! A pool is used in only one of the two ways.
//!
//! A pool grows by giving back ids beyond its capacity; memory for their bits is allocated at the
//! start.
//!
//! # Invariants
//!
//! - **B1** A set bit is a free block. The count is never more than the number of set bits that are
//!   not yet promised to a taker.
//! - **B2** A block is given back once for each time it was taken; giving it back a second time
//!   panics before it does harm.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E9 | `give_back` sets bits | `claim`, `take_these` clear them | the last owner's use of a block comes before the next owner's |
//! | E10 | `give_back` raises the count | `try_take` lowers it | a thread that is promised blocks finds their bits set |
//! | E16 | `free_for_waiter` | `give_back` raises the count | a later `give_back` sees that a thread waits (cache::line::wait_list) |
//! | E21 | `give_back` raises the count; `free_for_waiter` after the end of a charge | `free_for_waiter` | a waiter that looks later sees that charges have ended (cache::line::wait_list) |

use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::BlockId;
use super::hints::{BITS, Hints, leading};
use crate::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::gauge::AtomicUsize as AtomicGauge;

/// The pool of free blocks of one tier.
#[derive(Debug)]
pub(crate) struct Pool {
    free: CachePadded<AtomicUsize>,
    /// The word in which blocks were freed last; a search begins there.
    recent: CachePadded<AtomicUsize>,
    words: Box<[AtomicU64]>,
    hints: Hints,
    /// Current number of blocks.
    capacity: AtomicGauge,
    /// Maximum number of blocks.
    limit: usize,
}

/// Number of ids that are listed at a time while the pool grows.
const GROWN_AT_ONCE: usize = 1 << 16;

impl Pool {
    /// Makes a pool of `capacity` free blocks that can grow up to `limit` blocks.
    pub(crate) fn new(capacity: usize, limit: usize) -> Self {
        Self::with_free(capacity, capacity, limit)
    }

    /// Makes a pool of `capacity` blocks, none of them free.
    pub(crate) fn empty(capacity: usize) -> Self {
        Self::with_free(0, capacity, capacity)
    }

    fn with_free(free: usize, capacity: usize, limit: usize) -> Self {
        Self {
            free: CachePadded::new(AtomicUsize::new(free)),
            recent: CachePadded::new(AtomicUsize::new(0)),
            words: (0..limit.div_ceil(BITS)).map(|i| AtomicU64::new(leading(free, i))).collect(),
            hints: Hints::new(limit.div_ceil(BITS), free.div_ceil(BITS)),
            capacity: AtomicGauge::new(capacity),
            limit,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        // Relaxed: it only grows, and a thread with a block of the grown pool took it after the
        // growth (E9).
        self.capacity.load(Relaxed)
    }

    /// The maximum number of blocks.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Adds free blocks and returns their ids; `None` if there would be more than the limit.
    /// Lock-free.
    pub(crate) fn grow(&self, blocks: usize) -> Option<Range<BlockId>> {
        let more = |capacity: usize| capacity.checked_add(blocks).filter(|capacity| *capacity <= self.limit);
        // Relaxed: as in `capacity`.
        let before = self.capacity.fetch_update(Relaxed, Relaxed, more).ok()?;
        let added = before as BlockId..(before + blocks) as BlockId;
        let mut ids = added.clone();
        while !ids.is_empty() {
            let some: Vec<_> = ids.by_ref().take(GROWN_AT_ONCE).collect();
            self.give_back(&some);
        }
        Some(added)
    }

    pub(crate) fn free(&self) -> usize {
        // Relaxed: the count may be stale as soon as it is read. With `take_these` it can be below
        // zero for a moment, because a thread may take bits before the thread that set them has
        // counted them.
        usize::try_from(self.free.load(Relaxed) as isize).unwrap_or(0)
    }

    /// The number of free blocks, by a read-modify-write.
    pub(crate) fn free_for_waiter(&self) -> usize {
        // Release: E16. Acquire: E21.
        self.free.fetch_add(0, AcqRel)
    }

    /// Appends `n` free blocks to `blocks`, or takes nothing and returns false. Lock-free.
    #[must_use]
    pub(crate) fn try_take(&self, n: usize, blocks: &mut Vec<BlockId>) -> bool {
        // Relaxed: a guess, which the compare-and-swap checks.
        let mut free = self.free.load(Relaxed);
        loop {
            let Some(left) = free.checked_sub(n) else {
                return false;
            };
            // Acquire: E10.
            match self.free.compare_exchange_weak(free, left, Acquire, Relaxed) {
                Ok(_) => break,
                Err(seen) => free = seen,
            }
        }
        crate::sync::failpoint!("pool::counted");
        blocks.reserve(n);
        self.claim(n, blocks);
        true
    }

    /// Takes exactly these blocks, or none of them. Lock-free.
    ///
    /// # Errors
    ///
    /// The first block that is not free, occurs twice in `blocks`, or is not of this pool.
    pub(crate) fn take_these(&self, blocks: &[BlockId]) -> Result<(), BlockId> {
        for (taken, &block) in blocks.iter().enumerate() {
            let word = self.words.get(block as usize / BITS);
            // Acquire: E9. A bit beyond the capacity is never set.
            let was_free = word.is_some_and(|word| word.fetch_and(!bit(block), Acquire) & bit(block) != 0);
            if !was_free {
                for &block in &blocks[..taken] {
                    // Relaxed: the block was not used; a read-modify-write continues the release
                    // sequence of `give_back` (E9).
                    self.words[block as usize / BITS].fetch_or(bit(block), Relaxed);
                }
                return Err(block);
            }
        }
        // Relaxed: in this use the count promises nothing; the bits have the edge.
        self.free.fetch_sub(blocks.len(), Relaxed);
        Ok(())
    }

    /// Finds and clears `n` set bits that the count has promised to this thread.
    fn claim(&self, mut n: usize, blocks: &mut Vec<BlockId>) {
        // Relaxed: a hint.
        let mut at = self.recent.load(Relaxed);
        while n > 0 {
            // Relaxed: a guess; the read-modify-write below decides.
            let word = self.words[at].load(Relaxed);
            if word != 0 {
                let wanted = lowest(word, n);
                // Acquire: E9.
                let got = self.words[at].fetch_and(!wanted, Acquire) & wanted;
                n -= got.count_ones() as usize;
                push_ids(at, got, blocks);
                if got == wanted {
                    continue;
                }
            }
            at = self.next(at);
        }
        // Relaxed: a hint.
        self.recent.store(at, Relaxed);
    }

    /// The word to search after word `at` had too few blocks: the next one with a hint, or its
    /// neighbour if there is no hint.
    ///
    /// A promised block is found even if its hint is lost: words without blocks lose their hints
    /// one by one, and then every word is searched.
    fn next(&self, at: usize) -> usize {
        // Relaxed: hints follow the words and decide nothing.
        if self.words[at].load(Relaxed) == 0 {
            self.hints.clear(at);
            if self.words[at].load(Relaxed) != 0 {
                self.hints.set(at);
            }
        }
        self.hints.after(at).filter(|next| *next != at).unwrap_or((at + 1) % self.words.len())
    }

    /// Makes `blocks` free. Lock-free.
    ///
    /// # Panics
    ///
    /// If one of them is already free or is not of this pool (B2).
    pub(crate) fn give_back(&self, blocks: &[BlockId]) {
        let Some(first) = blocks.first() else { return };
        let mut raised = Raised { free: &self.free, blocks: 0 };
        let mut rest = blocks;
        while let Some(&block) = rest.first() {
            let word = block as usize / BITS;
            let mut bits = 0;
            while let Some(&block) = rest.first().filter(|block| **block as usize / BITS == word) {
                let (row, tail) = row_of(rest);
                assert!(bits & row == 0, "block {block} was given back twice");
                bits |= row;
                rest = tail;
            }
            assert!(bits.ilog2() as usize + word * BITS < self.capacity(), "a block beyond the pool was given back");
            // Release: E9. Acquire is not needed: nothing is read.
            let before = self.words[word].fetch_or(bits, Release);
            raised.blocks += (bits & !before).count_ones() as usize;
            assert!(before & bits == 0, "a free block of {:?} was given back", word * BITS..(word + 1) * BITS);
            self.hints.set(word);
        }
        // Relaxed: a hint.
        self.recent.store(*first as usize / BITS, Relaxed);
        crate::sync::failpoint!("pool::set");
    }

    /// Whether a block is free. For `validate`, while the cache is at rest.
    pub(crate) fn is_free(&self, block: BlockId) -> bool {
        // Relaxed: at rest, nothing else runs.
        self.words[block as usize / BITS].load(Relaxed) & bit(block) != 0
    }

    /// Number of set bits beyond the capacity. For `validate`, while the cache is at rest.
    pub(crate) fn bits_beyond(&self) -> usize {
        let (full, used) = (self.capacity() / BITS, self.capacity() % BITS);
        let beyond = |(at, word): (usize, u64)| if at == full { word >> used } else { word };
        // Relaxed: at rest, nothing else runs.
        let words = self.words.iter().map(|word| word.load(Relaxed)).enumerate().skip(full);
        words.map(|word| beyond(word).count_ones() as usize).sum()
    }

    /// Number of set bits, counted one by one. For `validate`, while the cache is at rest.
    pub(crate) fn count_bits(&self) -> usize {
        // Relaxed: at rest, nothing else runs.
        self.words.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }

    /// Flips a bit without changing the count.
    #[cfg(test)]
    pub(crate) fn flip_bit(&self, block: BlockId) {
        let word = &self.words[block as usize / BITS];
        // Relaxed, both: for tests, at rest.
        word.store(word.load(Relaxed) ^ bit(block), Relaxed);
    }
}

/// Raises the count by the blocks whose bits were set, at the end or after a panic.
struct Raised<'a> {
    free: &'a AtomicUsize,
    blocks: usize,
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        // Release: E10. Later read-modify-writes continue the sequence, so one acquire sees the
        // bits of every earlier `give_back`. Acquire: E16.
        self.free.fetch_add(self.blocks, AcqRel);
    }
}

fn bit(block: BlockId) -> u64 {
    1 << (block as usize % BITS)
}

/// The bits of the leading blocks with consecutive ids in one word, and the remaining blocks.
fn row_of(blocks: &[BlockId]) -> (u64, &[BlockId]) {
    let (first, room) = (blocks[0], BITS - blocks[0] as usize % BITS);
    let neighbours = blocks.iter().take(room).zip(first..).take_while(|(block, next)| *block == next);
    let len = neighbours.count();
    (u64::MAX >> (BITS - len) << (first as usize % BITS), &blocks[len..])
}

/// The `n` lowest set bits of `word`, or all of them.
fn lowest(word: u64, n: usize) -> u64 {
    if n >= word.count_ones() as usize {
        return word;
    }
    let mut rest = word;
    for _ in 0..n {
        rest &= rest - 1;
    }
    word & !rest
}

fn push_ids(word: usize, mut bits: u64, blocks: &mut Vec<BlockId>) {
    let base = (word * BITS) as BlockId;
    let first = bits.trailing_zeros();
    if first + bits.count_ones() == BITS as u32 - bits.leading_zeros() {
        // Consecutive, as in most cases.
        blocks.extend(base + first..base + first + bits.count_ones());
        return;
    }
    while bits != 0 {
        blocks.push(base + bits.trailing_zeros());
        bits &= bits - 1;
    }
}

#[cfg(test)]
mod tests;
