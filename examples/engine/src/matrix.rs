//! Matrix products whose order of sums depends on the inner dimension alone.
//!
//! Each element of a product is one sum over `k` in ascending order, whatever the number of rows, so that a token's
//! numbers are the same alone, in a chunk, and in a batch. The compiler vectorizes over the columns of a panel, which
//! are independent sums.

use radixkv_attention::Dtype;

/// Columns that lie side by side.
const PANEL: usize = 16;

/// A weight matrix with `outputs` rows of `inputs`, as checkpoints have it; multiplied from the right, transposed.
///
/// Stored in panels of sixteen outputs: `[outputs / 16, inputs, 16]`, the last one filled up with zeros.
#[derive(Debug)]
pub struct Matrix {
    inputs: usize,
    outputs: usize,
    panels: Panels,
}

/// Elements as the checkpoint has them: `f32`, or `bf16`, which is the upper half of an `f32`.
#[derive(Debug)]
enum Panels {
    F32(Vec<f32>),
    Bf16(Vec<u16>),
}

trait Element: Copy + Default {
    fn wide(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
}

/// Bits of a `bf16`.
impl Element for u16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }
}

impl Matrix {
    /// From `outputs` rows of `inputs` elements.
    ///
    /// # Panics
    ///
    /// If `rows` does not have this number of elements.
    pub fn from_f32(inputs: usize, outputs: usize, rows: &[f32]) -> Self {
        Self { inputs, outputs, panels: Panels::F32(pack(inputs, outputs, rows)) }
    }

    /// From `outputs` rows of `inputs` elements, as bits of `bf16`.
    ///
    /// # Panics
    ///
    /// If `rows` does not have this number of elements.
    pub fn from_bf16(inputs: usize, outputs: usize, rows: &[u16]) -> Self {
        Self { inputs, outputs, panels: Panels::Bf16(pack(inputs, outputs, rows)) }
    }

    /// Elements of an input row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Elements of an output row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// How its elements are stored.
    pub fn dtype(&self) -> Dtype {
        match self.panels {
            Panels::F32(_) => Dtype::F32,
            Panels::Bf16(_) => Dtype::Bf16,
        }
    }

    /// The weights of one output: for an embedding, the row of a token.
    ///
    /// # Panics
    ///
    /// If there is no such output, or `row` is not as long as an input row.
    pub fn row(&self, output: usize, row: &mut [f32]) {
        assert!(output < self.outputs && row.len() == self.inputs, "row {output} of {}", self.outputs);
        let first = output / PANEL * PANEL * self.inputs + output % PANEL;
        let places = (first..).step_by(PANEL);
        match &self.panels {
            Panels::F32(panels) => row.iter_mut().zip(places).for_each(|(to, at)| *to = panels[at].wide()),
            Panels::Bf16(panels) => row.iter_mut().zip(places).for_each(|(to, at)| *to = panels[at].wide()),
        }
    }

    /// Multiplies each row of `rows` and returns the products, `[rows, outputs]`.
    ///
    /// # Panics
    ///
    /// If `rows` is not a whole number of input rows.
    pub fn multiply(&self, rows: &[f32]) -> Vec<f32> {
        assert_eq!(rows.len() % self.inputs, 0, "rows of {} elements", self.inputs);
        let mut products = vec![0.0; rows.len() / self.inputs * self.outputs];
        match &self.panels {
            Panels::F32(panels) => self.sweep(panels, rows, &mut products),
            Panels::Bf16(panels) => self.sweep(panels, rows, &mut products),
        }
        products
    }

    /// Multiplies one panel after the other with all rows, four rows at a time.
    fn sweep<E: Element>(&self, panels: &[E], rows: &[f32], products: &mut [f32]) {
        for (index, panel) in panels.chunks_exact(PANEL * self.inputs).enumerate() {
            let first = index * PANEL;
            let columns = PANEL.min(self.outputs - first);
            let mut write = |row: usize, sums: &[[f32; PANEL]]| {
                for (i, sums) in sums.iter().enumerate() {
                    products[(row + i) * self.outputs + first..][..columns].copy_from_slice(&sums[..columns]);
                }
            };
            let mut fours = rows.chunks_exact(4 * self.inputs);
            let mut row = 0;
            for four in &mut fours {
                write(row, &product::<E, 4>(panel, four, self.inputs));
                row += 4;
            }
            for one in fours.remainder().chunks_exact(self.inputs) {
                write(row, &product::<E, 1>(panel, one, self.inputs));
                row += 1;
            }
        }
    }
}

fn pack<E: Element>(inputs: usize, outputs: usize, rows: &[E]) -> Vec<E> {
    assert_eq!(rows.len(), inputs * outputs, "{outputs} rows of {inputs}");
    let mut panels = vec![E::default(); outputs.div_ceil(PANEL) * PANEL * inputs];
    for (output, row) in rows.chunks_exact(inputs).enumerate() {
        let first = output / PANEL * PANEL * inputs + output % PANEL;
        row.iter().enumerate().for_each(|(k, element)| panels[first + k * PANEL] = *element);
    }
    panels
}

/// `M` rows times one panel. The sums of each row are the same for every `M`.
fn product<E: Element, const M: usize>(panel: &[E], rows: &[f32], inputs: usize) -> [[f32; PANEL]; M] {
    let mut sums = [[0.0; PANEL]; M];
    let rows: [&[f32]; M] = std::array::from_fn(|i| &rows[i * inputs..][..inputs]);
    for (k, weights) in panel.chunks_exact(PANEL).enumerate() {
        let weights: [f32; PANEL] = std::array::from_fn(|j| weights[j].wide());
        for (sums, row) in sums.iter_mut().zip(rows) {
            let element = row[k];
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += element * weight);
        }
    }
    sums
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
