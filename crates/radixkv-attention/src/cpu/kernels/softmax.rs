//! The definition of attention, sum by sum. Each sum has one order, so every output has one value,
//! to the bit.
//!
//! For one query and the tokens that it sees:
//!
//! 1. **Score**: sixteen lanes. Lane `l` is a chain of fused multiply-adds over the head's elements
//!    `l`, `l + 16`, and so on, from zero; a head that ends within a vector is continued with
//!    zeros. The lanes are added in halves (eight and eight, four and four, and so on), and the sum
//!    is multiplied by the scale. With a soft-cap `c` the score becomes `c * tanh(score / c)`. With
//!    an ALiBi slope `m`, the product of `-m` and the distance of the key from the row, in tokens,
//!    is then added by a fused multiply-add. With a tree, new tokens that a row does not see have
//!    the score negative infinity.
//! 2. **Range**: the tokens `64 i..64 (i + 1)` of the sequence are summed separately. A weight is
//!    `exp(score - max)`, where `max` is the largest score of the range. The sum of weights runs
//!    over sixteen lanes, lane `l` over the tokens `l`, `l + 16`, `l + 32`, `l + 48` in turn, and
//!    the lanes are added in halves. A weighted value is a chain of fused multiply-adds over the
//!    tokens in turn, from zero.
//! 3. **Merge**: ranges are merged in the order of the sequence, from left to right, each scaled to
//!    the larger maximum.
//! 4. **Finish**: a sink, if the head has one, is one more weight without a value; then the
//!    weighted values are divided by the sum of weights.
//!
//! `exp` and `tanh` are the functions below, not those of a platform. Multiplications and additions
//! are fused on every processor: with AVX2 a tile of products is 1.2 to 1.3 times as fast as with
//! separate instructions. All processors with AVX2 and all of 64-bit Arm have the fused
//! instruction; a processor without it computes the same bits slowly.
//!
//! A score that is NaN or positive infinity makes all of its query's outputs NaN. A score of
//! negative infinity has the weight 0. If all scores of a query are that and its head has no sink,
//! the sum of weights is 0 and the query's outputs are NaN.

use super::super::RANGE_TOKENS;
use super::lanes::{LANES, Lanes, larger};
use super::rows::Ops;

/// How a product of query and key becomes a score.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Score {
    pub(in super::super) scale: f32,
    pub(in super::super) soft_cap: Option<f32>,
}

/// Which tokens of a tree of new tokens a row sees, and the row's position.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RowView {
    /// One more than the position from which slopes count.
    pub(in super::super) position: u32,
    /// The first new token.
    pub(in super::super) base: u32,
    /// A bit for each new token that the row sees; all bits if there is no tree.
    pub(in super::super) tree: u32,
}

/// The views of some queries of one head; empty if scores do not depend on them.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Views<'a> {
    pub(in super::super) rows: &'a [RowView],
    /// The slopes of the head's query heads, or none.
    pub(in super::super) slopes: &'a [f32],
    /// Index of the first query; queries take the query heads in turn.
    pub(in super::super) first_query: usize,
}

/// The views of some queries, and the first token of the range.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeViews<'a> {
    views: Views<'a>,
    first: u32,
}

impl<'a> Views<'a> {
    #[inline(always)]
    pub(super) fn of(self, queries: std::ops::Range<usize>, first: u32) -> RangeViews<'a> {
        let first_query = self.first_query + queries.start;
        let rows = if self.rows.is_empty() { &[] } else { &self.rows[queries] };
        RangeViews { views: Self { rows, first_query, ..self }, first }
    }
}

impl RangeViews<'_> {
    /// Applies slopes and trees to the scores of query `index`.
    #[inline(always)]
    fn apply(self, index: usize, scores: &mut [f32]) {
        let Some(view) = self.views.rows.get(index) else { return };
        if !self.views.slopes.is_empty() {
            let slope = self.views.slopes[(self.views.first_query + index) % self.views.slopes.len()];
            // Tokens after the row have negative distances, but the row does not see them.
            let last = i64::from(view.position) - 1 - i64::from(self.first);
            for (token, score) in scores.iter_mut().enumerate() {
                *score = (-slope).mul_add((last - token as i64) as f32, *score);
            }
        }
        let new = (view.base.saturating_sub(self.first) as usize).min(scores.len());
        for (token, score) in scores.iter_mut().enumerate().skip(new) {
            let bit = self.first + token as u32 - view.base;
            if view.tree != u32::MAX && (bit >= 32 || view.tree >> bit & 1 == 0) {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}

/// The largest score and the sum of weights: of a range, or of the ranges merged so far.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Softmax {
    pub(in super::super) max: f32,
    pub(in super::super) sum: f32,
}

impl Softmax {
    /// The state of no tokens.
    pub(in super::super) const NONE: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Turns the products of at most [`LANES`] queries with a range, `[queries, RANGE_TOKENS]`, into
/// the weights of the range's tokens `first..end`; all other tokens get 0.
#[inline(always)]
pub(super) fn weigh<O: Ops>(
    ops: O,
    rows: &mut [f32],
    score: Score,
    views: RangeViews<'_>,
    [first, end]: [usize; 2],
    ranges: &mut [Softmax],
) {
    let mut most = [Lanes([f32::NEG_INFINITY; LANES]); LANES];
    for (index, (row, most)) in rows.chunks_exact_mut(RANGE_TOKENS).zip(&mut most).enumerate() {
        row.iter_mut().for_each(|product| *product *= score.scale);
        if let Some(cap) = score.soft_cap {
            row.iter_mut().for_each(|score| *score = cap * tanh(*score / cap));
        }
        views.apply(index, row);
        if end - first < RANGE_TOKENS {
            row[..first].fill(f32::NEG_INFINITY);
            row[end..].fill(f32::NEG_INFINITY);
        }
        // The largest score ignores NaN; the sum of weights does not.
        *most = row.chunks_exact(LANES).fold(*most, |most, scores| most.zip(Lanes::load(scores), larger));
    }
    let most = ops.max_lanes(&most);
    let mut sums = [Lanes::ZERO; LANES];
    for ((row, most), sums) in rows.chunks_exact_mut(RANGE_TOKENS).zip(most).zip(&mut sums) {
        let base = if most == f32::NEG_INFINITY { 0.0 } else { most };
        for scores in row.chunks_exact_mut(LANES) {
            let weights = Lanes::load(scores).map(|score| exp(score - base));
            scores.copy_from_slice(&weights.0);
            *sums = sums.zip(weights, |sum, weight| sum + weight);
        }
    }
    let sums = ops.add_lanes(&sums);
    for (range, (max, sum)) in ranges.iter_mut().zip(most.into_iter().zip(sums)) {
        *range = Softmax { max, sum };
    }
}

/// Merges the next range of at most [`LANES`] queries to the right of those merged so far. Returns
/// the factors of the weighted values so far, and of the range's weighted values.
#[inline(always)]
pub(super) fn merge(so_far: &mut [Softmax], ranges: &[Softmax]) -> [[f32; LANES]; 2] {
    let (mut earlier, mut new) = ([Softmax::NONE; LANES], [Softmax::NONE; LANES]);
    earlier[..so_far.len()].copy_from_slice(so_far);
    new[..ranges.len()].copy_from_slice(ranges);
    let mut factors = [[0.0; LANES]; 2];
    for i in 0..LANES {
        let most = larger(earlier[i].max, new[i].max);
        let base = if most == f32::NEG_INFINITY { 0.0 } else { most };
        // Where both are negative infinity nothing has a weight, and nothing is scaled.
        let scale = |max: f32| if max == most { 1.0 } else { exp(max - base) };
        (factors[0][i], factors[1][i]) = (scale(earlier[i].max), scale(new[i].max));
        earlier[i] = Softmax { max: most, sum: new[i].sum.mul_add(factors[1][i], earlier[i].sum * factors[0][i]) };
    }
    so_far.copy_from_slice(&earlier[..so_far.len()]);
    factors
}

/// Merges the weighted values of a query.
#[inline(always)]
pub(super) fn merge_values(out: &mut [f32], values: &[f32], [earlier, new]: [f32; 2]) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out = value.mul_add(new, *out * earlier));
}

/// Divides by the sum of the weights, including the sink's; returns the log-sum-exp of the scores.
#[inline(always)]
pub(super) fn finish(softmax: Softmax, sink: Option<f32>, out: &mut [f32]) -> f32 {
    let Softmax { mut max, mut sum } = softmax;
    if let Some(sink) = sink.filter(|sink| *sink != f32::NEG_INFINITY) {
        let larger = if max > sink { max } else { sink };
        let earlier = exp(max - larger);
        sum = sum.mul_add(earlier, exp(sink - larger));
        max = larger;
        out.iter_mut().for_each(|out| *out *= earlier);
    }
    for out in out.iter_mut() {
        let divided = *out / sum;
        // Every NaN becomes the same one, whichever the processor made.
        *out = if divided.is_nan() { f32::NAN } else { divided };
    }
    // Computed in `f64` and then rounded, since there platforms agree.
    let lse = max + f64::from(sum).ln() as f32;
    if lse.is_nan() { f32::NAN } else { lse }
}

/// `exp` of a number that is not positive, within about one unit in the last place; 0 below -87.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding this rounds to an integer, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const SERIES: [f32; 5] = [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let power = shifted - ROUND;
    let rest = power.mul_add(-LN_2[1], power.mul_add(-LN_2[0], x));
    let series = SERIES.iter().fold(1.987_569_1e-4, |sum: f32, factor| sum.mul_add(rest, *factor));
    let fraction = series.mul_add(rest * rest, rest) + 1.0;
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    if x < -87.0 { 0.0 } else { fraction * scale }
}

/// `tanh`, to a few units in the last place.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    const SERIES: [f32; 4] = [2.062_390_4e-2, -5.373_971_4e-2, 1.333_144_2e-1, -3.333_328e-1];
    let square = x * x;
    let series = SERIES.iter().fold(-5.704_988_5e-3, |sum: f32, factor| sum.mul_add(square, *factor));
    let near = (series * square).mul_add(x, x);
    let small = exp(-2.0 * x.abs());
    let far = ((1.0 - small) / (1.0 + small)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error in units of the last place of the defined value.
    fn off(computed: f32, defined: f64) -> f64 {
        let place = f64::from((defined as f32).next_up()) - f64::from(defined as f32);
        (f64::from(computed) - defined).abs() / place
    }

    #[test]
    fn exp_and_tanh_are_close_to_the_definition() {
        for i in 0..=870_000 {
            let x = i as f32 * -1e-4;
            assert!(off(exp(x), f64::from(x).exp()) < 1.01, "exp {x}: {}", exp(x));
            let x = i as f32 * 2e-5;
            let defined = f64::from(x).tanh();
            assert!(i == 0 || off(tanh(x), defined) < 6.0, "tanh {x}: {} {defined}", tanh(x));
            assert_eq!(tanh(-x), -tanh(x));
        }
        assert_eq!((exp(0.0), exp(-87.1), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }
}
