//! Random choices that a seed determines.

/// A stream of random numbers (SplitMix64).
pub struct Dice(u64);

impl Dice {
    /// The stream of `seed` for one of several users.
    pub fn new(seed: u64, user: u64) -> Self {
        Self(mix(seed ^ mix(user)))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.roll() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Spreads every bit of `x` over the result.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
