//! Seeded random numbers, for random weights and for sampling.

/// SplitMix64. Seeds that differ in one bit give unrelated numbers, so a seed can be combined from
/// a request and a position.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator. The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of 64 random bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random integer from 0 to `limit - 1`; `limit` must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.number()) * limit as u128) >> 64) as usize
    }

    /// A random number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f32 {
        (self.number() >> 40) as f32 / (1 << 24) as f32
    }

    /// A nearly normally distributed number with mean 0 and variance 1: the sum of twelve uniform
    /// numbers.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}
