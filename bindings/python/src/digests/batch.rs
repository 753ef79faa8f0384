//! One batch: the blocks of one call that looks up, stores, loads or removes, and the outcome of
//! each block.

#![allow(unsafe_code)]

use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};
use std::time::Duration;

use radixkv_region::DigestKey;

/// The outcome of a block.
pub(super) const MISS: u8 = 0;
pub(super) const DONE: u8 = 1;
pub(super) const FAILED: u8 = 2;
pub(super) const CANCELLED: u8 = 3;

/// The operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Lookup,
    /// With the time to live of the blocks.
    Store(Option<Duration>),
    /// With the time to live in the region for blocks that are loaded from a tier.
    Load(Option<Duration>),
    Remove,
}

/// The memory of one block, which the caller owns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    data: *mut u8,
    len: usize,
}

// SAFETY: plain memory, which no thread owns; `Span::new` says who may use it.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// # Safety
    ///
    /// Until its batch is done, `len` bytes from `data` on can be read, and written if the batch is
    /// a load; nothing else writes to them, and nothing else reads them if it is a load.
    pub(super) unsafe fn new(data: *mut u8, len: usize) -> Self {
        Self { data, len }
    }
}

impl AsRef<[u8]> for Span {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: by the contract of `new`; spans are used for batches that are not done.
        unsafe { slice::from_raw_parts(self.data, self.len) }
    }
}

impl AsMut<[u8]> for Span {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and one thread at a time works on a block of a batch. Only loads write.
        unsafe { slice::from_raw_parts_mut(self.data, self.len) }
    }
}

/// A batch in execution, or finished and not yet returned to the caller.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) verb: Verb,
    pub(super) keys: Box<[DigestKey]>,
    /// Empty for operations without memory.
    spans: Box<[Span]>,
    outcomes: Box<[AtomicU8]>,
    /// The number of blocks that are not done.
    left: AtomicUsize,
    is_cancelled: AtomicBool,
}

impl Batch {
    pub(super) fn new(number: u64, verb: Verb, keys: Vec<DigestKey>, spans: Vec<Span>) -> Self {
        let outcomes = keys.iter().map(|_| AtomicU8::new(MISS)).collect();
        let (left, is_cancelled) = (AtomicUsize::new(keys.len()), AtomicBool::new(false));
        Self { number, verb, keys: keys.into(), spans: spans.into(), outcomes, left, is_cancelled }
    }

    /// The memory of a block; `None` for operations without memory.
    pub(super) fn span_or_none(&self, index: usize) -> Option<Span> {
        self.spans.get(index).copied()
    }

    // Relaxed, in these functions: one thread at a time works on a block, and `end` publishes its
    // writes.

    pub(super) fn outcome(&self, index: usize) -> u8 {
        self.outcomes[index].load(Relaxed)
    }

    pub(super) fn note(&self, index: usize, outcome: u8) {
        self.outcomes[index].store(outcome, Relaxed);
    }

    pub(super) fn outcomes(&self) -> Vec<u8> {
        self.outcomes.iter().map(|outcome| outcome.load(Relaxed)).collect()
    }

    /// Records that `blocks` more blocks are done. Returns whether all are.
    pub(super) fn end(&self, blocks: usize) -> bool {
        // Acquire and release: the thread that ends the last block sees every outcome, and no
        // thread touches the caller's memory afterwards.
        blocks > 0 && self.left.fetch_sub(blocks, AcqRel) == blocks
    }

    // Relaxed, in these functions: cancellation is a hint, which threads may see late.

    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Relaxed)
    }
}
