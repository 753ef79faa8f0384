//! Anchors: what a weak lease has of a point. An anchor keeps no point; it is cast off when its point is killed.
//!
//! The point's marks have it, and the weak leases on the point. The evictor casts it off after it has killed the point and
//! before it retires it: so a thread that finds the point through the anchor, and is pinned, finds it in memory, and its word
//! says whether it is dead.

use std::ptr;

use super::point::Point;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::{AtomicPtr, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct Anchor(AtomicPtr<Point>);

impl Anchor {
    /// On a point that the caller has a lease on.
    pub(crate) fn on(point: Ref<'_, Point>) -> Self {
        Self(AtomicPtr::new(point.as_ptr()))
    }

    /// The point, which may be dead; nothing once it was cast off.
    pub(crate) fn point<'g>(&self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        // Relaxed: the point was initialised before the anchor was made. A thread that was pinned after the point's memory was
        // freed sees that it was cast off, by the epochs' own fences.
        Ref::from_ptr(self.0.load(Relaxed), guard)
    }

    /// Ends it: its point is dead, and about to be retired. The evictor's.
    pub(crate) fn cast_off(&self) {
        // Relaxed: as above.
        self.0.store(ptr::null_mut(), Relaxed);
    }
}
