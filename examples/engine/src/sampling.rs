//! Samples a token from logits.
//!
//! The vocabulary is never sorted: a selection finds the last candidate by rank, and the draw walks
//! through the candidates in the order of the vocabulary.

use std::cmp::Ordering;

use radixkv::Token;

use crate::dice::Dice;

/// Settings of sampling. The choice depends only on the logits, the seed, the stream and the
/// position, so preemption or another thread does not change it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Temperature: logits are divided by it; 0 always takes the largest logit.
    pub temperature: f32,
    /// Samples only from this number of the largest logits; 0 means all.
    pub top_k: usize,
    /// Of these, samples only from the fewest tokens whose probabilities reach this sum.
    pub top_p: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// An invalid value of a sampling setting.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{name} is {value}, not {allowed}")]
pub struct SamplingError {
    /// The name of the setting.
    pub name: &'static str,
    /// Its value.
    pub value: f32,
    /// The allowed values.
    pub allowed: &'static str,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), SamplingError> {
        let Self { temperature, top_p, .. } = *self;
        if !(0.0..f32::INFINITY).contains(&temperature) {
            return Err(SamplingError { name: "temperature", value: temperature, allowed: "a number from 0 on" });
        }
        if !(0.0..=1.0).contains(&top_p) {
            return Err(SamplingError { name: "top_p", value: top_p, allowed: "from 0 to 1" });
        }
        Ok(())
    }

    /// Samples the token at `position` of a request with the random numbers of `stream`.
    ///
    /// # Panics
    ///
    /// If there are no logits.
    pub fn choose(&self, logits: &[f32], stream: u64, position: usize) -> Token {
        if self.temperature <= 0.0 {
            return largest(logits);
        }
        let candidates = self.candidates(logits);
        let total: f64 = candidates.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let key = Dice::new(Dice::new(self.seed).number() ^ stream).number();
        let mut left = f64::from(Dice::new(key ^ position as u64).unit()) * total;
        for (token, weight) in &candidates {
            left -= f64::from(*weight);
            if left < 0.0 {
                return *token;
            }
        }
        // Rounding left a small rest: take the last token with a weight above zero.
        candidates.iter().rev().find(|(_, weight)| *weight > 0.0).map_or(0, |(token, _)| *token)
    }

    /// The tokens that can be drawn, in the order of the vocabulary, with their weights. The
    /// largest logit has weight 1.
    fn candidates(&self, logits: &[f32]) -> Vec<(Token, f32)> {
        let top = logits[largest(logits) as usize];
        let weight = |logit: f32| ((logit - top) / self.temperature).exp();
        let mut candidates: Vec<(Token, f32)> = (0..).zip(logits.iter().copied()).collect();
        let all = candidates.len();
        if self.top_k > 0 && self.top_k < all {
            candidates.select_nth_unstable_by(self.top_k - 1, descending);
            candidates.truncate(self.top_k);
        }
        if self.top_p < 1.0 {
            let kept = nucleus(&mut candidates, weight, self.top_p);
            candidates.truncate(kept);
        }
        if candidates.len() < all {
            candidates.sort_unstable_by_key(|(token, _)| *token);
        }
        candidates.iter_mut().for_each(|(_, logit)| *logit = weight(*logit));
        candidates
    }
}

/// Orders by descending logit. Of equal logits, the lower token comes first, so the order is total.
fn descending(a: &(Token, f32), b: &(Token, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

fn largest(logits: &[f32]) -> Token {
    let better = |best: usize, at: usize| if logits[at] > logits[best] { at } else { best };
    (1..logits.len()).fold(0, better) as Token
}

/// Moves the fewest candidates whose weights reach the share `top_p` of the total to the front, and
/// returns their number, at least one. Halves the undecided range until one candidate is left, so
/// the work is about two passes over the candidates.
fn nucleus(candidates: &mut [(Token, f32)], weight: impl Fn(f32) -> f32, top_p: f32) -> usize {
    let sum = |some: &[(Token, f32)]| some.iter().map(|(_, logit)| f64::from(weight(*logit))).sum::<f64>();
    let mut missing = f64::from(top_p) * sum(candidates);
    let (mut from, mut to) = (0, candidates.len());
    while to - from > 1 {
        let half = (to - from) / 2;
        candidates[from..to].select_nth_unstable_by(half - 1, descending);
        let larger = sum(&candidates[from..from + half]);
        if larger >= missing {
            to = from + half;
        } else {
            missing -= larger;
            from += half;
        }
    }
    to
}

#[cfg(test)]
mod tests;
