//! The points of a run, by depth, and how many there are.

use super::map::{Map, Occupied};
use super::point::Point;
use crate::reclaim::{Guard, Own, Ref};
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The points of a run; its end is one of them.
#[derive(Debug)]
pub(crate) struct Points {
    map: Map<Point>,
    /// Never less than the points in the map: raised before one is put into an empty place, lowered after one was taken
    /// out of its place.
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

    /// Puts `new` in the place of `current`: of nothing, or of the dead point that was seen there.
    ///
    /// # Errors
    ///
    /// The point, and what stands there instead.
    pub(crate) fn insert<'g>(
        &'g self,
        current: Option<Ref<'g, Point>>,
        new: Own<'g, Point>,
        guard: &'g Guard<'g>,
    ) -> Result<Ref<'g, Point>, Occupied<'g, Point>> {
        let was_empty = current.is_none();
        if was_empty {
            // Relaxed: E6 orders it, by the bump that follows and proves the point.
            self.placed.fetch_add(1, Relaxed);
        }
        let inserted = self.map.insert(current, new, guard);
        if was_empty && inserted.is_err() {
            // Relaxed: takes back the one above.
            self.placed.fetch_sub(1, Relaxed);
        }
        inserted
    }

    /// Puts the first point on a run that no other thread can reach yet.
    pub(crate) fn begin_with(&self, point: Own<'_, Point>) {
        // Relaxed: what publishes the run orders it.
        self.placed.store(1, Relaxed);
        self.map.begin_with(point);
    }

    /// Takes a point out, if it still stands in its place.
    pub(crate) fn remove<'g>(&'g self, point: Ref<'g, Point>, guard: &'g Guard<'g>) -> bool {
        let removed = self.map.remove(point, guard);
        if removed {
            // Relaxed: a count that is too high for a moment is no harm.
            self.placed.fetch_sub(1, Relaxed);
        }
        removed
    }

    /// Whether these are all points that a trim has to look at, where the evictor knows `known` of them.
    ///
    /// What the evictor knows stands on the run until the evictor takes it out, and was counted before it knew of it. So
    /// one more point that stands there makes the count higher, if the evictor sees its increment. It does if the point's
    /// bump is in the run word that it loaded before (E6); if not, the run word will have changed when it shortens the run.
    pub(crate) fn are_known(&self, known: usize) -> bool {
        // Relaxed: as said.
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
