//! The ghost table: marks of recently cached and evicted blocks, which tell a lookup the reason of
//! a miss.
//!
//! An insert leaves a mark for the first block that it publishes, and the evictor for the first
//! block that a trim takes. A lookup that misses looks for the mark of the first block that it
//! lacks. A mark consists of the block's fingerprint (of its end depth and its last tokens) and the
//! namespace. A later mark may overwrite it. So a reason is an estimate, for statistics only.
//!
//! The marks of equal blocks are in one cache line, at different positions for different
//! namespaces.

use crate::block::BlockLayout;
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::sync::gauge::{AtomicU64, Relaxed};
use crate::sync::model_size;
use crate::tree::Run;
use crate::tree::fingerprint::{TAIL, fingerprint, fingerprint_of};

/// The least and the most number of marks, of 8 bytes each.
const FEWEST: usize = model_size(64, 8);
const MOST: usize = model_size(1 << 16, 8);

/// Bits of a mark that identify the namespace; the other bits are of the fingerprint.
const NAME_BITS: u32 = 24;

/// Number of marks in a cache line.
const LINE: usize = 8;

/// The marks of one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

/// The marks of one cache.
#[derive(Debug)]
pub(in crate::cache) struct GhostTable(Box<[Line]>);

/// A mark to write.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Mark {
    fingerprint: u64,
    namespace: usize,
}

impl Mark {
    /// The mark of a block of `run`.
    #[inline]
    fn of(run: Ref<'_, Run>, fingerprint: u64) -> Self {
        Self { fingerprint, namespace: run.space().account.row.id().serial }
    }
}

/// Where a block was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum Seen {
    Here,
    Elsewhere,
    Nowhere,
}

impl GhostTable {
    /// Makes room for at least four marks for each of `blocks` blocks, up to 65,536 in total.
    pub(in crate::cache) fn new(blocks: usize) -> Self {
        let marks = blocks.saturating_mul(4).clamp(FEWEST, MOST).next_power_of_two();
        Self((0..marks.div_ceil(LINE)).map(|_| Line::default()).collect())
    }

    /// Whether a mark is likely to survive `others` later ones.
    pub(in crate::cache) fn keeps_for(&self, others: u64) -> bool {
        others <= self.0.len() as u64
    }

    /// Marks the first block of `run`; the run must have that block.
    #[inline]
    pub(in crate::cache) fn mark_first(&self, run: Ref<'_, Run>) {
        self.leave(Mark::of(run, run.fingerprint()));
    }

    /// Marks the last block of `tokens`, which is a block of `run` and ends at a boundary.
    #[inline]
    pub(in crate::cache) fn mark_last(&self, run: Ref<'_, Run>, tokens: &[Token], layout: BlockLayout) {
        self.leave(Mark::of(run, fingerprint(tokens, layout)));
    }

    /// The mark of a block of `run`, for [`leave`](Self::leave). `None` if the run is completely
    /// hidden and the block is not its first.
    pub(in crate::cache) fn mark_of(
        &self,
        run: Ref<'_, Run>,
        block: usize,
        layout: BlockLayout,
        guard: &Guard<'_>,
    ) -> Option<Mark> {
        let fingerprint = match block {
            0 => run.fingerprint(),
            _ => fingerprint_in(run, block, layout, guard)?,
        };
        Some(Mark::of(run, fingerprint))
    }

    /// Leaves a mark.
    pub(in crate::cache) fn leave(&self, Mark { fingerprint, namespace }: Mark) {
        // Relaxed: a hint, which no memory depends on.
        self.line(fingerprint)[way(fingerprint, namespace)].store(mark(fingerprint, namespace), Relaxed);
    }

    /// Returns where the last block of `tokens`, which ends at a boundary, was seen.
    pub(in crate::cache) fn look(&self, namespace: usize, tokens: &[Token], layout: BlockLayout) -> Seen {
        let fingerprint = fingerprint(tokens, layout);
        // Relaxed: as in `leave`.
        let marks = self.line(fingerprint).each_ref().map(|mark| mark.load(Relaxed));
        let wanted = mark(fingerprint, namespace);
        if marks[way(fingerprint, namespace)] == wanted {
            Seen::Here
        } else if marks.iter().any(|mark| *mark != 0 && (mark ^ wanted) >> NAME_BITS == 0) {
            Seen::Elsewhere
        } else {
            Seen::Nowhere
        }
    }

    fn line(&self, fingerprint: u64) -> &[AtomicU64; LINE] {
        // The upper bits are in the mark, and `way` uses the lowest.
        &self.0[(fingerprint as usize / LINE) & (self.0.len() - 1)].0
    }
}

/// The fingerprint of a block of `run` other than the first, so that all its tokens are in the run.
/// `None` if all of the run is hidden.
fn fingerprint_in(run: Ref<'_, Run>, block: usize, layout: BlockLayout, guard: &Guard<'_>) -> Option<u64> {
    let end = layout.end_of(layout.blocks(run.start()) + block + 1);
    let to = end - run.start();
    // By now the run may be shorter than its arrays.
    let arrays = run.arrays(guard).filter(|arrays| arrays.shown() > 0)?;
    Some(fingerprint_of(&arrays.tokens()[to - TAIL.min(layout.tokens())..to], end))
}

/// The position of a block's mark in its line: consecutive namespaces have consecutive positions.
fn way(fingerprint: u64, namespace: usize) -> usize {
    (fingerprint as usize).wrapping_add(namespace) % LINE
}

/// Zero means no mark: the namespace part is at least one, except for each 2^24th namespace.
fn mark(fingerprint: u64, namespace: usize) -> u64 {
    let name = (namespace as u64 + 1) & ((1 << NAME_BITS) - 1);
    fingerprint >> NAME_BITS << NAME_BITS | name
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
