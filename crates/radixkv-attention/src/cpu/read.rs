//! Reads the keys and values of a range: from blocks, and from new rows that are in no block.
//! `ranges` calls it.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::kernels::{Hints, LANES, Level, StoredRows};
use super::number::Number;
use super::scratch::{Scratch, columns};
use super::storage::{CpuKv, Plane};
use crate::batch::Batch;
use crate::element::{round, scale_of};
use crate::layout::{Dtype, Half, Layout, Order};

/// The source of the keys and values of one layer.
pub(super) struct RowSource<'a, E> {
    pub(super) kv: &'a CpuKv,
    pub(super) layer: usize,
    /// Keys and values of the rows, if they are not kept in blocks.
    pub(super) new: Option<[&'a [E]; 2]>,
}

/// Some tokens of a sequence, all of them in one range.
#[derive(Debug, Clone)]
pub(super) struct RangePlace {
    pub(super) sequence: usize,
    pub(super) tokens: Range<usize>,
}

/// Rows of one head in the storage: their words, and the number of words from one row to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredAt<'a> {
    pub(super) dtype: Dtype,
    pub(super) words: &'a [AtomicU64],
    pub(super) stride: usize,
}

impl RangePlace {
    /// A part of this place; `part` counts from the place's first token.
    pub(super) fn part(&self, part: &Range<usize>) -> Self {
        let first = self.tokens.start;
        Self { tokens: first + part.start..first + part.end, ..*self }
    }
}

impl<E: Number> RowSource<'_, E> {
    pub(super) fn layout(&self) -> &Layout {
        self.kv.layout()
    }

    /// Reads the keys or values of one head for some tokens, into rows that are padded to whole
    /// vectors.
    pub(super) fn load(
        &self,
        level: Level,
        batch: &Batch<'_>,
        half: Half,
        place: &RangePlace,
        head: usize,
        scratch: &mut Scratch,
    ) {
        let (plane, layout) = (Plane { layer: self.layer, half }, self.layout().of(half));
        let Scratch { scales, keys, values, hints, .. } = scratch;
        let to: &mut [f32] = match half {
            Half::Keys => keys,
            Half::Values => values,
        };
        let (dtype, elements, to_stride) = (layout.dtype, layout.head_dim, columns(layout.head_dim));
        let kept = place.tokens.start..place.tokens.end.min(self.kept(batch, place.sequence)).max(place.tokens.start);
        let mut row = 0;
        self.each_piece(batch, place.sequence, kept.clone(), |block, tokens| {
            let (words, stride) = self.kv.rows(plane, block, tokens.start, head);
            let scales = &mut scales[..tokens.len()];
            if dtype.has_scales() {
                let stored = tokens.clone().map(|token| self.kv.scale(plane, block, token, head));
                scales.iter_mut().zip(stored).for_each(|(to, scale)| *to = scale);
            }
            let rows = StoredRows { dtype, words, stride, elements, scales, to_stride };
            level.read(rows, &mut to[row * to_stride..], hints);
            row += tokens.len();
        });
        for (token, to) in (kept.end..place.tokens.end).zip(to[row * to_stride..].chunks_exact_mut(to_stride)) {
            self.read_new(batch, half, [place.sequence, token, head], &mut to[..elements]);
        }
    }

    /// Whether the rows of some tokens can be used in place: each is whole vectors of elements, all
    /// are in one block, and the number of keys is a multiple of [`LANES`].
    pub(super) fn is_good_in_place(&self, batch: &Batch<'_>, half: Half, place: &RangePlace) -> bool {
        let (layout, tokens) = (self.layout().of(half), &place.tokens);
        layout.head_dim % LANES == 0
            && tokens.start % layout.block_size + tokens.len() <= layout.block_size
            && (half == Half::Values || tokens.len() % LANES == 0)
            && tokens.end <= self.kept(batch, place.sequence)
    }

    /// Returns such rows of one head, and reads their scales into `scales`.
    pub(super) fn in_place(
        &self,
        batch: &Batch<'_>,
        half: Half,
        RangePlace { sequence, tokens }: &RangePlace,
        head: usize,
        scales: &mut [f32],
    ) -> StoredAt<'_> {
        let Layout { dtype, block_size, .. } = *self.layout();
        let (plane, first) = (Plane { layer: self.layer, half }, tokens.start % block_size);
        let block = batch.tables.blocks_of(*sequence)[tokens.start / block_size];
        if dtype.has_scales() {
            let stored = (first..first + tokens.len()).map(|token| self.kv.scale(plane, block, token, head));
            scales.iter_mut().zip(stored).for_each(|(to, scale)| *to = scale);
        }
        let (words, stride) = self.kv.rows(plane, block, first, head);
        StoredAt { dtype, words, stride }
    }

    /// Reads a row that is in no block, rounded as if it came from one.
    fn read_new(&self, batch: &Batch<'_>, half: Half, [sequence, token, head]: [usize; 3], to: &mut [f32]) {
        let Some([keys, values]) = self.new else { return };
        // Values of latent vectors are the first elements of their keys.
        let half = if self.layout().has_values() { half } else { Half::Keys };
        let Layout { head_dim, kv_heads, dtype, .. } = self.layout().of(half);
        let from = match half {
            Half::Keys => keys,
            Half::Values => values,
        };
        let row = batch.rows_of(sequence).start + token - self.kept(batch, sequence);
        let from = from[(row * kv_heads + head) * head_dim..][..head_dim].iter().map(|element| element.widen());
        if dtype.has_scales() {
            let plane = Plane { layer: self.layer, half };
            let scale = match dtype.has_static_scales() {
                true => self.kv.scale(plane, 0, 0, head),
                false => scale_of(dtype, from.clone()),
            };
            to.iter_mut().zip(from).for_each(|(to, element)| *to = round(dtype, element / scale) * scale);
        } else {
            to.iter_mut().zip(from).for_each(|(to, element)| *to = round(dtype, element));
        }
    }

    /// Number of tokens of a sequence that are in blocks.
    fn kept(&self, batch: &Batch<'_>, sequence: usize) -> usize {
        let context = batch.contexts[sequence] as usize;
        if self.new.is_some() { context - batch.rows_of(sequence).len() } else { context }
    }

    /// Calls `piece` with each block that holds some of the tokens, and with their positions in it.
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

    /// Adds the rows of several heads, which are read soon, to `hints`.
    pub(super) fn collect_hints(
        &self,
        batch: &Batch<'_>,
        half: Half,
        ahead: &RangePlace,
        heads: Range<usize>,
        hints: &mut Hints,
    ) {
        if half == Half::Values && !self.layout().has_values() {
            return; // they are read as keys before
        }
        let end = ahead.tokens.end.min(self.kept(batch, ahead.sequence));
        let (plane, layout) = (Plane { layer: self.layer, half }, self.layout().of(half));
        let row_bytes = layout.head_dim * layout.dtype.bytes();
        self.each_piece(batch, ahead.sequence, ahead.tokens.start..end, |block, tokens| match layout.order {
            Order::Nhd | Order::Latent => {
                let (words, stride) = self.kv.rows(plane, block, tokens.start, heads.start);
                let spaced = [tokens.len(), stride * size_of::<u64>()];
                hints.add(words.as_ptr().cast(), heads.len() * row_bytes, spaced);
            }
            Order::Hnd => {
                for head in heads.clone() {
                    let (words, _) = self.kv.rows(plane, block, tokens.start, head);
                    hints.add(words.as_ptr().cast(), tokens.len() * row_bytes, [1, 0]);
                }
            }
        });
    }
}
