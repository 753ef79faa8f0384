//! From logits to a token.

use radixkv::Token;

use crate::dice::Dice;

/// How tokens are sampled. The choice depends on the logits, the seed, the request and the position alone, so
/// preemption and another thread do not change it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Temperature: logits are divided by it; 0 always takes the largest logit.
    pub temperature: f32,
    /// How many of the largest logits are sampled from; 0 is all.
    pub top_k: usize,
    /// Of these, only the fewest tokens whose probabilities reach this sum.
    pub top_p: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// The token at `position` of a request.
    ///
    /// # Panics
    ///
    /// If there are no logits.
    pub fn choose(&self, logits: &[f32], request: u64, position: usize) -> Token {
        if self.temperature <= 0.0 {
            return largest(logits);
        }
        let mut candidates: Vec<(Token, f32)> = (0..).zip(logits.iter().copied()).collect();
        // Of equal logits the lower token comes first, so the order is total.
        candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if self.top_k > 0 {
            candidates.truncate(self.top_k);
        }
        let top = candidates[0].1;
        candidates.iter_mut().for_each(|(_, logit)| *logit = ((*logit - top) / self.temperature).exp());
        let kept = nucleus(&candidates, self.top_p);
        let total: f32 = candidates[..kept].iter().map(|(_, weight)| weight).sum();
        let key = Dice::new(Dice::new(self.seed).number() ^ request).number();
        let mut left = Dice::new(key ^ position as u64).unit() * total;
        for (token, weight) in &candidates[..kept] {
            left -= weight;
            if left < 0.0 {
                return *token;
            }
        }
        candidates[kept - 1].0
    }
}

fn largest(logits: &[f32]) -> Token {
    let better = |best: usize, at: usize| if logits[at] > logits[best] { at } else { best };
    (1..logits.len()).fold(0, better) as Token
}

/// How many candidates, from the first on, reach this share of all; at least one.
fn nucleus(candidates: &[(Token, f32)], top_p: f32) -> usize {
    let total: f32 = candidates.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    let reached = candidates.iter().position(|(_, weight)| {
        sum += weight;
        sum >= top_p * total
    });
    reached.map_or(candidates.len(), |at| at + 1)
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
