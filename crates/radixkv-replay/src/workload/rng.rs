//! Random numbers that are the same on every machine: splitmix64, and Zipf's law based on it.

use crate::tokens::splitmix64;

/// A seeded random number generator.
pub(super) struct Rng(u64);

impl Rng {
    /// A generator for one class: different classes get different numbers from the same seed.
    pub(super) fn new(seed: u64, class: u64) -> Self {
        Self(splitmix64(seed ^ splitmix64(class)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix64(self.0)
    }

    /// A number from 0 (included) to 1 (excluded).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An integer from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + (self.unit() * f64::from(high - low + 1)) as u32
    }

    /// An index below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.unit() * count as f64) as usize
    }

    /// The time to the next of independent events with a mean distance of `mean`.
    pub(super) fn wait(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// Zipf's law over a number of choices: choice `k` (from 0) has weight `(k + 1)^-exponent`.
pub(super) struct Zipf {
    shares: Vec<f64>,
    upto: Vec<f64>,
}

impl Zipf {
    pub(super) fn new(choices: usize, exponent: f64) -> Self {
        let weights = (1..=choices).map(|rank| (rank as f64).powf(-exponent));
        let total: f64 = weights.clone().sum();
        let shares: Vec<f64> = weights.map(|weight| weight / total).collect();
        let mut sum = 0.0;
        let upto = shares
            .iter()
            .map(|share| {
                sum += share;
                sum
            })
            .collect();
        Self { shares, upto }
    }

    /// The probability of each choice.
    pub(super) fn shares(&self) -> &[f64] {
        &self.shares
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> usize {
        let at = rng.unit();
        self.upto.partition_point(|&upto| upto <= at).min(self.upto.len() - 1)
    }

    /// The expected number of different choices in `draws` draws.
    pub(super) fn expected_distinct(&self, draws: usize) -> f64 {
        self.shares.iter().map(|share| 1.0 - (1.0 - share).powi(draws as i32)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_by_its_shares() {
        let (zipf, mut rng) = (Zipf::new(50, 1.1), Rng::new(1, 1));
        let mut drawn = [0_usize; 50];
        for _ in 0..100_000 {
            drawn[zipf.draw(&mut rng)] += 1;
        }
        for (share, count) in zipf.shares().iter().zip(drawn) {
            assert!((count as f64 / 100_000.0 - share).abs() < 0.01);
        }
        assert!((zipf.expected_distinct(1) - 1.0).abs() < 1e-9);
        assert!(zipf.expected_distinct(100_000) > 49.9);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut rng = Rng::new(3, 1);
        let drawn: Vec<u32> = (0..1000).map(|_| rng.between(4, 6)).collect();
        assert!((4..=6).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| (4..=6).contains(n)));
        assert!((0..1000).all(|_| rng.wait(5.0) >= 0.0 && rng.below(3) < 3));
    }
}
