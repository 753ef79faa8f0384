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
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [1.0, 3.0, 2.0, 3.0, -1.0];

    #[test]
    fn without_temperature_the_first_of_the_largest() {
        assert_eq!(Sampling::default().choose(&LOGITS, 1, 2), 1);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        let mut counts = [0_u32; 5];
        (0..20_000).for_each(|position| counts[sampling.choose(&LOGITS, 7, position) as usize] += 1);
        let total: f32 = LOGITS.iter().map(|logit| logit.exp()).sum();
        for (count, logit) in counts.iter().zip(LOGITS) {
            let expected = 20_000.0 * logit.exp() / total;
            assert!((*count as f32 - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{counts:?}");
        }
    }

    #[test]
    fn draws_are_limited_to_the_top() {
        let all = |sampling: Sampling| {
            let mut seen: Vec<Token> = (0..500).map(|position| sampling.choose(&LOGITS, 0, position)).collect();
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        let hot = Sampling { temperature: 2.0, ..Sampling::default() };
        assert_eq!(all(hot), [0, 1, 2, 3, 4]);
        assert_eq!(all(Sampling { top_k: 3, ..hot }), [1, 2, 3]);
        assert_eq!(all(Sampling { top_p: 0.5, ..hot }), [1, 3]);
        assert_eq!(all(Sampling { top_p: 0.0, ..hot }), [1]);
    }

    /// The reference: candidates from sorting the whole vocabulary.
    fn sorted(sampling: &Sampling, logits: &[f32]) -> Vec<(Token, f32)> {
        let mut all: Vec<(Token, f32)> = (0..).zip(logits.iter().copied()).collect();
        all.sort_by(descending);
        let top = all[0].1;
        all.truncate(if sampling.top_k == 0 { all.len() } else { sampling.top_k });
        all.iter_mut().for_each(|(_, logit)| *logit = ((*logit - top) / sampling.temperature).exp());
        let needed = f64::from(sampling.top_p) * all.iter().map(|(_, weight)| f64::from(*weight)).sum::<f64>();
        let mut sum = 0.0;
        let reached = all.iter().position(|(_, weight)| {
            sum += f64::from(*weight);
            sum >= needed
        });
        // With a `top_p` of 1, keeps all, in spite of rounding.
        let reached = reached.filter(|_| sampling.top_p < 1.0);
        all.truncate(reached.map_or(all.len(), |at| at + 1));
        all.sort_by_key(|(token, _)| *token);
        all
    }

    #[test]
    fn candidates_are_those_of_a_sorted_vocabulary() {
        let dice = &mut Dice::new(9);
        for round in 0..400 {
            let logits: Vec<f32> = (0..1 + dice.below(300)).map(|_| (dice.normal() * 4.0).round() / 2.0).collect();
            let top_k = dice.below(2) * dice.below(logits.len() + 20);
            let top_p = if dice.below(3) == 0 { 1.0 } else { dice.unit() };
            let sampling = Sampling { temperature: 0.1 + 2.0 * dice.unit(), top_k, top_p, seed: 0 };
            assert_eq!(sampling.candidates(&logits), sorted(&sampling, &logits), "round {round}, {sampling:?}");
        }
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        for temperature in [f32::NAN, -0.1, f32::INFINITY, f32::NEG_INFINITY] {
            let refused = Sampling { temperature, ..Sampling::default() }.check().expect_err("no temperature");
            assert!(refused.to_string().starts_with("temperature is "), "{refused}");
        }
        for top_p in [f32::NAN, -0.1, 1.1, f32::INFINITY] {
            assert_eq!(Sampling { top_p, ..Sampling::default() }.check().map_err(|refused| refused.name), Err("top_p"));
        }
        assert_eq!(Sampling { temperature: 2.0, top_p: 0.0, top_k: 1, seed: 1 }.check(), Ok(()));
    }

    #[test]
    fn draws_depend_on_seed_request_and_position() {
        let draws = |seed, request| -> Vec<Token> {
            let sampling = Sampling { temperature: 2.0, seed, ..Sampling::default() };
            (0..50).map(|position| sampling.choose(&LOGITS, request, position)).collect()
        };
        assert_eq!(draws(1, 1), draws(1, 1));
        assert_ne!(draws(1, 1), draws(2, 1));
        assert_ne!(draws(1, 1), draws(1, 2));
    }
}
