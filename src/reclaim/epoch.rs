//! The real reclaimer: `crossbeam-epoch` with a collector of the cache's own.
//!
//! A default collector is shared by every crate in the process, and one stalled reader anywhere would hold back our
//! memory; a collector of our own also lets a cache drop clean.

use std::cell::Cell;
use std::ptr::NonNull;

use crossbeam_epoch as ce;

use super::{Bytes, Node, Ref, free_now};
use crate::sync::gauge::{AtomicUsize, Relaxed};

/// Garbage that a participant may keep before it hands it over and tries to reclaim.
const FLUSH_BYTES: usize = 128 << 10;

/// Passes without effect after which nothing more can be freed: one hands garbage over, two move the epoch, one frees.
const EPOCHS: usize = 4;

/// All that one cache reclaims.
#[derive(Debug)]
pub(crate) struct Domain {
    // Dropped first: the garbage it frees still counts its bytes.
    collector: ce::Collector,
    bytes: Box<Bytes>,
    next_stripe: AtomicUsize,
}

impl Domain {
    pub(crate) fn new() -> Self {
        Self { collector: ce::Collector::new(), bytes: Box::new(Bytes::new()), next_stripe: AtomicUsize::new(0) }
    }

    /// A participant; the domain must outlive it.
    pub(crate) fn register(&self) -> Local {
        Local {
            handle: self.collector.register(),
            bytes: NonNull::from(&*self.bytes),
            // Relaxed: any spread will do.
            stripe: self.next_stripe.fetch_add(1, Relaxed),
            retired: Cell::new(0),
        }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// One participant.
#[derive(Debug)]
pub(crate) struct Local {
    handle: ce::LocalHandle,
    bytes: NonNull<Bytes>,
    stripe: usize,
    retired: Cell<usize>,
}

// SAFETY: a participant is used by one thread at a time (it is not `Sync`) and nothing in it belongs to a thread: the
// handle is a pointer into the collector, which it keeps alive. It may be moved only while no guard borrows it.
unsafe impl Send for Local {}

impl Local {
    /// Reclaims what no thread can see any more. Call it without a guard: each pass may advance the epoch once, and frees
    /// some.
    pub(crate) fn reclaim(&self) {
        self.retired.set(0);
        // SAFETY: the domain owns the counters and outlives its participants.
        let bytes = unsafe { self.bytes.as_ref() };
        let mut idle_passes = 0;
        while idle_passes < EPOCHS {
            let before = bytes.total();
            self.handle.pin().flush();
            idle_passes = if bytes.total() < before { 0 } else { idle_passes + 1 };
        }
    }

    /// Hands over what this participant has retired, so that other participants can free it.
    pub(crate) fn hand_over(&self) {
        if self.retired.get() > 0 {
            self.pin().hand_over();
        }
    }

    #[inline]
    pub(crate) fn pin(&self) -> Guard<'_> {
        Guard { pinned: self.handle.pin(), local: self }
    }
}

/// While it lives, no node is freed that was reachable when it was made.
#[derive(Debug)]
pub(crate) struct Guard<'l> {
    pinned: ce::Guard,
    local: &'l Local,
}

impl Guard<'_> {
    pub(super) fn bytes(&self) -> &Bytes {
        // SAFETY: the domain owns the counters and outlives its participants.
        unsafe { self.local.bytes.as_ref() }
    }

    pub(super) fn allocated(&self, bytes: usize) {
        self.bytes().add(self.local.stripe, bytes);
    }

    /// Hands over what its participant has retired, so that other participants can free it.
    pub(crate) fn hand_over(&self) {
        if self.local.retired.take() > 0 {
            self.pinned.flush();
        }
    }

    /// Bytes that its participant has retired and not handed over yet.
    pub(crate) fn retired_bytes(&self) -> usize {
        self.local.retired.get()
    }

    /// Frees `node` once every thread that is pinned now has unpinned. The caller has unlinked it, and retires it once (I1).
    pub(crate) fn retire<T: Node>(&self, node: Ref<'_, T>) {
        let retired = self.local.retired.get() + node.bytes();
        let pointer = node.link().get(self).as_ptr();
        let bytes = self.local.bytes;
        let reclaim = move || {
            let Some(node) = NonNull::new(pointer) else {
                return;
            };
            // SAFETY: the domain owns the counters and drops its garbage before them.
            let bytes = unsafe { bytes.as_ref() };
            // SAFETY: unlinked, and every guard that could have seen it is gone (I1).
            unsafe { free_now(node, bytes) };
        };
        // SAFETY: the closure frees memory and touches nothing of this stack; it may run on any thread.
        unsafe { self.pinned.defer_unchecked(reclaim) };
        self.local.retired.set(retired);
        if retired >= FLUSH_BYTES {
            self.local.retired.set(0);
            self.pinned.flush();
        }
    }
}
