//! The evictor's queue: which points have made a step since it looked last.
//!
//! An intrusive stack: the link lies in the point, a push is one compare-and-swap, a drain one swap. A point has at
//! most one entry (`QUEUED` in its word), so nothing is allocated and the queue never holds more than the live and the
//! dying points. The order of entries does not matter: the evictor goes by the word as it is when it takes the entry
//! out.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E8 | `push` | `drain` | the evictor finds the links written |
//! | E15 | `drain_surely` | `push` | who makes a step after it sees what came before it (cache::line) |

use crossbeam_utils::CachePadded;

use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use super::point::Point;

/// Points that the evictor has to look at.
#[derive(Debug)]
pub(crate) struct Queue {
    head: CachePadded<AtomicPtr<Point>>,
}

/// A chain of entries that left the queue together.
#[derive(Debug)]
pub(crate) struct Chain(*mut Point);

#[allow(unsafe_code)]
// SAFETY: a chain is an address; its entries hold their points (word.rs: `QUEUED` owns a reference).
unsafe impl Send for Chain {}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { head: CachePadded::new(AtomicPtr::new(std::ptr::null_mut())) }
    }

    /// Adds a point whose `QUEUED` the caller has just set.
    pub(crate) fn push(&self, point: Ref<'_, Point>) {
        crate::sync::point!("queue::push");
        // Relaxed: the compare-and-swap checks it.
        let mut head = self.head.load(Relaxed);
        loop {
            point.link.set(head);
            // Release: E8. Acquire: E15.
            match self.head.compare_exchange_weak(head, point.as_ptr(), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    /// Takes everything; the evictor's.
    pub(crate) fn drain(&self) -> Chain {
        if self.is_empty() {
            return Chain::empty();
        }
        // Acquire: E8.
        Chain(self.head.swap(std::ptr::null_mut(), Acquire))
    }

    /// Takes everything, by a read-modify-write also where there is nothing; the evictor's.
    pub(crate) fn drain_surely(&self) -> Chain {
        // Acquire: E8. Release: E15.
        Chain(self.head.swap(std::ptr::null_mut(), AcqRel))
    }

    /// Whether there was nothing a moment ago.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint; whoever needs more takes the evictor's lock and drains.
        self.head.load(Relaxed).is_null()
    }
}

impl Chain {
    pub(crate) fn empty() -> Self {
        Self(std::ptr::null_mut())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// The next entry, with its link read: from the moment `QUEUED` is cleared the link belongs to somebody else.
    pub(crate) fn next<'g>(&mut self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        let point = Ref::from_ptr(self.0, guard)?;
        // Written before the push (E8), and not again before `QUEUED` was cleared (word.rs, E4).
        self.0 = point.link.get();
        Some(point)
    }
}
