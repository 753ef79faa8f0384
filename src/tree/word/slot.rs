//! The transitions of a hot point's word (hot.rs): a slot attached, closed, opened again, detached.

use super::snapshot::{HotSlotId, OPEN, Snapshot};
use super::{Keep, Swap, Word};
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use crate::sync::dekker;

impl Word {
    /// Attaches a slot, open, and takes the bias; the caller holds a lease. False where a slot is attached already or
    /// none may be.
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

    /// Whether `slot` is open, after the caller's lease was added to `count`; see [`dekker`].
    pub(crate) fn still_open(&self, slot: HotSlotId, count: &AtomicU64) -> bool {
        // Acquire: E5, E12.
        let word = Snapshot(dekker::count_then_look(count, &self.0));
        word.is_open() && word.slot() == Some(slot)
    }

    /// Closes the slot: from now on only leases that count on its stripes already stay there. The evictor's.
    pub(crate) fn close(&self) {
        dekker::clear(&self.0, OPEN);
    }

    /// Opens the attached slot again: leases count there. The evictor's.
    pub(crate) fn reopen(&self) {
        // Relaxed: a read-modify-write continues the sequence that E5 and E12 need.
        self.0.fetch_or(OPEN, Relaxed);
    }

    /// Takes the closed slot and its bias off; true if the caller must push the point. The evictor's.
    #[must_use]
    pub(crate) fn detach(&self) -> bool {
        self.update(|word| {
            debug_assert!(!word.is_open() && word.slot().is_some(), "an open slot was detached");
            let last = word.leases() == 1;
            let (next, push) = word.changed(word.without_slot().without_lease(), last);
            // Relaxed: the evictor alone takes entries out (E3, E4) and kills (E2).
            Swap(next, Relaxed, push)
        })
    }
}
