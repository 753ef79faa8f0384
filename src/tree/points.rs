//! All points of a run, by depth, with an upper bound on their number.

use super::map::{Map, Occupied};
use super::point::Point;
use crate::reclaim::{Guard, Own, Ref};
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Sorts points of one run, the deepest last.
pub(crate) fn sort_by_depth(points: &mut [Ref<'_, Point>]) {
    points.sort_unstable_by_key(|point| point.depth());
}

/// The points of a run, including its end.
#[derive(Debug)]
pub(crate) struct Points {
    map: Map<Point>,
    /// At least the number of points in the map: raised before one is put into an empty place,
    /// lowered after one was removed.
    placed: AtomicUsize,
}

impl Points {
    pub(crate) fn new() -> Self {
        Self { map: Map::new(), placed: AtomicUsize::new(0) }
    }

    /// The point at `depth`, dead or alive.
    #[inline]
    pub(crate) fn get<'g>(&'g self, depth: u32, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        self.map.get(depth, guard)
    }

    /// Prefetches the only point, or the first branch of the map.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.map.prefetch();
    }

    /// Puts `new` in place of `current`: `None`, or the dead point that was found there.
    ///
    /// # Errors
    ///
    /// Returns `new` with the point that is there instead, if any.
    pub(crate) fn insert<'g>(
        &'g self,
        current: Option<Ref<'g, Point>>,
        new: Own<'g, Point>,
        guard: &'g Guard<'g>,
    ) -> Result<Ref<'g, Point>, Occupied<'g, Point>> {
        let was_empty = current.is_none();
        if was_empty {
            // Relaxed: E6 orders it, through the bump that follows and proves the point.
            self.placed.fetch_add(1, Relaxed);
        }
        let inserted = self.map.insert(current, new, guard);
        if was_empty && inserted.is_err() {
            // Relaxed: takes back the increment above.
            self.placed.fetch_sub(1, Relaxed);
        }
        inserted
    }

    /// Puts the first point on a run that no other thread can reach yet.
    pub(crate) fn begin_with(&self, point: Own<'_, Point>) {
        // Relaxed: ordered by the publication of the run.
        self.placed.store(1, Relaxed);
        self.map.begin_with(point);
    }

    /// Removes a point if it is still in its place; returns whether it was.
    pub(crate) fn remove<'g>(&'g self, point: Ref<'g, Point>, guard: &'g Guard<'g>) -> bool {
        let removed = self.map.remove(point, guard);
        if removed {
            // Relaxed: a count that is too high for a moment does no harm.
            self.placed.fetch_sub(1, Relaxed);
        }
        removed
    }

    /// Whether a trim that has looked at the `known` points of the evictor has seen all points of
    /// the run.
    ///
    /// A known point is on the run until the evictor removes it, and was counted before the evictor
    /// knew of it. So an unknown point makes the count higher than `known`, if the evictor sees its
    /// increment. It does if the bump for that point is in the run word that it loaded before (E6).
    /// If not, the bump changes the run word before the evictor shortens the run, which then fails.
    pub(crate) fn are_known(&self, known: usize) -> bool {
        // Relaxed: see above.
        self.placed.load(Relaxed) == known
    }

    pub(crate) fn for_each<'g>(&'g self, guard: &'g Guard<'_>, visit: &mut dyn FnMut(Ref<'g, Point>)) {
        self.map.for_each(guard, visit);
    }

    pub(crate) fn branch_bytes(&self) -> usize {
        self.map.branch_bytes()
    }

    /// Puts an entry where it does not belong.
    #[cfg(test)]
    pub(crate) fn misplace(&self, guard: &Guard<'_>) {
        self.map.misplace(guard);
    }
}
