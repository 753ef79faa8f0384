//! Attention of one query over ranges of tokens, and the merging of ranges.
//!
//! Every sum here has one order: a score adds over the head's elements in turn, the weights and weighted values of a
//! range over its tokens in turn, and ranges are merged in the order of the sequence, from left to right. No
//! multiplication is fused with an addition. What the compiler turns into vectors is independent: 64 scores, or the
//! elements of a head.

/// Tokens of a range, which is summed by itself: `64 i..64 (i + 1)` of each sequence.
pub const RANGE_TOKENS: usize = 64;

/// Keys and values of one head for one range of tokens.
#[derive(Debug)]
pub(super) struct RangeKv {
    head_dim: usize,
    /// `[head_dim, RANGE_TOKENS]`: the loop of the scores runs over tokens that lie side by side.
    keys: Vec<f32>,
    /// `[RANGE_TOKENS, head_dim]`
    values: Vec<f32>,
}

/// Softmax and weighted values of one query over the ranges read so far.
#[derive(Debug)]
pub(super) struct OnlineSoftmax<'a> {
    /// Largest score.
    pub(super) max: f32,
    /// Sum of `exp(score - max)`.
    pub(super) sum: f32,
    /// Sum of `exp(score - max) * value`.
    pub(super) out: &'a mut [f32],
}

impl RangeKv {
    pub(super) fn new(head_dim: usize) -> Self {
        Self { head_dim, keys: vec![0.0; RANGE_TOKENS * head_dim], values: vec![0.0; RANGE_TOKENS * head_dim] }
    }

    /// Takes the keys and values of the range's first tokens, `[tokens, head_dim]` each. Those of the other tokens stay
    /// what they were: no result depends on them.
    pub(super) fn fill(&mut self, keys: &[f32], values: &[f32]) {
        for (token, key) in keys.chunks_exact(self.head_dim).enumerate() {
            key.iter().enumerate().for_each(|(i, element)| self.keys[i * RANGE_TOKENS + token] = *element);
        }
        self.values[..values.len()].copy_from_slice(values);
    }

    /// Adds the attention of `query` over the first `tokens` of the range, at least one, to that over earlier ranges.
    pub(super) fn attend(
        &self,
        query: &[f32],
        scale: f32,
        tokens: usize,
        running: &mut OnlineSoftmax<'_>,
        scratch: &mut [f32],
    ) {
        let mut weights = self.scores(query, scale);
        let weights = &mut weights[..tokens];
        let max = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for weight in weights.iter_mut() {
            *weight = (*weight - max).exp();
            sum += *weight;
        }
        scratch.fill(0.0);
        for (weight, value) in weights.iter().zip(self.values.chunks_exact(self.head_dim)) {
            scratch.iter_mut().zip(value).for_each(|(out, value)| *out += *weight * *value);
        }
        running.merge(max, sum, scratch);
    }

    fn scores(&self, query: &[f32], scale: f32) -> [f32; RANGE_TOKENS] {
        let mut scores = [0.0; RANGE_TOKENS];
        for (element, keys) in query.iter().zip(self.keys.chunks_exact(RANGE_TOKENS)) {
            scores.iter_mut().zip(keys).for_each(|(score, key)| *score += *element * *key);
        }
        scores.iter_mut().for_each(|score| *score *= scale);
        scores
    }
}

impl<'a> OnlineSoftmax<'a> {
    /// No range read so far; `out` is zero.
    pub(super) fn new(out: &'a mut [f32]) -> Self {
        Self { max: f32::NEG_INFINITY, sum: 0.0, out }
    }

    /// Merges the next range, to the right of those read so far.
    fn merge(&mut self, max: f32, sum: f32, out: &[f32]) {
        let larger = self.max.max(max);
        if larger == f32::NEG_INFINITY {
            return;
        }
        let (earlier, range) = ((self.max - larger).exp(), (max - larger).exp());
        self.max = larger;
        self.sum = self.sum * earlier + sum * range;
        self.out.iter_mut().zip(out).for_each(|(seen, new)| *seen = *seen * earlier + *new * range);
    }

    /// Divides by the sum of the weights; returns the log-sum-exp of the scores.
    pub(super) fn finish(self) -> f32 {
        self.out.iter_mut().for_each(|out| *out /= self.sum);
        self.max + self.sum.ln()
    }
}
