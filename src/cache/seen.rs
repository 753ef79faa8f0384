//! Blocks that were seen: marks by which a lookup that misses finds out why.
//!
//! An insert leaves a mark for the first block that it publishes, and the evictor for the first one that a trim takes; a lookup that finds no more looks for the mark of the block that it lacks. A mark has a hash of the block's end
//! and of its last tokens, and the namespace. A later mark may take its place. So a reason is a guess, good for statistics and
//! for nothing else.
//!
//! The marks of equal blocks lie in one cache line, those of different namespaces beside each other.

use crate::block::Grid;
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::sync::gauge::{AtomicU64, Relaxed};
use crate::sync::{model_size, prefetch, prefetch_bytes, prefetch_to_write};
use crate::tree::Run;
use crate::tree::path::append_tokens;

/// Tokens of a block, its last ones, that are hashed.
const TAIL: usize = 8;

/// Marks at least and at most: 8 bytes each.
const FEWEST: usize = model_size(64, 8);
const MOST: usize = model_size(1 << 16, 8);

/// Bits of a mark that name the namespace; the others are of the hash.
const NAME_BITS: u32 = 24;

/// Marks of a cache line.
const LINE: usize = 8;

/// Marks beside each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

/// The marks of one cache.
#[derive(Debug)]
pub(super) struct SeenBlocks(Box<[Line]>);

/// A mark that is to be left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    hash: u64,
    namespace: usize,
}

/// Where a block was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Here,
    Elsewhere,
    Nowhere,
}

impl SeenBlocks {
    /// Marks for a cache of so many blocks: four for each, up to 65,536.
    pub(super) fn new(blocks: usize) -> Self {
        let marks = blocks.saturating_mul(4).clamp(FEWEST, MOST).next_power_of_two();
        Self((0..marks.div_ceil(LINE)).map(|_| Line::default()).collect())
    }

    /// Whether a mark is likely to be there still after so many others.
    pub(super) fn keeps_for(&self, others: u64) -> bool {
        others <= self.0.len() as u64
    }

    /// Marks the last block of `tokens`, which end at a boundary.
    #[inline]
    pub(super) fn mark_last(&self, namespace: usize, tokens: &[Token], grid: Grid) {
        self.put(hash_of_last(tokens, grid), namespace);
    }

    /// The mark of a block of `run`, the first one or one after it, for [`leave`](Self::leave); its place is prefetched. Nothing of a hidden run.
    pub(super) fn mark_of(&self, run: Ref<'_, Run>, block: usize, grid: Grid, guard: &Guard<'_>) -> Option<Mark> {
        let end = grid.end_of(grid.blocks(run.start()) + block + 1);
        let begin = end - TAIL.min(grid.tokens());
        // The run may be shorter by now than its arrays. Where it is hidden, its path may be, too.
        let arrays = run.arrays(guard).filter(|arrays| arrays.shown() > 0)?;
        let own = arrays.tokens();
        let hash = match begin.checked_sub(run.start()) {
            Some(begin) => hash(&own[begin..end - run.start()], end),
            None => {
                let mut tokens = Vec::new();
                if let Some(parent) = run.parent() {
                    append_tokens(parent.run(), begin..run.start(), &mut tokens, guard);
                }
                tokens.extend_from_slice(&own[..end - run.start()]);
                hash(&tokens, end)
            }
        };
        prefetch_to_write(self.line(hash));
        Some(Mark { hash, namespace: run.space().holdings.row.id().serial })
    }

    /// Prefetches the tokens that name the first block of `run`.
    pub(super) fn prefetch_tokens(run: Ref<'_, Run>, grid: Grid, guard: &Guard<'_>) {
        let end = grid.end_of(grid.blocks(run.start()) + 1) - run.start();
        let tokens = run.arrays(guard).and_then(|arrays| arrays.tokens().get(end.saturating_sub(TAIL)..end));
        tokens.into_iter().for_each(|tokens| prefetch_bytes(tokens.as_ptr().cast(), size_of_val(tokens)));
    }

    /// Leaves a mark.
    pub(super) fn leave(&self, Mark { hash, namespace }: Mark) {
        self.put(hash, namespace);
    }

    fn put(&self, hash: u64, namespace: usize) {
        // Relaxed: a hint, which no memory depends on.
        self.line(hash)[way(hash, namespace)].store(mark(hash, namespace), Relaxed);
    }

    /// Prefetches the marks of the last block of `tokens`, which end at a boundary.
    pub(super) fn prefetch(&self, tokens: &[Token], grid: Grid) {
        prefetch(self.line(hash_of_last(tokens, grid)));
    }

    /// Where the last block of `tokens` was seen, which end at a boundary.
    pub(super) fn look(&self, namespace: usize, tokens: &[Token], grid: Grid) -> Seen {
        let hash = hash_of_last(tokens, grid);
        // Relaxed: as in `mark`.
        let marks = self.line(hash).each_ref().map(|mark| mark.load(Relaxed));
        let wanted = mark(hash, namespace);
        if marks[way(hash, namespace)] == wanted {
            Seen::Here
        } else if marks.iter().any(|mark| *mark != 0 && (mark ^ wanted) >> NAME_BITS == 0) {
            Seen::Elsewhere
        } else {
            Seen::Nowhere
        }
    }

    fn line(&self, hash: u64) -> &[AtomicU64; LINE] {
        // The mark has the upper bits, and `way` the lowest.
        &self.0[(hash as usize / LINE) & (self.0.len() - 1)].0
    }
}

/// Which of a line's marks is that of a block: for namespaces made after each other, marks after each other.
fn way(hash: u64, namespace: usize) -> usize {
    (hash as usize).wrapping_add(namespace) % LINE
}

/// Not zero: the namespace's number is one at least.
fn mark(hash: u64, namespace: usize) -> u64 {
    let name = (namespace as u64 + 1) & ((1 << NAME_BITS) - 1);
    hash >> NAME_BITS << NAME_BITS | name
}

fn hash_of_last(tokens: &[Token], grid: Grid) -> u64 {
    hash(&tokens[tokens.len() - TAIL.min(grid.tokens())..], tokens.len())
}

#[inline]
fn hash(tokens: &[Token], end: usize) -> u64 {
    match <&[Token; TAIL]>::try_from(tokens) {
        // So many that no loop is left of it.
        Ok(tokens) => hash_all(tokens, end),
        Err(_) => hash_all(tokens, end),
    }
}

#[inline(always)]
fn hash_all(tokens: &[Token], end: usize) -> u64 {
    // An odd number without a pattern: the golden ratio in 64 bits.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, tokens: u64| (hash ^ tokens).wrapping_mul(FACTOR).rotate_left(29);
    let mut mixed = end as u64;
    let mut pairs = tokens.chunks_exact(2);
    for pair in &mut pairs {
        mixed = mix(mixed, u64::from(pair[0]) | u64::from(pair[1]) << 32);
    }
    for token in pairs.remainder() {
        mixed = mix(mixed, u64::from(*token));
    }
    mixed ^ mixed >> 32
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn marks_are_few_for_few_blocks_and_bounded() {
        assert_eq!(
            [0, 1, 16, 17, 1 << 14, usize::MAX].map(|blocks| SeenBlocks::new(blocks).0.len() * LINE),
            [64, 64, 64, 128, 1 << 16, 1 << 16]
        );
    }

    #[test]
    fn few_of_many_marks_share_a_place() {
        let seen = SeenBlocks::new(1 << 14);
        let place = |hash| &raw const seen.line(hash)[way(hash, 3)];
        let places: std::collections::HashSet<_> = (0..1 << 14).map(|i| place(hash(&[7, i, 7, i / 3], 16))).collect();
        // Thrown at random, 16,384 balls fill 14,497 of 65,536 places.
        assert!(places.len() > 14_000, "{}", places.len());
    }
}
