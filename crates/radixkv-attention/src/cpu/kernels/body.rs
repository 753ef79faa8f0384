//! The work on one range of tokens, which is compiled for each [`Level`](super::Level).
//!
//! `ranges` and `apart` describe the work ([`PartWork`], [`MergeWork`]). Products are computed by
//! `scores`, `columns` and `lanes`, weights and merges by `softmax`.

use std::ops::Range;

use super::super::RANGE_TOKENS;
use super::columns;
use super::hints::Hints;
use super::lanes::{LANES, Matrix, Rows, product};
use super::rows::{Bf16, E4m3, F16, F32, I8, InPlace, Ops, RowsInPlace, units_of_row};
use super::scores::{UNITS_OF_PRODUCTS, products};
use super::softmax::{Score, Softmax, Views, merge, merge_values, weigh};
use crate::layout::{Dtype, Half};

/// The most queries whose scores are kept at once: with some of a range's keys or values they fit
/// into the L1 cache.
pub(in super::super) const QUERIES_AT_ONCE: usize = 48;
/// Tokens whose keys or values are read at once if there are few queries: they fit into the L1
/// cache.
pub(in super::super) const TOKENS_AT_ONCE: usize = 16;
/// Work to add the values of that many tokens to one vector, in the units of [`Hints::step`].
const UNITS_OF_VALUES: usize = 1;

/// At most [`QUERIES_AT_ONCE`] queries of one head, and a part of the keys or values of a range.
#[derive(Debug)]
pub(in super::super) struct PartWork<'a> {
    /// `[queries, key_columns]`
    pub(in super::super) queries: &'a [f32],
    /// The keys of the part, `[tokens, key_columns]`, or those of the whole range as columns,
    /// `[key_columns, RANGE_TOKENS]`; or the values of the part, `[tokens, columns]`.
    pub(in super::super) rows: PartRows<'a>,
    /// Elements of a key, padded with zeros to whole vectors.
    pub(in super::super) key_columns: usize,
    /// Elements of a value, padded to whole vectors.
    pub(in super::super) columns: usize,
    pub(in super::super) score: Score,
    pub(in super::super) views: Views<'a>,
    /// The tokens that each query sees, first and end.
    pub(in super::super) seen: &'a [[u32; 2]],
    /// The first token of the range.
    pub(in super::super) first: u32,
    /// The tokens of the part, counted from `first`.
    pub(in super::super) part: Range<usize>,
    pub(in super::super) softmax: &'a mut [Softmax],
    /// `[queries, columns]`
    pub(in super::super) out: &'a mut [f32],
    /// The maxima and sums of this range only; `weights` and `weighted` are also of this range
    /// only.
    pub(in super::super) range: &'a mut [Softmax],
    /// `[queries, RANGE_TOKENS]`
    pub(in super::super) weights: &'a mut [f32],
    /// `[queries, columns]`
    pub(in super::super) weighted: &'a mut [f32],
    /// What is prefetched meanwhile.
    pub(in super::super) hints: &'a mut Hints,
}

/// The sums of a range for some queries, and the sums of the ranges before it, into which they are
/// merged.
#[derive(Debug)]
pub(in super::super) struct MergeWork<'a> {
    /// Elements of a value, padded to whole vectors.
    pub(in super::super) columns: usize,
    pub(in super::super) softmax: &'a mut [Softmax],
    /// `[queries, columns]`
    pub(in super::super) out: &'a mut [f32],
    /// The maxima and sums of this range only; `weighted` is also of this range only.
    pub(in super::super) range: &'a [Softmax],
    /// `[queries, columns]`
    pub(in super::super) weighted: &'a [f32],
}

/// Keys or values of a part of a range.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum PartRows<'a> {
    Widened(&'a [f32]),
    /// Rows as they are stored; the number of keys is a multiple of [`LANES`].
    InPlace(RowsInPlace<'a>),
}

/// Units of work (see [`Hints::step`]) to read some keys or values, whose rows have `bytes` bytes
/// and `columns` columns, and to compute with them for some queries.
pub(in super::super) fn units(half: Half, [tokens, queries]: [usize; 2], [bytes, columns]: [usize; 2]) -> [usize; 2] {
    let each = match half {
        Half::Keys => tokens.div_ceil(LANES) * UNITS_OF_PRODUCTS,
        Half::Values => columns / LANES * UNITS_OF_VALUES,
    };
    [tokens * units_of_row(bytes), queries * each]
}

impl PartWork<'_> {
    /// The first and the end of the range's tokens that a query sees.
    #[inline(always)]
    fn tokens(&self, query: usize) -> Option<(usize, usize)> {
        let within = |token: u32| (token.saturating_sub(self.first) as usize).min(RANGE_TOKENS);
        let (first, end) = (within(self.seen[query][0]), within(self.seen[query][1]));
        (first < end).then_some((first, end))
    }

    /// The queries from the first to the last one that see a token of the range.
    #[inline(always)]
    fn seeing(&self) -> Option<Range<usize>> {
        let sees = |query: &usize| self.tokens(*query).is_some();
        let all = 0..self.seen.len();
        Some(all.clone().find(sees)?..all.clone().rfind(sees)? + 1)
    }

    /// Products with the keys of the part.
    #[inline(always)]
    pub(super) fn add_keys<const N: usize, O: Ops>(self, ops: O) {
        match self.rows {
            PartRows::Widened(numbers) => {
                let stride = self.key_columns;
                self.add_products::<N, O>(ops, Rows { numbers, stride });
            }
            PartRows::InPlace(rows) => match rows.dtype {
                Dtype::F16 => self.add_products::<N, O>(ops, InPlace::new(ops, rows, F16)),
                Dtype::Bf16 => self.add_products::<N, O>(ops, InPlace::new(ops, rows, Bf16)),
                Dtype::F32 => self.add_products::<N, O>(ops, InPlace::new(ops, rows, F32)),
                Dtype::I8 | Dtype::I8Static => self.add_products::<N, O>(ops, InPlace::new(ops, rows, I8)),
                Dtype::E4m3 | Dtype::E4m3Static => self.add_products::<N, O>(ops, InPlace::new(ops, rows, E4m3)),
            },
        }
    }

    /// Products with some keys.
    #[inline(always)]
    fn add_products<const N: usize, O: Ops>(self, ops: O, keys: impl Matrix) {
        let Some(queries) = self.seeing() else { return };
        let counts = [queries.len(), self.part.len(), self.key_columns];
        let to = &mut self.weights[queries.start * RANGE_TOKENS + self.part.start..];
        let queries = Rows { numbers: self.queries, stride: self.key_columns }.from(queries.start);
        products::<N, O>(ops, queries, keys, counts, to, self.hints);
    }

    /// Products with the keys of the whole range, which were transposed into columns.
    #[inline(always)]
    pub(super) fn add_columns<const N: usize>(self) {
        let (Some(queries), PartRows::Widened(columns)) = (self.seeing(), self.rows) else { return };
        let rows = Rows { numbers: self.queries, stride: self.key_columns }.from(queries.start);
        let to = &mut self.weights[queries.start * RANGE_TOKENS..];
        let shape = [queries.len(), self.key_columns];
        if N > 1 {
            columns::products::<6>(rows, columns, shape, to, self.hints);
        } else {
            columns::products::<2>(rows, columns, shape, to, self.hints);
        }
    }

    /// Computes the weights before the first part, adds the values of the part, and merges the
    /// range after the last part.
    #[inline(always)]
    pub(super) fn add_values<const N: usize, O: Ops>(mut self, ops: O, last: bool) {
        let queries = self.seen.len();
        let mut at = 0;
        while at < queries {
            let tokens = self.tokens(at);
            let same = (at + 1..queries).find(|query| self.tokens(*query) != tokens).unwrap_or(queries);
            if let Some(tokens) = tokens {
                self.add_values_of::<N, O>(ops, at..same, tokens, last);
            }
            at = same;
        }
    }

    /// As `add_values`, for neighbouring queries that see the same tokens.
    #[inline(always)]
    fn add_values_of<const N: usize, O: Ops>(
        &mut self,
        ops: O,
        queries: Range<usize>,
        seen: (usize, usize),
        last: bool,
    ) {
        let groups = queries.clone().step_by(LANES).map(|first| first..queries.end.min(first + LANES));
        if self.part.start == 0 {
            for queries in groups.clone() {
                let weights = &mut self.weights[queries.start * RANGE_TOKENS..queries.end * RANGE_TOKENS];
                let views = self.views.of(queries.clone(), self.first);
                weigh(ops, weights, self.score, views, [seen.0, seen.1], &mut self.range[queries]);
            }
        }
        let tokens = seen.0.max(self.part.start)..seen.1.min(self.part.end);
        if tokens.start < tokens.end {
            let first = tokens.start - self.part.start;
            let of = (queries.clone(), tokens.clone(), tokens.start == seen.0);
            match self.rows {
                PartRows::Widened(numbers) => {
                    self.add_weighted::<N>(of, Rows { numbers, stride: self.columns }.from(first));
                }
                PartRows::InPlace(rows) => {
                    let rows = rows.from(first);
                    match rows.dtype {
                        Dtype::F32 => self.add_weighted::<N>(of, InPlace::new(ops, rows, F32)),
                        Dtype::F16 => self.add_weighted::<N>(of, InPlace::new(ops, rows, F16)),
                        Dtype::Bf16 => self.add_weighted::<N>(of, InPlace::new(ops, rows, Bf16)),
                        Dtype::I8 | Dtype::I8Static => self.add_weighted::<N>(of, InPlace::new(ops, rows, I8)),
                        Dtype::E4m3 | Dtype::E4m3Static => {
                            self.add_weighted::<N>(of, InPlace::new(ops, rows, E4m3));
                        }
                    }
                }
            }
        }
        if last {
            self.merge(queries);
        }
    }

    /// Adds the values of some tokens of the range, times their weights for some queries; begins
    /// the sums with them if `begins`.
    #[inline(always)]
    fn add_weighted<const N: usize>(
        &mut self,
        (queries, tokens, begins): (Range<usize>, Range<usize>, bool),
        values: impl Matrix,
    ) {
        let weights = &self.weights[queries.start * RANGE_TOKENS + tokens.start..];
        let weights = Rows { numbers: weights, stride: RANGE_TOKENS };
        let (stride, shape) = (self.columns, [tokens.len(), self.columns]);
        let weighted = &mut self.weighted[queries.start * stride..];
        let asks = |vectors, steps| self.hints.run(vectors * UNITS_OF_VALUES, steps);
        if begins {
            product::<N, false>(weights, queries.len(), values, shape, weighted, stride, asks);
        } else {
            product::<N, true>(weights, queries.len(), values, shape, weighted, stride, asks);
        }
    }

    /// Merges the range into some queries.
    #[inline(always)]
    fn merge(&mut self, queries: Range<usize>) {
        let rows = queries.start * self.columns..queries.end * self.columns;
        let work = MergeWork {
            columns: self.columns,
            softmax: &mut self.softmax[queries.clone()],
            out: &mut self.out[rows.clone()],
            range: &self.range[queries],
            weighted: &self.weighted[rows],
        };
        work.merge();
    }
}

impl MergeWork<'_> {
    #[inline(always)]
    pub(super) fn merge(self) {
        let states = self.softmax.chunks_mut(LANES).zip(self.range.chunks(LANES));
        let rows = self.out.chunks_mut(LANES * self.columns).zip(self.weighted.chunks(LANES * self.columns));
        // Loops, since a closure would be compiled separately, without the instructions of the
        // level.
        for ((softmax, range), (out, weighted)) in states.zip(rows) {
            let [earlier, new] = merge(softmax, range);
            let rows = out.chunks_exact_mut(self.columns).zip(weighted.chunks_exact(self.columns));
            for ((out, values), factors) in rows.zip(earlier.into_iter().zip(new)) {
                merge_values(out, values, factors.into());
            }
        }
    }
}

// Products fill whole vectors of weights.
const _: () = assert!(TOKENS_AT_ONCE % LANES == 0 && RANGE_TOKENS % TOKENS_AT_ONCE == 0);
