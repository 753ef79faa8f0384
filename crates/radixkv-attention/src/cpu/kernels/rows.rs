//! Reads rows of the storage as `f32`: into a buffer ([`StoredRows`]), or in place
//! ([`RowsInPlace`]).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::word::{per_word, unpack};
use super::hints::Hints;
use super::lanes::{LANES, Lanes, Matrix, Vectors, larger, turned};
use crate::layout::Dtype;

/// Bytes of a row that are read in one unit of work (see [`Hints::step`]).
const UNIT_BYTES: usize = 48;

/// Operations of a level by instructions that the compiler does not choose on its own.
pub(super) trait Ops: Copy {
    /// Reads all whole vectors of elements, 8-bit elements times `scale`; returns the number of
    /// elements read.
    #[inline(always)]
    fn read(self, _dtype: Dtype, _from: &[AtomicU64], _scale: f32, _to: &mut [f32]) -> usize {
        0
    }

    /// Reads a vector of elements from the first words, 8-bit elements times `scale`.
    #[inline(always)]
    fn load(self, dtype: Dtype, from: &[AtomicU64], scale: f32) -> Lanes {
        let (mut lanes, from) = (Lanes::ZERO, &from[..LANES / per_word(dtype)]);
        if self.read(dtype, from, scale, &mut lanes.0) < LANES {
            read_words(dtype, from, scale, &mut lanes.0);
        }
        lanes
    }

    /// Adds the products of `a` and `b` to `sum`, lane by lane. Without this, the compiler turns
    /// some loops of such sums into scalar loops, which gather from several vectors.
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

    /// Transposes sixteen rows.
    #[inline(always)]
    fn turn(self, rows: &[Lanes; LANES]) -> [Lanes; LANES] {
        turned(rows)
    }
}

/// The operations without special instructions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

impl Ops for Plain {}

/// Rows of one head for some tokens of a block, as they are stored.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct StoredRows<'a> {
    pub(in super::super) dtype: Dtype,
    /// The words from the first row on.
    pub(in super::super) words: &'a [AtomicU64],
    /// Words from row to row.
    pub(in super::super) stride: usize,
    /// Elements of a row.
    pub(in super::super) elements: usize,
    /// One for each row; used if elements have 8 bits.
    pub(in super::super) scales: &'a [f32],
    /// Numbers from row to row of the buffer that they are read into.
    pub(in super::super) to_stride: usize,
}

/// Rows of one head for some tokens of a block, used in place.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RowsInPlace<'a> {
    pub(in super::super) dtype: Dtype,
    /// The words from the first row on.
    pub(in super::super) words: &'a [AtomicU64],
    /// Words from row to row.
    pub(in super::super) stride: usize,
    /// One for each row; used if elements have 8 bits.
    pub(in super::super) scales: &'a [f32],
}

impl RowsInPlace<'_> {
    /// The rows from `row` on.
    #[inline(always)]
    pub(super) fn from(self, row: usize) -> Self {
        Self { words: &self.words[row * self.stride..], scales: &self.scales[row..], ..self }
    }
}

/// A type of elements that is known at compile time, so that it is chosen once and not for each
/// vector.
pub(super) trait Stored: Copy {
    const DTYPE: Dtype;

    /// The factor of the elements of a row.
    #[inline(always)]
    fn scale(scales: &[f32], row: usize) -> f32 {
        if Self::DTYPE.has_scales() { scales[row] } else { 1.0 }
    }

    /// Words of a vector.
    #[inline(always)]
    fn words() -> usize {
        LANES / per_word(Self::DTYPE)
    }
}

macro_rules! stored {
    ($($name:ident)*) => {
        $(
            #[derive(Debug, Clone, Copy)]
            pub(super) struct $name;

            impl Stored for $name {
                const DTYPE: Dtype = Dtype::$name;
            }
        )*
    };
}

stored!(F32 F16 Bf16 I8 E4m3);

/// Rows in place, with the operations that read them and the type of their elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct InPlace<'a, O, S> {
    ops: O,
    rows: RowsInPlace<'a>,
    stored: S,
}

impl<'a, O, S> InPlace<'a, O, S> {
    #[inline(always)]
    pub(super) fn new(ops: O, rows: RowsInPlace<'a>, stored: S) -> Self {
        Self { ops, rows, stored }
    }
}

/// A row in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowInPlace<'a, O, S> {
    ops: O,
    words: &'a [AtomicU64],
    scale: f32,
    _stored: S,
}

impl<O: Ops, S: Stored> Vectors for RowInPlace<'_, O, S> {
    #[inline(always)]
    fn vectors<const N: usize>(&self, first: usize) -> [Lanes; N] {
        let words = &self.words[first * S::words()..][..N * S::words()];
        std::array::from_fn(|n| self.ops.load(S::DTYPE, &words[n * S::words()..], self.scale))
    }
}

impl<'a, O: Ops, S: Stored> Matrix for InPlace<'a, O, S> {
    type Row = RowInPlace<'a, O, S>;

    #[inline(always)]
    fn row(self, row: usize, vectors: usize) -> Self::Row {
        let words = &self.rows.words[row * self.rows.stride..][..vectors * S::words()];
        RowInPlace { ops: self.ops, words, scale: S::scale(self.rows.scales, row), _stored: self.stored }
    }

    #[inline(always)]
    fn rows(self, count: usize) -> impl Iterator<Item = Self::Row> {
        let rows = self.rows.words.chunks(self.rows.stride).take(count).enumerate();
        rows.map(move |(row, words)| RowInPlace {
            ops: self.ops,
            words,
            scale: S::scale(self.rows.scales, row),
            _stored: self.stored,
        })
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
            Dtype::I8 | Dtype::I8Static => self.read_all::<O, 8>(ops, Dtype::I8, to, hints),
            Dtype::E4m3 | Dtype::E4m3Static => self.read_all::<O, 8>(ops, Dtype::E4m3, to, hints),
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
        // Relaxed: the cache orders this load, by the edge from the insertion of the block to the
        // lease on it.
        unpack(dtype, from.load(Relaxed), to);
        if dtype.has_scales() {
            to.iter_mut().for_each(|element| *element *= scale);
        }
    }
}
