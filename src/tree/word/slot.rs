//! The transitions of a hot point's word (hot.rs): a slot attached, closed, opened again, detached.

use super::{DEAD, HotSlotId, LEASE, LEASES, NEW, OPEN, SLOT, SLOTS, Snapshot, Word};
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use crate::sync::dekker;

impl Word {
    /// Attaches a slot, open, and takes the bias; the caller holds a lease. False where one stands or none may.
    #[must_use]
    pub(crate) fn attach(&self, slot: HotSlotId) -> bool {
        let mut word = self.0.load(Relaxed);
        while word & (DEAD | NEW | OPEN | SLOTS) == 0 && word & LEASES != LEASES {
            let next = (word + LEASE) | OPEN | (u64::from(slot.get()) * SLOT);
            // Release: E12.
            match self.0.compare_exchange_weak(word, next, Release, Relaxed) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Whether `slot` is open, after the caller has counted himself in `count`; see [`dekker`].
    pub(crate) fn still_open(&self, slot: HotSlotId, count: &AtomicU64) -> bool {
        // Acquire: E5, E12.
        let word = dekker::count_then_look(count, &self.0);
        Snapshot(word).is_open() && Snapshot(word).slot() == Some(slot)
    }

    /// Closes the slot: from now on nobody counts on its stripes who was not counted there already. The evictor's.
    pub(crate) fn close(&self) {
        dekker::clear(&self.0, OPEN);
    }

    /// Opens the attached slot again: some are counted there. The evictor's.
    pub(crate) fn reopen(&self) {
        // Relaxed: a read-modify-write continues the sequence that E5 and E12 need.
        self.0.fetch_or(OPEN, Relaxed);
    }

    /// Takes the closed slot and its bias off; true if the caller must push the point. The evictor's.
    #[must_use]
    pub(crate) fn detach(&self) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            debug_assert!(word & OPEN == 0 && word & SLOTS != 0, "an open slot was detached");
            let last = word & LEASES == LEASE;
            let (next, push) = Snapshot(word).stepped((word & !SLOTS) - LEASE, last);
            // Relaxed: who takes entries out (E3, E4) and kills (E2) is the evictor as well.
            match self.0.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return push,
                Err(seen) => word = seen,
            }
        }
    }
}
