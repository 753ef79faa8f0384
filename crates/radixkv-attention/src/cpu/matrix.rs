//! Matrix products with weights. As in attention, every sum has one order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::kernels::{Level, PANEL, PART, Panel, PanelWork};
use super::processor::Processor;
use super::scratch;
use crate::element::from_bf16;
use crate::layout::Dtype;

/// A matrix of weights, packed for multiplication with rows: an engine's matrix products have the
/// same bits whatever the batch.
///
/// Each product is one chain of fused multiply-adds in `f32`, over the inputs in turn and from
/// zero. So a row's products have the same bits in any batch, on every processor and on any number
/// of threads.
///
/// ```
/// use radixkv_attention::cpu::{Processor, Weights};
///
/// // Two outputs of three inputs.
/// let weights = Weights::from_f32(3, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let mut products = [0.0; 2];
/// Processor::<f32>::new().multiply(&weights, &[1.0, 0.5, -1.0], &mut products);
/// assert_eq!(products, [-1.0, 0.5]);
/// ```
#[derive(Debug)]
pub struct Weights {
    inputs: usize,
    outputs: usize,
    /// `[outputs / PANEL, inputs, PANEL]`, the last panel padded with zeros.
    panels: Panels,
}

#[derive(Debug)]
enum Panels {
    F32(Vec<f32>),
    Bf16(Vec<u16>),
}

impl Weights {
    /// Packs `outputs` rows of `inputs` elements, which is how checkpoints store them.
    ///
    /// # Panics
    ///
    /// If `inputs` is 0, or `rows` does not have `outputs * inputs` elements.
    pub fn from_f32(inputs: usize, outputs: usize, rows: &[f32]) -> Self {
        Self { inputs, outputs, panels: Panels::F32(pack(inputs, outputs, rows)) }
    }

    /// As [`from_f32`](Self::from_f32), from the bits of `bf16` elements.
    ///
    /// # Panics
    ///
    /// As `from_f32`.
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

    /// How the elements are stored.
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
        let places = (output / PANEL * PANEL * self.inputs + output % PANEL..).step_by(PANEL);
        match &self.panels {
            Panels::F32(panels) => row.iter_mut().zip(places).for_each(|(to, at)| *to = panels[at]),
            Panels::Bf16(panels) => row.iter_mut().zip(places).for_each(|(to, at)| *to = from_bf16(panels[at])),
        }
    }

    fn panel(&self, index: usize) -> Panel<'_> {
        let size = self.inputs * PANEL;
        match &self.panels {
            Panels::F32(panels) => Panel::F32(&panels[index * size..][..size]),
            Panels::Bf16(panels) => Panel::Bf16(&panels[index * size..][..size]),
        }
    }
}

fn pack<E: Copy + Default>(inputs: usize, outputs: usize, rows: &[E]) -> Vec<E> {
    assert!(inputs > 0 && inputs.checked_mul(outputs) == Some(rows.len()), "{outputs} rows of {inputs}");
    let mut panels = vec![E::default(); outputs.div_ceil(PANEL) * PANEL * inputs];
    for (output, row) in rows.chunks_exact(inputs).enumerate() {
        let first = output / PANEL * PANEL * inputs + output % PANEL;
        row.iter().enumerate().for_each(|(k, element)| panels[first + k * PANEL] = *element);
    }
    panels
}

impl<E> Processor<E> {
    /// Multiplies each row of `rows`, `[rows, inputs]`, with the weights of every output:
    /// `products` is `[rows, outputs]`. The threads divide the outputs among them. Allocates
    /// nothing once its threads have computed a call of its size.
    ///
    /// # Panics
    ///
    /// If `rows` is not a whole number of input rows, or `products` not as many output rows.
    pub fn multiply(&self, weights: &Weights, rows: &[f32], products: &mut [f32]) {
        let (inputs, outputs) = (weights.inputs, weights.outputs);
        assert_eq!(rows.len() % inputs, 0, "rows of {inputs} elements");
        assert_eq!(products.len(), rows.len() / inputs * outputs, "products of {outputs} elements");
        if products.is_empty() {
            return;
        }
        let (level, next, products) = (self.level(), AtomicUsize::new(0), Mutex::new(products));
        self.threads.run(|| {
            loop {
                // Relaxed: it only hands out numbers; the end of the call orders the threads'
                // writes.
                let index = next.fetch_add(1, Relaxed);
                if index * PANEL >= outputs {
                    break;
                }
                multiply_panel(level, weights, index, rows, &products);
            }
        });
    }
}

/// Computes the products of one panel, and copies them to their places.
fn multiply_panel(level: Level, weights: &Weights, index: usize, rows: &[f32], products: &Mutex<&mut [f32]>) {
    let (inputs, outputs) = (weights.inputs, weights.outputs);
    scratch::with(|scratch| {
        scratch.values.resize(PART);
        scratch.out.resize(rows.len() / inputs * PANEL);
        let (widened, out) = (&mut scratch.values[..PART], &mut scratch.out[..]);
        level.multiply(PanelWork { panel: weights.panel(index), rows, inputs, widened, out });
        let columns = index * PANEL..outputs.min((index + 1) * PANEL);
        let mut products = products.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (products, out) in products.chunks_exact_mut(outputs).zip(scratch.out.chunks_exact(PANEL)) {
            products[columns.clone()].copy_from_slice(&out[..columns.len()]);
        }
    });
}

#[cfg(test)]
mod tests;
