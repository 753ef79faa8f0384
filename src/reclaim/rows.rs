//! Rows of the records: each namespace has its own row of counters while there are enough rows.
//!
//! Namespaces that found no free row share the last one. A row that is given back keeps its counts;
//! its next owner subtracts them.

use super::Idle;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, model_size};

/// Rows of a record, and the counts in a row: one cache line.
pub(super) const ROWS: usize = model_size(64, 4);
pub(crate) const ROW_COUNTS: usize = 8;

const OTHERS: usize = ROWS - 1;

/// The rows that belong to no namespace.
#[derive(Debug)]
pub(super) struct FreeRows {
    /// `made` counts the [`Row`]s; `issued`, those with no number from `left`.
    made: AtomicUsize,
    issued: AtomicUsize,
    left: Idle<usize, ROWS>,
}

impl FreeRows {
    pub(super) fn new() -> Self {
        Self { made: AtomicUsize::new(0), issued: AtomicUsize::new(0), left: Idle::new() }
    }

    /// Takes a free row, or the shared one if none is free. `counted` returns the sums of a row.
    /// Lock-free.
    pub(super) fn take(free: &Arc<Self>, counted: impl FnOnce(usize) -> [u64; ROW_COUNTS]) -> Row {
        // Relaxed, twice: each new number is issued once; a number from `left` comes with its
        // counts.
        let serial = free.made.fetch_add(1, Relaxed);
        let number = free.left.take().unwrap_or_else(|| free.issued.fetch_add(1, Relaxed).min(OTHERS));
        Row { id: RowId { number, serial }, base: counted(number), free: Arc::clone(free) }
    }
}

/// Identifies one owner's use of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowId {
    pub(super) number: usize,
    /// Unique among all [`Row`]s, including earlier ones with the same number.
    pub(crate) serial: usize,
}

impl RowId {
    /// Whether the row has one owner.
    pub(crate) fn is_own(self) -> bool {
        self.number != OTHERS
    }
}

/// A row of the records, given back on drop.
#[derive(Debug)]
pub(crate) struct Row {
    id: RowId,
    /// The sums of the row when it was taken.
    base: [u64; ROW_COUNTS],
    free: Arc<FreeRows>,
}

impl Row {
    pub(crate) fn id(&self) -> RowId {
        self.id
    }

    /// The part of `counted`, the row's sums, that was added since the row was taken.
    pub(super) fn since(&self, counted: [u64; ROW_COUNTS]) -> [u64; ROW_COUNTS] {
        std::array::from_fn(|i| counted[i].wrapping_sub(self.base[i]))
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if self.id.is_own() {
            // `left` has a slot for each number.
            self.free.left.put(self.id.number);
        }
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
