//! The memory that a thread computes in. It is kept between calls, and grows to what the largest of them needed.

use std::cell::RefCell;

use super::RANGE_TOKENS;
use super::kernels::{Hint, LANES, QUERIES_AT_ONCE, Softmax};
use crate::layout::Layout;

/// Memory of one thread: for a head of 128 elements 160 KiB, and 1 KiB for each query of a task beside.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Rows of a range as they are stored.
    pub(super) words: Vec<u64>,
    pub(super) scales: Vec<f32>,
    pub(super) hints: Vec<Hint>,
    /// Rows of keys, widened.
    pub(super) rows: Vec<f32>,
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
    pub(super) weights: Vec<f32>,
    pub(super) weighted: Vec<f32>,
    pub(super) queries: Vec<f32>,
    pub(super) seen: Vec<[u32; 2]>,
    pub(super) softmax: Vec<Softmax>,
    pub(super) out: Vec<f32>,
}

/// Elements of a value, filled up to whole vectors.
pub(super) fn columns(layout: &Layout) -> usize {
    layout.value_dim.next_multiple_of(LANES)
}

impl Scratch {
    /// Makes room for so many queries of each of `heads` heads; nothing has been merged into them.
    pub(super) fn begin(&mut self, layout: &Layout, heads: usize, queries: usize) {
        let (elements, columns) = (layout.head_dim, columns(layout));
        let widest = elements.max(layout.value_dim) * layout.dtype.bytes() / 8;
        self.words.resize(RANGE_TOKENS * widest, 0);
        self.scales.resize(RANGE_TOKENS, 0.0);
        self.rows.resize(LANES * elements, 0.0);
        self.keys.resize(RANGE_TOKENS * elements, 0.0);
        self.values.resize(RANGE_TOKENS * columns, 0.0);
        self.weights.resize(QUERIES_AT_ONCE * RANGE_TOKENS, 0.0);
        self.weighted.resize(QUERIES_AT_ONCE * columns, 0.0);
        self.queries.clear();
        self.seen.clear();
        self.softmax.clear();
        self.softmax.resize(heads * queries, Softmax::NONE);
        self.out.clear();
        self.out.resize(heads * queries * columns, 0.0);
    }
}

/// Computes with the memory of this thread.
pub(super) fn with<R>(compute: impl FnOnce(&mut Scratch) -> R) -> R {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(compute)
}
