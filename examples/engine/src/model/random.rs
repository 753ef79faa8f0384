//! Seeded random weights: they compute as a model's weights do, and their outputs mean nothing.

use std::convert::Infallible;

use super::Weights;
use crate::dice::Dice;
use crate::matrix::Matrix;

/// Weights that depend on a seed and their name.
#[derive(Debug, Clone, Copy)]
pub struct RandomWeights {
    seed: u64,
}

impl RandomWeights {
    /// The weights of this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn dice(&self, name: &str) -> Dice {
        let mix = |seed: u64, byte: u8| Dice::new(seed ^ u64::from(byte)).number();
        Dice::new(name.bytes().fold(self.seed, mix))
    }
}

impl Weights for RandomWeights {
    type Error = Infallible;

    /// Around 1: vectors are the weights of norms.
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Infallible> {
        let mut dice = self.dice(name);
        Ok((0..len).map(|_| 1.0 + 0.1 * dice.normal()).collect())
    }

    /// Scaled so that states keep their size. Embeddings are larger, so that not every position has the same next
    /// token.
    fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, Infallible> {
        let mut dice = self.dice(name);
        let size = (inputs as f32).sqrt().recip();
        let rows: Vec<f32> = (0..inputs * outputs).map(|_| size * dice.normal()).collect();
        Ok(Matrix::from_f32(inputs, outputs, &rows))
    }
}
