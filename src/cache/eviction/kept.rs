//! How many blocks an eviction sink has: counted when they are evicted for it, until it drops them.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E29 | `KeptBlocks::for_waiter` | `KeptBlocks::end` | a sink that drops blocks which a waiter has counted as on their way sees the waiter |

use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How many blocks a sink has.
#[derive(Debug)]
pub(crate) struct KeptBlocks(AtomicUsize);

impl Default for KeptBlocks {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl KeptBlocks {
    pub(crate) fn begin(&self, blocks: usize) {
        // Relaxed: the evictor's lock hands it on.
        self.0.fetch_add(blocks, Relaxed);
    }

    /// For a waiter: whoever ends what is counted here sees that it waits.
    pub(crate) fn for_waiter(&self) -> usize {
        // Release: E29.
        self.0.fetch_add(0, Release)
    }

    pub(crate) fn end(&self, blocks: usize) {
        // Acquire: E29.
        self.0.fetch_sub(blocks, Acquire);
    }
}
