//! Rows of the records: each namespace counts in one of its own while there are enough.
//!
//! The last row is shared by all that found no other one. A row that is given back goes to the next
//! one that asks, which starts from what is counted in it then.

use super::Idle;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, model_size};

/// Rows of a record, and the counts in a row: one cache line.
pub(super) const ROWS: usize = model_size(64, 4);
pub(crate) const ROW_COUNTS: usize = 8;

const OTHERS: usize = ROWS - 1;

/// The rows that are free.
#[derive(Debug)]
pub(super) struct FreeRows {
    /// Rows given out so far, and how many of them for the first time.
    made: AtomicUsize,
    issued: AtomicUsize,
    left: Idle<usize, ROWS>,
}

impl FreeRows {
    pub(super) fn new() -> Self {
        Self { made: AtomicUsize::new(0), issued: AtomicUsize::new(0), left: Idle::new() }
    }

    /// A free row, from now on, or the shared one. `counted` adds a row up. Lock-free.
    pub(super) fn take(free: &Arc<Self>, counted: impl FnOnce(usize) -> [u64; ROW_COUNTS]) -> Row {
        // Relaxed, twice: each number is given out once. What was counted in a row that was left
        // comes with it (`Idle`).
        let serial = free.made.fetch_add(1, Relaxed);
        let number = free.left.take().unwrap_or_else(|| free.issued.fetch_add(1, Relaxed).min(OTHERS));
        Row { id: RowId { number, serial }, base: counted(number), free: Arc::clone(free) }
    }
}

/// A row, for as long as its owner has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowId {
    pub(super) number: usize,
    /// Unlike that of any other row, whatever their places.
    pub(crate) serial: usize,
}

impl RowId {
    /// Whether nothing else counts in it.
    pub(crate) fn is_own(self) -> bool {
        self.number != OTHERS
    }
}

/// A row of the records, given back on drop.
#[derive(Debug)]
pub(crate) struct Row {
    id: RowId,
    /// What had been counted in it before.
    base: [u64; ROW_COUNTS],
    free: Arc<FreeRows>,
}

impl Row {
    pub(crate) fn id(&self) -> RowId {
        self.id
    }

    /// What was counted since it was taken, of all that was counted in it.
    pub(super) fn since(&self, counted: [u64; ROW_COUNTS]) -> [u64; ROW_COUNTS] {
        std::array::from_fn(|i| counted[i].wrapping_sub(self.base[i]))
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if self.id.is_own() {
            // There is a place for each number.
            self.free.left.put(self.id.number);
        }
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
