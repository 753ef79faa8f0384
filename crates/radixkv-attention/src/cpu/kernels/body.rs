//! The work on one range of tokens, as it is compiled for each level of processors.

use super::super::RANGE_TOKENS;
use super::hints::Hints;
use super::lanes::{LANES, Rows, product};
use super::softmax::{Score, Softmax, merge, weigh};
use crate::element::{from_bf16, from_f16};
use crate::layout::Dtype;

/// Queries whose scores are kept at once: they and a range's keys or values stay in the first cache.
pub(in super::super) const QUERIES_AT_ONCE: usize = 48;

/// What a level does by instructions that the compiler does not find.
pub(super) trait Ops: Copy {
    /// Writes rows of `from`, [`LANES`] of them, to columns of `to`, whose rows are [`RANGE_TOKENS`] long.
    #[inline(always)]
    fn transpose(self, from: &[f32], to: &mut [f32]) {
        let elements = from.len() / LANES;
        for (token, row) in from.chunks_exact(elements).enumerate() {
            row.iter().enumerate().for_each(|(i, element)| to[i * RANGE_TOKENS + token] = *element);
        }
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

/// Stored rows of one head for the tokens of a range, as they lie in the storage.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct StoredRows<'a> {
    pub(in super::super) dtype: Dtype,
    /// `[tokens, words]`
    pub(in super::super) words: &'a [u64],
    pub(in super::super) words_of_row: usize,
    pub(in super::super) elements: usize,
    /// One for each token, where elements are integers.
    pub(in super::super) scales: &'a [f32],
    /// What is asked for meanwhile.
    pub(in super::super) hints: Hints<'a>,
}

impl StoredRows<'_> {
    /// Reads the row of one token.
    #[inline(always)]
    fn widen<O: Ops>(&self, ops: O, token: usize, to: &mut [f32]) {
        let words = &self.words[token * self.words_of_row..][..self.words_of_row];
        match self.dtype {
            Dtype::F32 => to.copy_from_slice(&bytemuck::cast_slice(words)[..to.len()]),
            Dtype::F16 => ops.widen_f16(&bytemuck::cast_slice(words)[..to.len()], to),
            Dtype::Bf16 => {
                let from: &[u16] = bytemuck::cast_slice(words);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from_bf16(*from));
            }
            Dtype::I8 => {
                let (from, scale): (&[i8], f32) = (bytemuck::cast_slice(words), self.scales[token]);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from(*from) * scale);
            }
        }
    }

    /// Reads keys into columns: `to` is `[elements, RANGE_TOKENS]`. `rows` has room for [`LANES`] of them.
    #[inline(always)]
    pub(super) fn widen_keys<O: Ops>(&self, ops: O, rows: &mut [f32], to: &mut [f32]) {
        let tokens = self.words.len() / self.words_of_row;
        let rows = &mut rows[..LANES * self.elements];
        for first in (0..tokens).step_by(LANES) {
            if self.dtype == Dtype::F32 && first + LANES <= tokens {
                // As they are stored.
                let words = &self.words[first * self.words_of_row..(first + LANES) * self.words_of_row];
                ops.transpose(bytemuck::cast_slice(words), &mut to[first..]);
                (first..first + LANES).for_each(|token| self.hints.step(token, tokens));
                continue;
            }
            for (row, token) in rows.chunks_exact_mut(self.elements).zip(first..tokens) {
                self.widen(ops, token, row);
                self.hints.step(token, tokens);
            }
            ops.transpose(rows, &mut to[first..]);
        }
    }

    /// Reads values into rows of `stride`.
    #[inline(always)]
    pub(super) fn widen_values<O: Ops>(&self, ops: O, to: &mut [f32], stride: usize) {
        let tokens = self.words.len() / self.words_of_row;
        for (token, row) in (0..tokens).zip(to.chunks_exact_mut(stride)) {
            self.widen(ops, token, &mut row[..self.elements]);
            self.hints.step(token, tokens);
        }
    }
}

/// Queries of one head, and one range of its keys and values.
#[derive(Debug)]
pub(in super::super) struct RangeWork<'a> {
    /// `[queries, key elements]`
    pub(in super::super) queries: &'a [f32],
    /// `[key elements, RANGE_TOKENS]`
    pub(in super::super) keys: &'a [f32],
    /// `[RANGE_TOKENS, columns]`
    pub(in super::super) values: &'a [f32],
    /// Elements of a key.
    pub(in super::super) key_dim: usize,
    /// Elements of a value, filled up to whole vectors.
    pub(in super::super) columns: usize,
    pub(in super::super) score: Score,
    /// The tokens that each query sees, first and end.
    pub(in super::super) seen: &'a [[u32; 2]],
    /// The first token of the range.
    pub(in super::super) first: u32,
    pub(in super::super) softmax: &'a mut [Softmax],
    /// `[queries, columns]`
    pub(in super::super) out: &'a mut [f32],
    /// `[QUERIES_AT_ONCE, RANGE_TOKENS]`
    pub(in super::super) weights: &'a mut [f32],
    /// `[QUERIES_AT_ONCE, columns]`
    pub(in super::super) weighted: &'a mut [f32],
    /// What is asked for meanwhile, if the queries are few.
    pub(in super::super) hints: Hints<'a>,
}

impl RangeWork<'_> {
    #[inline(always)]
    pub(super) fn attend<const N: usize>(mut self) {
        let mut from = 0;
        while from < self.seen.len() {
            let end = self.seen.len().min(from + QUERIES_AT_ONCE);
            let visible = |query: &usize| self.tokens(*query).is_some();
            let (first, last) = ((from..end).find(visible), (from..end).rfind(visible));
            if let (Some(first), Some(last)) = (first, last) {
                self.attend_some::<N>(first, last + 1);
            }
            from = end;
        }
    }

    /// The tokens of the range that a query sees.
    #[inline(always)]
    fn tokens(&self, query: usize) -> Option<(usize, usize)> {
        let within = |token: u32| (token.saturating_sub(self.first) as usize).min(RANGE_TOKENS);
        let (first, end) = (within(self.seen[query][0]), within(self.seen[query][1]));
        (first < end).then_some((first, end))
    }

    /// Products with all keys of the range, then weights and values for neighbours that see the same tokens.
    #[inline(always)]
    fn attend_some<const N: usize>(&mut self, first: usize, end: usize) {
        let queries = Rows { numbers: &self.queries[first * self.key_dim..], stride: self.key_dim };
        let keys = Rows { numbers: self.keys, stride: RANGE_TOKENS };
        product::<N, false>(queries, end - first, keys, [self.key_dim, RANGE_TOKENS], self.weights, RANGE_TOKENS);
        let mut at = first;
        while at < end {
            let tokens = self.tokens(at);
            let same = (at + 1..end).find(|query| self.tokens(*query) != tokens).unwrap_or(end);
            if let Some(tokens) = tokens {
                self.add_values::<N>(first, at, same, tokens);
            }
            at = same;
        }
    }

    /// Merges the range into the queries `at..end`, whose products begin at that of `first`; they see the same tokens.
    #[inline(always)]
    fn add_values<const N: usize>(&mut self, first: usize, at: usize, end: usize, seen: (usize, usize)) {
        let weights = &mut self.weights[(at - first) * RANGE_TOKENS..(end - first) * RANGE_TOKENS];
        let mut ranges = [Softmax::NONE; QUERIES_AT_ONCE];
        let (few, steps) = (self.seen.len() <= QUERIES_AT_ONCE, 2 * self.seen.len());
        for (i, (range, weights)) in ranges.iter_mut().zip(weights.chunks_exact_mut(RANGE_TOKENS)).enumerate() {
            let Ok(weights) = weights.try_into() else { continue };
            *range = weigh(weights, self.score, seen.0, seen.1);
            if few {
                self.hints.step(at + i, steps);
            }
        }
        let rows = Rows { numbers: &weights[seen.0..], stride: RANGE_TOKENS };
        let values = Rows { numbers: &self.values[seen.0 * self.columns..], stride: self.columns };
        let shape = [seen.1 - seen.0, self.columns];
        product::<N, false>(rows, end - at, values, shape, self.weighted, self.columns);
        let states = self.softmax[at..end].iter_mut().zip(self.out[at * self.columns..].chunks_exact_mut(self.columns));
        let ranges = states.zip(ranges).zip(self.weighted.chunks_exact(self.columns)).enumerate();
        for (i, (((softmax, out), range), values)) in ranges {
            merge(softmax, out, range, values);
            if few {
                self.hints.step(self.seen.len() + at + i, steps);
            }
        }
    }
}
