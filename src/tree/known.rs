//! The points of a run that the evictor knows, by depth.
//!
//! Most runs have one or two, which lie in the list itself. From [`MANY`] on they lie in a tree, and the depths of the active
//! ones in another: so nothing that is asked of them grows with their number beyond its logarithm.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

use smallvec::SmallVec;

use super::point::Point;
use super::run::Run;
use crate::reclaim::{Link, Ref};
use crate::sync::{Owner, model_size};

/// Points that a list holds at most; half of it are few again.
const MANY: usize = model_size(64, 3);

#[derive(Debug)]
pub(crate) enum KnownPoints {
    Few(SmallVec<[Link<Point>; 2]>),
    Many(Box<ByDepth>),
}

#[derive(Debug)]
pub(crate) struct ByDepth {
    points: BTreeMap<u32, Link<Point>>,
    active: BTreeSet<u32>,
}

impl Default for KnownPoints {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl KnownPoints {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(tree) => tree.points.len(),
        }
    }

    /// The point, if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<Link<Point>> {
        match self {
            Self::Few(list) if list.len() == 1 => list.first().copied(),
            Self::Few(_) | Self::Many(_) => None,
        }
    }

    /// Whether one more point needs [`grow`](Self::grow) first.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Few(list) if list.len() == MANY)
    }

    /// Makes room for many points; `active` are the depths of those that are active.
    pub(crate) fn grow(&mut self, active: BTreeSet<u32>, run: &Run) {
        let points = self.iter().map(|point| (point.get(run).depth(), point)).collect();
        *self = Self::Many(Box::new(ByDepth { points, active }));
    }

    /// Takes in a point of `run`.
    pub(crate) fn insert(&mut self, point: Ref<'_, Point>, active: bool, run: &Run) {
        match self {
            Self::Few(list) => list.insert(position(list, point.depth(), run), point.link()),
            Self::Many(tree) => {
                tree.points.insert(point.depth(), point.link());
                self.set_active(point.depth(), active);
            }
        }
    }

    /// Takes out a point of `run`, which is not active any more.
    pub(crate) fn remove(&mut self, point: Ref<'_, Point>, run: &Run) {
        match self {
            Self::Few(list) => {
                list.remove(position(list, point.depth(), run));
            }
            Self::Many(tree) => {
                tree.points.remove(&point.depth());
                if tree.points.len() <= MANY / 2 {
                    *self = Self::Few(self.iter().collect());
                }
            }
        }
    }

    /// Notes whether the point at `depth` is active.
    pub(crate) fn set_active(&mut self, depth: u32, active: bool) {
        let Self::Many(tree) = self else { return };
        if active && tree.points.contains_key(&depth) {
            tree.active.insert(depth);
        } else {
            tree.active.remove(&depth);
        }
    }

    /// The next point above the root's side of `depth`: the deepest one that is not as deep.
    pub(crate) fn below(&self, depth: u32, run: &Run) -> Option<Link<Point>> {
        match self {
            Self::Few(list) => position(list, depth, run).checked_sub(1).map(|at| list[at]),
            Self::Many(tree) => tree.points.range(..depth).next_back().map(|(_, point)| *point),
        }
    }

    /// Visits the points deeper than `cut.start` and no deeper than `cut.end`, the deepest first.
    pub(crate) fn within(&self, cut: Range<u32>, run: &Run, visit: &mut dyn FnMut(Link<Point>)) {
        match self {
            Self::Few(list) => {
                let depth = |point: &Link<Point>| point.get(run).depth();
                let deep = list.iter().rev().take_while(|point| depth(point) > cut.start);
                deep.filter(|point| depth(point) <= cut.end).copied().for_each(visit);
            }
            Self::Many(tree) => {
                let cut = (Bound::Excluded(cut.start), Bound::Included(cut.end));
                tree.points.range(cut).rev().map(|(_, point)| *point).for_each(visit);
            }
        }
    }

    /// Depth of the deepest active point, or zero.
    pub(crate) fn deepest_active(&self, run: &Run, owner: &Owner) -> u32 {
        match self {
            Self::Few(list) => {
                let points = list.iter().rev().map(|point| point.get(run));
                let mut active = points.filter(|point| point.account.get(owner).is_active());
                active.next().map_or(0, |point| point.depth())
            }
            Self::Many(tree) => tree.active.last().copied().unwrap_or(0),
        }
    }

    /// All points, by depth.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Link<Point>> {
        let (list, tree) = match self {
            Self::Few(list) => (Some(list), None),
            Self::Many(tree) => (None, Some(&tree.points)),
        };
        list.into_iter().flatten().chain(tree.into_iter().flat_map(BTreeMap::values)).copied()
    }

    /// The list of few points, to be damaged.
    #[cfg(test)]
    pub(crate) fn list(&mut self) -> &mut SmallVec<[Link<Point>; 2]> {
        match self {
            Self::Few(list) => list,
            Self::Many(_) => unreachable!("few points"),
        }
    }
}

/// How many points of `list` are not as deep as `depth`.
#[inline]
fn position(list: &[Link<Point>], depth: u32, run: &Run) -> usize {
    list.partition_point(|point| point.get(run).depth() < depth)
}
