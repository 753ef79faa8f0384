//! The memory that a thread computes in. It is kept between calls, and grows to the size that the
//! largest call needed.
//!
//! `call`, `apart` and `matrix` take it for one piece of work at a time.

use std::cell::RefCell;
use std::thread::LocalKey;

use super::RANGE_TOKENS;
use super::aligned::Aligned;
use super::kernels::{Hints, LANES, QUERIES_AT_ONCE, RowView, Softmax};
use crate::layout::Layout;

/// Memory of one thread: 130 KiB for a head of 128 elements, plus 1 KiB for each query of a task.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The scales of the rows that are read.
    pub(super) scales: Vec<f32>,
    pub(super) hints: Hints,
    /// The widened keys of a range or of a part of it; `values` has its values.
    pub(super) keys: Aligned<f32>,
    pub(super) values: Aligned<f32>,
    /// The keys of a range as columns.
    pub(super) turned: Aligned<f32>,
    /// The state of one range: maxima and sums of weights; then weights, then weighted values.
    pub(super) range: Vec<Softmax>,
    pub(super) weights: Aligned<f32>,
    pub(super) weighted: Aligned<f32>,
    pub(super) queries: Aligned<f32>,
    pub(super) seen: Vec<[u32; 2]>,
    /// The views of the queries of a head if the batch has slopes or trees; otherwise empty.
    pub(super) views: Vec<RowView>,
    pub(super) softmax: Vec<Softmax>,
    pub(super) out: Aligned<f32>,
}

/// The elements of a head, rounded up to whole vectors.
pub(super) fn columns(elements: usize) -> usize {
    elements.next_multiple_of(LANES)
}

impl Scratch {
    /// Makes room for `queries` queries of each of `heads` heads, with nothing merged into them.
    pub(super) fn begin(&mut self, layout: &Layout, heads: usize, queries: usize) {
        let (key_columns, columns) = (columns(layout.head_dim), columns(layout.value_dim));
        self.scales.resize(RANGE_TOKENS, 0.0);
        self.keys.resize(RANGE_TOKENS * key_columns);
        self.values.resize(RANGE_TOKENS * columns);
        self.turned.resize(RANGE_TOKENS * key_columns);
        // A range is computed for few queries of all heads at once, or for some queries of one
        // head.
        let at_once = if queries <= QUERIES_AT_ONCE { heads * queries } else { heads.max(1) * QUERIES_AT_ONCE };
        self.begin_range(columns, at_once);
        self.queries.resize(heads * queries * key_columns);
        if key_columns > layout.head_dim {
            // Keys and queries are padded with zeros.
            self.keys.fill(0.0);
            self.queries.fill(0.0);
        }
        self.seen.clear();
        self.views.clear();
        self.softmax.clear();
        self.softmax.resize(heads * queries, Softmax::NONE);
        self.out.resize(heads * queries * columns);
        self.out.fill(0.0);
    }

    /// Makes room for the sums of one range for `queries` queries of all heads together.
    pub(super) fn begin_range(&mut self, columns: usize, queries: usize) {
        self.range.resize(queries, Softmax::NONE);
        self.weights.resize(queries * RANGE_TOKENS);
        self.weighted.resize(queries * columns);
    }
}

/// Memory of a calling thread, which merges the sums that several threads compute.
#[derive(Debug, Default)]
pub(super) struct Merging {
    /// The sums of the computed ranges for each query: largest scores and sums of weights; then
    /// weighted values.
    pub(super) ranges: Vec<Softmax>,
    pub(super) weighted: Aligned<f32>,
    /// Where the ranges are merged. The thread may also compute some ranges, in its other memory.
    pub(super) merged: Scratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static MERGING: RefCell<Merging> = RefCell::default();
}

/// Calls `compute` with the memory of this thread, or with new memory if the thread is ending and
/// its own is gone.
pub(super) fn with<R>(compute: impl FnOnce(&mut Scratch) -> R) -> R {
    with_kept(&SCRATCH, compute)
}

/// As [`with`], for a thread that merges what several threads compute.
pub(super) fn with_merging<R>(compute: impl FnOnce(&mut Merging) -> R) -> R {
    with_kept(&MERGING, compute)
}

fn with_kept<T: Default, R>(kept: &'static LocalKey<RefCell<T>>, compute: impl FnOnce(&mut T) -> R) -> R {
    let mut taken = kept.try_with(RefCell::take).unwrap_or_default();
    let result = compute(&mut taken);
    let _gone = kept.try_with(|kept| kept.replace(taken));
    result
}
