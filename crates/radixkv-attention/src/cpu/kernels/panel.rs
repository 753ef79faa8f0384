//! Multiplies rows by a panel, which is some columns of a matrix of weights.

use super::hints::Run;
use super::lanes::{Rows, product};
use crate::element::from_bf16;

/// Columns of a panel.
pub(in super::super) const PANEL: usize = 64;
/// Rows of a panel that are used at once: they fit into the L1 cache.
const DEPTH: usize = 128;
/// Numbers in a part of a panel, which has [`DEPTH`] rows.
pub(in super::super) const PART: usize = DEPTH * PANEL;

/// A panel: `[inputs, PANEL]`.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Panel<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
}

/// Rows times one panel.
#[derive(Debug)]
pub(in super::super) struct PanelWork<'a> {
    pub(in super::super) panel: Panel<'a>,
    /// `[rows, inputs]`
    pub(in super::super) rows: &'a [f32],
    pub(in super::super) inputs: usize,
    /// Room for [`PART`] numbers.
    pub(in super::super) widened: &'a mut [f32],
    /// `[rows, PANEL]`
    pub(in super::super) out: &'a mut [f32],
}

impl PanelWork<'_> {
    /// The chain of each product runs over the inputs in turn: it is interrupted at the end of a
    /// part, and continued in the next one.
    #[inline(always)]
    pub(super) fn multiply<const N: usize>(self) {
        let count = self.rows.len() / self.inputs;
        self.out.fill(0.0);
        for first in (0..self.inputs).step_by(DEPTH) {
            let depth = DEPTH.min(self.inputs - first);
            let part = first * PANEL..(first + depth) * PANEL;
            let numbers = match self.panel {
                Panel::F32(panel) => &panel[part],
                Panel::Bf16(panel) => {
                    let widened = &mut self.widened[..part.len()];
                    widened.iter_mut().zip(&panel[part]).for_each(|(to, from)| *to = from_bf16(*from));
                    widened
                }
            };
            let rows = Rows { numbers: &self.rows[first..], stride: self.inputs };
            let panel = Rows { numbers, stride: PANEL };
            product::<N, true>(rows, count, panel, [depth, PANEL], self.out, PANEL, |_, _| Run::NONE);
        }
    }
}
