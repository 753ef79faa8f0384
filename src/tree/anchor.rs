//! Anchors: the link from a weak lease to its point. An anchor does not keep the point alive; it is
//! cleared when the point is killed.
//!
//! The point's marks and the weak leases on the point share the anchor. The evictor clears it after
//! it has killed the point and before it retires it. So if a pinned thread finds the point through
//! the anchor, the point is still in memory, and its word says whether it is dead.

use std::ptr;

use super::point::Point;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::{AtomicPtr, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct Anchor(AtomicPtr<Point>);

impl Anchor {
    /// Makes an anchor on a point that the caller has leased.
    pub(crate) fn on(point: Ref<'_, Point>) -> Self {
        Self(AtomicPtr::new(point.as_ptr()))
    }

    /// The point, which may be dead; `None` once the anchor was cleared.
    pub(crate) fn point<'g>(&self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        // Relaxed: the point was initialised before the anchor was made. A thread that was pinned
        // after the point's memory was freed sees the cleared anchor, by the epochs' own fences.
        Ref::from_ptr(self.0.load(Relaxed), guard)
    }

    /// Clears the anchor: its point is dead and about to be retired. Only the evictor calls it.
    pub(crate) fn cast_off(&self) {
        // Relaxed: see `point`.
        self.0.store(ptr::null_mut(), Relaxed);
    }
}
