//! Where the keys and values of a range come from: blocks, and rows that are kept in none.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::RANGE_TOKENS;
use super::kernels::{Hint, Hints, LANES, Level, StoredRows};
use super::number::Number;
use super::scratch::{Scratch, columns};
use super::storage::{CpuKv, Plane};
use super::word::{pack, per_word};
use crate::batch::Batch;
use crate::element::scale_of;
use crate::layout::{Dtype, Half, Layout};

/// Stages of the work on a range: copying and widening its keys, then its values, and attention, the longest, twice.
const STAGES: usize = 6;

/// The keys and values of one layer.
pub(super) struct RowSource<'a, E> {
    pub(super) kv: &'a CpuKv,
    pub(super) layer: usize,
    /// Keys and values of the rows, if they are not kept in blocks.
    pub(super) new: Option<[&'a [E]; 2]>,
}

/// One head of some tokens of a sequence, which lie in one range.
pub(super) struct RangePlace {
    pub(super) sequence: usize,
    pub(super) head: usize,
    pub(super) tokens: Range<usize>,
}

/// Some heads of some tokens of a sequence, which are read soon.
pub(super) struct Ahead {
    pub(super) sequence: usize,
    pub(super) heads: Range<usize>,
    pub(super) tokens: Range<usize>,
}

/// What is asked for during the last two stages.
pub(super) fn hints_of_attention(hints: &[Hint]) -> Hints<'_> {
    Hints(hints).stage(2, 3)
}

impl<E: Number> RowSource<'_, E> {
    pub(super) fn layout(&self) -> &Layout {
        self.kv.layout()
    }

    /// Reads the keys and values of a range, and asks for memory that is read soon.
    pub(super) fn load(
        &self,
        level: Level,
        batch: &Batch<'_>,
        place: &RangePlace,
        ahead: &Ahead,
        scratch: &mut Scratch,
    ) {
        self.collect_hints(batch, ahead, &mut scratch.hints);
        for (stage, half) in [(0, Half::Keys), (2, Half::Values)] {
            let layout = self.layout().of(half);
            let words_of_row = layout.head_dim / per_word(layout.dtype);
            self.copy(batch, half, place, words_of_row, stage, scratch);
            let stored = StoredRows {
                dtype: layout.dtype,
                words: &scratch.words[..place.tokens.len() * words_of_row],
                words_of_row,
                elements: layout.head_dim,
                scales: &scratch.scales,
                hints: Hints(&scratch.hints).stage(stage + 1, STAGES),
            };
            match half {
                Half::Keys => level.widen_keys(stored, &mut scratch.rows, &mut scratch.keys),
                Half::Values => level.widen_values(stored, &mut scratch.values, columns(self.layout())),
            }
        }
    }

    /// Copies the words of the rows, and their scales.
    fn copy(
        &self,
        batch: &Batch<'_>,
        half: Half,
        place: &RangePlace,
        words_of_row: usize,
        stage: usize,
        scratch: &mut Scratch,
    ) {
        let plane = Plane { layer: self.layer, half };
        let kept = place.tokens.start..place.tokens.end.min(self.kept(batch, place.sequence)).max(place.tokens.start);
        let hints = Hints(&scratch.hints).stage(stage, STAGES);
        let mut rows = scratch.words.chunks_exact_mut(words_of_row).zip(&mut scratch.scales).enumerate();
        self.each_piece(batch, place.sequence, kept.clone(), |block, tokens| {
            let from = self.kv.rows(plane, block, tokens.clone(), place.head);
            for ((token, from), (step, (row, scale))) in tokens.zip(from).zip(&mut rows) {
                // Relaxed: the cache orders it, by the edge from the insertion of the block to the lease on it.
                row.iter_mut().zip(from).for_each(|(to, from)| *to = from.load(Relaxed));
                if self.layout().dtype == Dtype::I8 {
                    *scale = self.kv.scale(plane, block, token, place.head);
                }
                hints.step(step, kept.len());
            }
        });
        for (token, (_, (row, scale))) in (kept.end..place.tokens.end).zip(rows) {
            self.copy_new(batch, half, place, token, row, scale);
        }
    }

    /// Copies a row that is in no block, rounded as if it came from one.
    fn copy_new(
        &self,
        batch: &Batch<'_>,
        half: Half,
        place: &RangePlace,
        token: usize,
        to: &mut [u64],
        scale: &mut f32,
    ) {
        let Some([keys, values]) = self.new else { return };
        let Layout { head_dim, kv_heads, dtype, .. } = self.layout().of(half);
        let from = match half {
            Half::Keys => keys,
            Half::Values => values,
        };
        let row = batch.rows_of(place.sequence).start + token - self.kept(batch, place.sequence);
        let from = &from[(row * kv_heads + place.head) * head_dim..][..head_dim];
        if dtype == Dtype::I8 {
            *scale = scale_of(from.iter().map(|element| element.widen()));
        }
        pack(dtype, *scale, from, |index, word| to[index] = word);
    }

    /// Tokens of a sequence that lie in blocks.
    fn kept(&self, batch: &Batch<'_>, sequence: usize) -> usize {
        let context = batch.contexts[sequence] as usize;
        if self.new.is_some() { context - batch.rows_of(sequence).len() } else { context }
    }

    /// Calls `piece` with each block that holds some of the tokens, and with their places in it.
    fn each_piece(
        &self,
        batch: &Batch<'_>,
        sequence: usize,
        tokens: Range<usize>,
        mut piece: impl FnMut(radixkv::BlockId, Range<usize>),
    ) {
        let (table, size) = (batch.tables.blocks_of(sequence), self.layout().block_size);
        let mut token = tokens.start;
        while token < tokens.end {
            let within = token % size;
            let count = (size - within).min(tokens.end - token);
            piece(table[token / size], within..within + count);
            token += count;
        }
    }

    /// The rows of several heads, token by token: they lie side by side.
    fn collect_hints(&self, batch: &Batch<'_>, ahead: &Ahead, hints: &mut Vec<Hint>) {
        hints.clear();
        let end = ahead.tokens.end.min(self.kept(batch, ahead.sequence));
        for half in [Half::Keys, Half::Values] {
            let plane = Plane { layer: self.layer, half };
            let from_head_to_head = self.layout().of(half).head_stride() * self.layout().dtype.bytes();
            self.each_piece(batch, ahead.sequence, ahead.tokens.start..end, |block, tokens| {
                for row in self.kv.rows(plane, block, tokens, ahead.heads.start) {
                    let first = Hint::of(row);
                    hints.extend((0..ahead.heads.len()).map(|head| first.later(head * from_head_to_head)));
                }
            });
        }
    }
}

const _: () = assert!(RANGE_TOKENS % LANES == 0);
