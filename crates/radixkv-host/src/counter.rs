//! Counters that are only reported.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that orders no other memory access.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: usize) {
        // Relaxed, here and below: no decision depends on it.
        self.0.fetch_add(more as u64, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
