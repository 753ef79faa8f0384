//! Rows of the storage, read as the numbers to compute with.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::word::{per_word, unpack};
use super::hints::Hints;
use super::lanes::{LANES, Lanes, Matrix, Vectors, larger, turned};
use crate::layout::Dtype;

/// Bytes of a row that are read in one unit of work (see [`Hints::step`]).
const UNIT_BYTES: usize = 48;
/// Words of a vector of `f32`.
pub(super) const WORDS: usize = LANES / 2;

/// What a level does by instructions that the compiler does not find.
pub(super) trait Ops: Copy {
    /// Reads as many elements as there are whole vectors, those of integers times `scale`; returns how many.
    #[inline(always)]
    fn read(self, _dtype: Dtype, _from: &[AtomicU64], _scale: f32, _to: &mut [f32]) -> usize {
        0
    }

    /// Reads a vector of `f32` from the first words.
    #[inline(always)]
    fn load(self, from: &[AtomicU64]) -> Lanes {
        let mut lanes = Lanes::ZERO;
        read_words(Dtype::F32, &from[..WORDS], 1.0, &mut lanes.0);
        lanes
    }

    /// Adds the products of the lanes of two. By itself the compiler takes some loops of these for loops over single numbers,
    /// and gathers those of other vectors.
    #[inline(always)]
    fn add_products(self, sum: Lanes, a: Lanes, b: Lanes) -> Lanes {
        sum.add_products(a, b)
    }

    /// Adds the lanes of each vector, in halves.
    #[inline(always)]
    fn add_lanes(self, sums: &[Lanes; LANES]) -> [f32; LANES] {
        sums.map(|sum| sum.in_halves(|a, b| a + b))
    }

    /// The largest lane of each vector, found in halves.
    #[inline(always)]
    fn max_lanes(self, numbers: &[Lanes; LANES]) -> [f32; LANES] {
        numbers.map(|numbers| numbers.in_halves(larger))
    }

    /// Rows as columns.
    #[inline(always)]
    fn turn(self, rows: &[Lanes; LANES]) -> [Lanes; LANES] {
        turned(rows)
    }
}

/// No more than any processor has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

impl Ops for Plain {}

/// Rows of one head for some tokens of a block, as they lie in the storage.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct StoredRows<'a> {
    pub(in super::super) dtype: Dtype,
    /// From the first row on.
    pub(in super::super) words: &'a [AtomicU64],
    /// Words from row to row.
    pub(in super::super) stride: usize,
    /// Elements of a row.
    pub(in super::super) elements: usize,
    /// One for each row; it counts where elements are integers.
    pub(in super::super) scales: &'a [f32],
    /// Numbers from row to row of what is made of them.
    pub(in super::super) to_stride: usize,
}

/// Rows of `f32` of one head for some tokens of a block, computed with where they lie.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RowsInPlace<'a> {
    /// From the first row on.
    pub(in super::super) words: &'a [AtomicU64],
    /// Words from row to row.
    pub(in super::super) stride: usize,
}

impl RowsInPlace<'_> {
    /// Those from a row on.
    #[inline(always)]
    pub(super) fn from(self, row: usize) -> Self {
        Self { words: &self.words[row * self.stride..], ..self }
    }
}

/// The same, with what reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct InPlace<'a, O> {
    pub(super) ops: O,
    pub(super) rows: RowsInPlace<'a>,
}

impl<O: Ops> Vectors for (O, &[AtomicU64]) {
    #[inline(always)]
    fn vector(&self, index: usize) -> Lanes {
        self.0.load(&self.1[index * WORDS..][..WORDS])
    }
}

impl<'a, O: Ops> Matrix for InPlace<'a, O> {
    type Row = (O, &'a [AtomicU64]);

    #[inline(always)]
    fn row(self, row: usize, vectors: usize) -> Self::Row {
        (self.ops, &self.rows.words[row * self.rows.stride..][..vectors * WORDS])
    }

    #[inline(always)]
    fn rows(self, count: usize) -> impl Iterator<Item = Self::Row> {
        self.rows.words.chunks(self.rows.stride).take(count).map(move |row| (self.ops, row))
    }
}

/// Units of work to read a row.
pub(super) fn units_of_row(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

impl StoredRows<'_> {
    /// Reads as many rows as there are scales.
    #[inline(always)]
    pub(super) fn read<O: Ops>(self, ops: O, to: &mut [f32], hints: &mut Hints) {
        // The type is chosen once, not for each row.
        match self.dtype {
            Dtype::F32 => self.read_all::<O, 2>(ops, Dtype::F32, to, hints),
            Dtype::F16 => self.read_all::<O, 4>(ops, Dtype::F16, to, hints),
            Dtype::Bf16 => self.read_all::<O, 4>(ops, Dtype::Bf16, to, hints),
            Dtype::I8 => self.read_all::<O, 8>(ops, Dtype::I8, to, hints),
        }
    }

    /// As `read`, for words of `EACH` elements of `dtype`.
    #[inline(always)]
    fn read_all<O: Ops, const EACH: usize>(self, ops: O, dtype: Dtype, to: &mut [f32], hints: &mut Hints) {
        let words_of_row = self.elements / EACH;
        let units = units_of_row(words_of_row * size_of::<u64>());
        for (row, scale) in self.scales.iter().enumerate() {
            let from = &self.words[row * self.stride..][..words_of_row];
            let to = &mut to[row * self.to_stride..][..self.elements];
            let done = ops.read(dtype, from, *scale, to);
            if done < to.len() {
                read_words(dtype, &from[done / EACH..], *scale, &mut to[done..]);
            }
            hints.step(units);
        }
    }
}

/// Reads elements word by word.
#[inline(always)]
fn read_words(dtype: Dtype, from: &[AtomicU64], scale: f32, to: &mut [f32]) {
    for (to, from) in to.chunks_exact_mut(per_word(dtype)).zip(from) {
        // Relaxed: the cache orders it, by the edge from the insertion of the block to the lease on it.
        unpack(dtype, from.load(Relaxed), to);
        if dtype == Dtype::I8 {
            to.iter_mut().for_each(|element| *element *= scale);
        }
    }
}
