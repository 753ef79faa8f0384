//! The transitions of a hot point's word (hot.rs): attach, close, reopen and detach a slot.

use super::snapshot::{HotSlotId, OPEN, Snapshot};
use super::{Keep, Swap, Word};
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use crate::sync::dekker;

impl Word {
    /// Attaches a slot, open, and takes the bias; the caller holds a lease. Returns false if a slot
    /// is attached already or the word allows none.
    #[must_use]
    pub(crate) fn attach(&self, slot: HotSlotId) -> bool {
        self.update(|word| {
            if !word.is_proven() || word.is_open() || word.slot().is_some() || word.is_full() {
                return Keep(false);
            }
            // Release: E12.
            Swap(word.with_lease().with_slot(slot), Release, true)
        })
    }

    /// Adds the caller's lease to `count`, then checks whether `slot` is still open; see
    /// [`dekker`].
    pub(crate) fn still_open(&self, slot: HotSlotId, count: &AtomicU64) -> bool {
        // Acquire: E5, E12.
        let word = Snapshot(dekker::count_then_look(count, &self.0));
        word.is_open() && word.slot() == Some(slot)
    }

    /// Closes the slot to further leases. Only the evictor calls it.
    pub(crate) fn close(&self) {
        dekker::clear(&self.0, OPEN);
    }

    /// Opens the attached slot again, so that leases count there. Only the evictor calls it.
    pub(crate) fn reopen(&self) {
        // Relaxed: a read-modify-write continues the sequence that E5 and E12 need.
        self.0.fetch_or(OPEN, Relaxed);
    }

    /// Removes the closed slot and its bias from the word; true if the caller must push the point.
    /// Only the evictor calls it.
    #[must_use]
    pub(crate) fn detach(&self) -> bool {
        self.update(|word| {
            debug_assert!(!word.is_open() && word.slot().is_some(), "an open slot was detached");
            let last = word.leases() == 1;
            let (next, push) = word.changed(word.without_slot().without_lease(), last);
            // Relaxed: only the evictor takes entries out (E3, E4) and kills (E2).
            Swap(next, Relaxed, push)
        })
    }
}
