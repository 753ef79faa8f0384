//! The number of blocks that an eviction sink holds. A block is counted from its eviction for the
//! sink until the sink drops it. Waiters and the background evictor read the number.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E29 | `KeptBlocks::for_waiter` | `KeptBlocks::end` | a sink that drops blocks sees the waiter that has counted them as expected back |

use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The count of blocks that the sink has.
#[derive(Debug)]
pub(crate) struct KeptBlocks(AtomicUsize);

impl Default for KeptBlocks {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl KeptBlocks {
    pub(crate) fn begin(&self, blocks: usize) {
        // Relaxed: the evictor's lock passes it on.
        self.0.fetch_add(blocks, Relaxed);
    }

    /// Reads the count for a waiter: a thread that later subtracts blocks counted here sees that it
    /// waits.
    pub(crate) fn for_waiter(&self) -> usize {
        // Release: E29.
        self.0.fetch_add(0, Release)
    }

    pub(crate) fn end(&self, blocks: usize) {
        // Acquire: E29.
        self.0.fetch_sub(blocks, Acquire);
    }
}
