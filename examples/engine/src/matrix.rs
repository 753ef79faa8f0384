//! Matrix products whose order of summation depends only on the inner dimension.
//!
//! Each element of a product is one chain of fused multiply-adds over `k` in ascending order, for
//! any number of rows. So a token has bit-identical results alone, in a chunk, and in a batch. See
//! [`Weights`] for the implementation.

use radixkv_attention::Dtype;
use radixkv_attention::cpu::{Processor, Weights};

/// A weight matrix with `outputs` rows of `inputs` elements, as in checkpoints. Inputs are
/// multiplied by its transpose.
#[derive(Debug)]
pub struct Matrix(Weights);

impl Matrix {
    /// Creates a matrix from `outputs` rows of `inputs` elements.
    ///
    /// # Panics
    ///
    /// If there are no inputs, or `rows` does not have this number of elements.
    pub fn from_f32(inputs: usize, outputs: usize, rows: &[f32]) -> Self {
        Self(Weights::from_f32(inputs, outputs, rows))
    }

    /// Creates a matrix from `outputs` rows of `inputs` elements, given as bits of `bf16`.
    ///
    /// # Panics
    ///
    /// As [`from_f32`](Self::from_f32).
    pub fn from_bf16(inputs: usize, outputs: usize, rows: &[u16]) -> Self {
        Self(Weights::from_bf16(inputs, outputs, rows))
    }

    /// Elements of an input row.
    pub fn inputs(&self) -> usize {
        self.0.inputs()
    }

    /// Elements of an output row.
    pub fn outputs(&self) -> usize {
        self.0.outputs()
    }

    /// The type in which the elements are stored.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype()
    }

    /// Writes the weights of one output to `row`. For an embedding, this is the row of a token.
    ///
    /// # Panics
    ///
    /// If there is no such output, or `row` is not as long as an input row.
    pub fn row(&self, output: usize, row: &mut [f32]) {
        self.0.row(output, row);
    }

    /// Multiplies each row of `rows` on the calling thread, and returns the products,
    /// `[rows, outputs]`.
    ///
    /// # Panics
    ///
    /// If `rows` is not a whole number of input rows.
    pub fn multiply(&self, rows: &[f32]) -> Vec<f32> {
        let mut products = vec![0.0; rows.len() / self.inputs() * self.outputs()];
        Processor::<f32>::new().multiply(&self.0, rows, &mut products);
        products
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn a_rows_bits_do_not_depend_on_the_rows_beside_it() {
        let dice = &mut Dice::new(1);
        for (inputs, outputs) in [(1, 1), (64, 96), (257, 40), (1_024, 33)] {
            let weights: Vec<f32> = (0..inputs * outputs).map(|_| dice.normal()).collect();
            let narrow: Vec<u16> = weights.iter().map(|weight| (weight.to_bits() >> 16) as u16).collect();
            let rows: Vec<f32> = (0..102 * inputs).map(|_| dice.normal()).collect();
            for matrix in [Matrix::from_f32(inputs, outputs, &weights), Matrix::from_bf16(inputs, outputs, &narrow)] {
                let all = matrix.multiply(&rows);
                for m in [1, 2, 6, 102] {
                    for first in [0, 102 - m] {
                        let some = matrix.multiply(&rows[first * inputs..(first + m) * inputs]);
                        let same = some.iter().zip(&all[first * outputs..]).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "{m} rows from {first} on, {inputs} x {outputs} {}", matrix.dtype());
                    }
                }
            }
        }
    }

    #[test]
    fn a_product_is_what_it_should_be() {
        let dice = &mut Dice::new(2);
        let (inputs, outputs, m) = (130, 21, 7);
        let weights: Vec<f32> = (0..inputs * outputs).map(|_| dice.normal()).collect();
        let rows: Vec<f32> = (0..m * inputs).map(|_| dice.normal()).collect();
        let matrix = Matrix::from_f32(inputs, outputs, &weights);
        let products = matrix.multiply(&rows);
        for (place, product) in products.iter().enumerate() {
            let (row, output) = (place / outputs, place % outputs);
            let terms =
                (0..inputs).map(|k| f64::from(rows[row * inputs + k]) * f64::from(weights[output * inputs + k]));
            let exact: f64 = terms.sum();
            assert!((exact - f64::from(*product)).abs() < 1e-4, "{exact} {product}");
        }
        let mut row = vec![0.0; inputs];
        matrix.row(17, &mut row);
        assert_eq!(row, weights[17 * inputs..18 * inputs]);
    }
}
