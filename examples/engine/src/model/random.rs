//! Seeded random weights: they need the same computation as real weights, but the outputs are
//! meaningless.

use std::convert::Infallible;

use super::Weights;
use crate::dice::Dice;
use crate::matrix::Matrix;

/// Random weights that depend only on a seed and the weight's name.
#[derive(Debug, Clone, Copy)]
pub struct RandomWeights {
    seed: u64,
}

impl RandomWeights {
    /// Creates the weights of a seed.
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

    /// Values around 1, because vectors are the weights of norms.
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Infallible> {
        let mut dice = self.dice(name);
        Ok((0..len).map(|_| 1.0 + 0.1 * dice.normal()).collect())
    }

    /// Normally distributed values, scaled so that states keep their magnitude.
    fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, Infallible> {
        let mut dice = self.dice(name);
        let size = (inputs as f32).sqrt().recip();
        let rows: Vec<f32> = (0..inputs * outputs).map(|_| size * dice.normal()).collect();
        Ok(Matrix::from_f32(inputs, outputs, &rows))
    }
}
