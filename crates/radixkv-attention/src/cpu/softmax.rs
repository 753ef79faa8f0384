//! Attention of one query over ranges of tokens, and the merge of ranges.
//!
//! Every sum here has one order: a score adds over the head's elements in turn, a range's weights and weighted values
//! over its tokens in turn, and ranges are merged as they come, from left to right. No multiplication is fused with an
//! addition. What the compiler makes vectors of is independent: 64 scores, or the elements of a head.

use crate::RANGE;

/// Keys and values of one head for one range of tokens.
#[derive(Debug)]
pub(super) struct Tile {
    head_dim: usize,
    /// `[head_dim, RANGE]`: a score's loop runs over tokens that lie side by side.
    keys: Vec<f32>,
    /// `[RANGE, head_dim]`
    values: Vec<f32>,
}

/// Attention over the ranges seen so far.
#[derive(Debug)]
pub(super) struct Running<'a> {
    /// Largest score.
    pub(super) max: f32,
    /// Sum of `exp(score - max)`.
    pub(super) sum: f32,
    /// Sum of `exp(score - max) * value`.
    pub(super) out: &'a mut [f32],
}

impl Tile {
    pub(super) fn new(head_dim: usize) -> Self {
        Self { head_dim, keys: vec![0.0; RANGE * head_dim], values: vec![0.0; RANGE * head_dim] }
    }

    /// Takes the keys and values of the range's first tokens, `[tokens, head_dim]` each. Those of the rest stay what
    /// they were: nothing that is finite, or not, comes of them.
    pub(super) fn fill(&mut self, keys: &[f32], values: &[f32]) {
        for (token, key) in keys.chunks_exact(self.head_dim).enumerate() {
            key.iter().enumerate().for_each(|(i, element)| self.keys[i * RANGE + token] = *element);
        }
        self.values[..values.len()].copy_from_slice(values);
    }

    /// Adds the attention of `query` over the range's first `tokens` to what is before it; at least one.
    pub(super) fn attend(
        &self,
        query: &[f32],
        scale: f32,
        tokens: usize,
        running: &mut Running<'_>,
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

    fn scores(&self, query: &[f32], scale: f32) -> [f32; RANGE] {
        let mut scores = [0.0; RANGE];
        for (element, keys) in query.iter().zip(self.keys.chunks_exact(RANGE)) {
            scores.iter_mut().zip(keys).for_each(|(score, key)| *score += *element * *key);
        }
        scores.iter_mut().for_each(|score| *score *= scale);
        scores
    }
}

impl<'a> Running<'a> {
    /// Nothing seen; `out` is zero.
    pub(super) fn new(out: &'a mut [f32]) -> Self {
        Self { max: f32::NEG_INFINITY, sum: 0.0, out }
    }

    /// Merges a range to the right of what was seen.
    fn merge(&mut self, max: f32, sum: f32, out: &[f32]) {
        let larger = self.max.max(max);
        if larger == f32::NEG_INFINITY {
            return;
        }
        let (before, range) = ((self.max - larger).exp(), (max - larger).exp());
        self.max = larger;
        self.sum = self.sum * before + sum * range;
        self.out.iter_mut().zip(out).for_each(|(seen, new)| *seen = *seen * before + *new * range);
    }

    /// Divides by the weights' sum, and returns its logarithm with the scores' size put back.
    pub(super) fn finish(self) -> f32 {
        self.out.iter_mut().for_each(|out| *out /= self.sum);
        self.max + self.sum.ln()
    }
}
