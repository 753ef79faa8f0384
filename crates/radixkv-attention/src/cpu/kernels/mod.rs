//! The numeric loops of the CPU backends, compiled for several sets of instructions ([`Level`]).
//! The best set that the processor has is chosen at run time.
//!
//! `ranges`, `apart` and `read` call them for attention, `matrix` for products with weights.

mod body;
mod columns;
mod hints;
mod lanes;
mod memory;
mod panel;
mod rows;
mod scores;
mod softmax;
#[cfg(target_arch = "x86_64")]
mod vectors;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use body::{MergeWork, PartRows, PartWork, QUERIES_AT_ONCE, TOKENS_AT_ONCE, units};
pub(super) use hints::Hints;
pub(super) use lanes::LANES;
pub(super) use panel::{PANEL, PART, Panel, PanelWork};
pub(super) use rows::{RowsInPlace, StoredRows};
pub(super) use softmax::{RowView, Score, Softmax, Views};

use crate::layout::Dtype;
use rows::Plain;

/// The most queries of a head for which rows are used in place.
const QUERIES_IN_PLACE: usize = 16;

/// A set of instructions that this processor has. All levels compute the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// The instructions for which the crate was compiled.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
}

impl Level {
    /// The levels of this processor, the best one last.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let more = [x86::Avx2::detect().map(Self::Avx2), x86::Avx512::detect().map(Self::Avx512)];
        #[cfg(not(target_arch = "x86_64"))]
        let more: [Option<Self>; 0] = [];
        [Some(Self::Plain)].into_iter().chain(more).flatten()
    }

    /// The best level of this processor.
    pub(super) fn best() -> Self {
        Self::all().last().unwrap_or(Self::Plain)
    }

    /// Whether rows are used in place for `queries` queries, and so are read and widened again for
    /// every few queries. Copying the rows of `f32` first makes decoding take 0.85 of the time with
    /// AVX-512, and 1.25 of it without.
    pub(super) fn computes_in_place(self, dtype: Dtype, queries: usize) -> bool {
        #[cfg(target_arch = "x86_64")]
        let copies = matches!(self, Self::Avx512(_)) && dtype == Dtype::F32;
        #[cfg(not(target_arch = "x86_64"))]
        let copies = false;
        !copies && queries <= QUERIES_IN_PLACE
    }

    /// Products with the keys of a part of a range.
    pub(super) fn add_keys(self, work: PartWork<'_>) {
        match self {
            Self::Plain => work.add_keys::<1, Plain>(Plain),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.add_keys(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(level) => level.add_keys(work),
        }
    }

    /// Transposes [`LANES`] keys to columns of a range; `shape` is the index of the first key in
    /// the range, and the elements of a key.
    pub(super) fn turn(self, keys: &[f32], shape: [usize; 2], columns: &mut [f32]) {
        match self {
            Self::Plain => columns::turn(Plain, keys, shape, columns),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.turn(keys, shape, columns),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(level) => level.turn(keys, shape, columns),
        }
    }

    /// Products with the keys of a whole range, which were transposed into columns.
    pub(super) fn add_columns(self, work: PartWork<'_>) {
        match self {
            Self::Plain => work.add_columns::<1>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.add_columns(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(level) => level.add_columns(work),
        }
    }

    /// Adds the weighted values of a part of a range, after the keys of all its parts; with the
    /// last part merges the range.
    pub(super) fn add_values(self, work: PartWork<'_>, last: bool) {
        match self {
            Self::Plain => work.add_values::<1, Plain>(Plain, last),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.add_values(work, last),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(level) => level.add_values(work, last),
        }
    }

    /// Merges the sums of a range.
    pub(super) fn merge(self, work: MergeWork<'_>) {
        match self {
            Self::Plain => work.merge(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.merge(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(level) => level.merge(work),
        }
    }

    /// Multiplies rows with a panel of weights.
    pub(super) fn multiply(self, work: PanelWork<'_>) {
        match self {
            Self::Plain => work.multiply::<1>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.multiply(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(level) => level.multiply(work),
        }
    }

    /// Reads rows of the storage.
    pub(super) fn read(self, rows: StoredRows<'_>, to: &mut [f32], hints: &mut Hints) {
        match self {
            Self::Plain => rows.read(Plain, to, hints),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.read(rows, to, hints),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(level) => level.read(rows, to, hints),
        }
    }
}

/// Divides by the sum of the weights; returns the log-sum-exp.
pub(super) fn finish(softmax: Softmax, sink: Option<f32>, out: &mut [f32]) -> f32 {
    softmax::finish(softmax, sink, out)
}
