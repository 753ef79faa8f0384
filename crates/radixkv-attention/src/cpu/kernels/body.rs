//! The work on one range of tokens, as it is compiled for each level of processors.

use super::super::RANGE_TOKENS;
use super::hints::Hints;
use super::lanes::{LANES, Rows, product};
use super::rows::{Ops, units_of_row};
use super::scores::{UNITS_OF_PRODUCTS, products};
use super::softmax::{Score, Softmax, merge, weigh};

/// Queries whose scores are kept at once: they and some of a range's keys or values stay in the first cache.
pub(in super::super) const QUERIES_AT_ONCE: usize = 48;
/// Tokens whose values are added before memory is asked for again, where queries are few.
const TOKENS_AT_ONCE: usize = 16;
/// Work to add the values of so many tokens for one query, in the units of [`Hints::step`].
const UNITS_OF_VALUES: usize = 4;

/// Queries of one head, and one range of its keys and values.
#[derive(Debug)]
pub(in super::super) struct RangeWork<'a> {
    /// `[queries, key_columns]`
    pub(in super::super) queries: &'a [f32],
    /// `[RANGE_TOKENS, key_columns]`
    pub(in super::super) keys: &'a [f32],
    /// `[RANGE_TOKENS, columns]`
    pub(in super::super) values: &'a [f32],
    /// Elements of a key, filled up with zeros to whole vectors.
    pub(in super::super) key_columns: usize,
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
    /// What is asked for meanwhile.
    pub(in super::super) hints: &'a mut Hints,
}

/// Units of work on a range for so many queries (see [`Hints::step`]): to copy and widen rows of so many words, the scores,
/// and the values.
pub(in super::super) fn units(queries: usize, words_of_rows: [usize; 2]) -> usize {
    let rows: usize = words_of_rows.into_iter().map(|words| 2 * RANGE_TOKENS * units_of_row(words)).sum();
    let each = RANGE_TOKENS / LANES * UNITS_OF_PRODUCTS + RANGE_TOKENS / TOKENS_AT_ONCE * UNITS_OF_VALUES;
    rows + queries * each
}

impl RangeWork<'_> {
    #[inline(always)]
    pub(super) fn attend<const N: usize, O: Ops>(mut self, ops: O) {
        let mut from = 0;
        while from < self.seen.len() {
            let end = self.seen.len().min(from + QUERIES_AT_ONCE);
            let visible = |query: &usize| self.tokens(*query).is_some();
            let (first, last) = ((from..end).find(visible), (from..end).rfind(visible));
            if let (Some(first), Some(last)) = (first, last) {
                self.attend_some::<N, O>(ops, first, last + 1);
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

    /// Products with the keys of the range, then weights and values for neighbours that see the same tokens.
    #[inline(always)]
    fn attend_some<const N: usize, O: Ops>(&mut self, ops: O, first: usize, end: usize) {
        let last = (first..end).filter_map(|query| self.tokens(query)).map(|(_, end)| end).max().unwrap_or(0);
        let stride = self.key_columns;
        let queries = Rows { numbers: &self.queries[first * stride..], stride };
        let keys = Rows { numbers: self.keys, stride };
        let counts = [end - first, last, stride];
        if N > 1 {
            products::<true, O>(ops, [queries, keys], counts, self.weights, self.hints);
        } else {
            products::<false, O>(ops, [queries, keys], counts, self.weights, self.hints);
        }
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
        for (range, weights) in ranges.iter_mut().zip(weights.chunks_exact_mut(RANGE_TOKENS)) {
            let Ok(weights) = weights.try_into() else { continue };
            *range = weigh(weights, self.score, seen.0, seen.1);
        }
        self.weigh_values::<N>((at - first) * RANGE_TOKENS, end - at, seen);
        let states = self.softmax[at..end].iter_mut().zip(self.out[at * self.columns..].chunks_exact_mut(self.columns));
        for (((softmax, out), range), values) in states.zip(ranges).zip(self.weighted.chunks_exact(self.columns)) {
            merge(softmax, out, range, values);
        }
    }

    /// The weighted values of `count` queries, whose weights begin at `weights`.
    #[inline(always)]
    fn weigh_values<const N: usize>(&mut self, weights: usize, count: usize, seen: (usize, usize)) {
        let few = self.seen.len() <= QUERIES_AT_ONCE;
        let at_once = if few { TOKENS_AT_ONCE } else { RANGE_TOKENS };
        let mut from = seen.0;
        while from < seen.1 {
            let end = seen.1.min(from + at_once);
            let rows = Rows { numbers: &self.weights[weights + from..], stride: RANGE_TOKENS };
            let values = Rows { numbers: &self.values[from * self.columns..], stride: self.columns };
            let shape = [end - from, self.columns];
            if from == seen.0 {
                product::<N, false>(rows, count, values, shape, self.weighted, self.columns);
            } else {
                product::<N, true>(rows, count, values, shape, self.weighted, self.columns);
            }
            self.hints.step(count * UNITS_OF_VALUES);
            from = end;
        }
    }
}
