//! Rows of the storage, copied and widened to the numbers to compute with.

use std::sync::atomic::AtomicU64;

use super::hints::Hints;
use super::lanes::{LANES, Lanes};
use super::memory::copy_words;
use crate::element::{from_bf16, from_f16};
use crate::layout::Dtype;

/// Bytes of a row whose copy, or widening, is one unit of work (see [`Hints::step`]).
const UNIT_BYTES: usize = 256;

/// What a level does by instructions that the compiler does not find.
pub(super) trait Ops: Copy {
    /// Copies words that other threads may write.
    #[inline(always)]
    fn copy_words(self, from: &[AtomicU64], to: &mut [u64]) {
        copy_words(from, to);
    }

    /// Adds the lanes of each vector, in halves.
    #[inline(always)]
    fn add_lanes(self, sums: &[Lanes; LANES]) -> [f32; LANES] {
        sums.map(|sum| sum.in_halves(|a, b| a + b))
    }

    /// Reads elements of `f16`.
    #[inline(always)]
    fn widen_f16(self, from: &[u16], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from_f16(*from));
    }
}

/// No more than any processor has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

impl Ops for Plain {}

/// Rows of one head for some tokens of a block, and where they go.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RowCopy<'a> {
    /// From the first row on.
    pub(in super::super) words: &'a [AtomicU64],
    pub(in super::super) rows: usize,
    pub(in super::super) words_of_row: usize,
    /// Words from row to row, in the storage and there.
    pub(in super::super) strides: [usize; 2],
}

impl RowCopy<'_> {
    #[inline(always)]
    pub(super) fn copy<O: Ops>(self, ops: O, to: &mut [u64], hints: &mut Hints) {
        let [stride, to_stride] = self.strides;
        let units = units_of_row(self.words_of_row);
        for row in 0..self.rows {
            let from = &self.words[row * stride..][..self.words_of_row];
            ops.copy_words(from, &mut to[row * to_stride..][..self.words_of_row]);
            hints.step(units);
        }
    }
}

/// Units of work to copy or to widen a row.
pub(super) fn units_of_row(words: usize) -> usize {
    (words * size_of::<u64>()).div_ceil(UNIT_BYTES)
}

/// Rows of one head for the tokens of a range, as they lie in the storage.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct StoredRows<'a> {
    pub(in super::super) dtype: Dtype,
    /// `[tokens, words_of_row]`
    pub(in super::super) words: &'a [u64],
    pub(in super::super) words_of_row: usize,
    pub(in super::super) elements: usize,
    /// One for each token, where elements are integers.
    pub(in super::super) scales: &'a [f32],
    /// Numbers from row to row of what is made of them.
    pub(in super::super) stride: usize,
}

impl StoredRows<'_> {
    #[inline(always)]
    pub(super) fn widen<O: Ops>(self, ops: O, to: &mut [f32], hints: &mut Hints) {
        let units = units_of_row(self.words_of_row);
        let rows = self.words.chunks_exact(self.words_of_row).zip(to.chunks_exact_mut(self.stride));
        for ((words, to), scale) in rows.zip(self.scales) {
            let to = &mut to[..self.elements];
            match self.dtype {
                Dtype::F32 => to.copy_from_slice(bytemuck::cast_slice(words)),
                Dtype::F16 => ops.widen_f16(bytemuck::cast_slice(words), to),
                Dtype::Bf16 => {
                    let from: &[u16] = bytemuck::cast_slice(words);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from_bf16(*from));
                }
                Dtype::I8 => {
                    let from: &[i8] = bytemuck::cast_slice(words);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from(*from) * scale);
                }
            }
            hints.step(units);
        }
    }
}
