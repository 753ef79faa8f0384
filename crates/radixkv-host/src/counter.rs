//! A number to look at.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that orders nothing.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: usize) {
        // Relaxed, here and below: no thread decides anything by it.
        self.0.fetch_add(more as u64, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
