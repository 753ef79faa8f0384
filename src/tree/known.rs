//! The points of a run that the evictor knows, by depth.
//!
//! A point becomes known when the evictor takes its entry out of the queue, changes the point
//! itself, or accounts a run or piece that begins there. A killed point is removed.
//!
//! Most runs have one known point, which is stored inline. From [`MANY`] on they are in a tree, and
//! the depths of the active ones in a second tree, so that each query costs at most the logarithm
//! of their number.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::slice;

use super::point::Point;
use super::run::Run;
use crate::reclaim::{Link, Ref};
use crate::sync::{Owner, model_size};

/// A list grows into a tree at this many points; at half as many, a tree becomes a list again.
const MANY: usize = model_size(64, 3);

/// Points by three numbers. All ordered tables of points have this type, because each type of key
/// and value has its own copy of the B-tree's code.
pub(crate) type PointTable = BTreeMap<(u64, u64, u64), Link<Point>>;

#[derive(Debug, Default)]
pub(crate) enum KnownPoints {
    #[default]
    None,
    One(Link<Point>),
    Few(Box<List>),
    Many(Box<ByDepth>),
}

/// Two or more points, by depth.
#[derive(Debug)]
pub(crate) struct List(Vec<Link<Point>>);

#[derive(Debug)]
pub(crate) struct ByDepth {
    points: PointTable,
    active: PointTable,
}

impl KnownPoints {
    /// All points by depth, unless they are in a tree.
    #[inline]
    fn few(&self) -> &[Link<Point>] {
        match self {
            Self::None | Self::Many(_) => &[],
            Self::One(only) => slice::from_ref(only),
            Self::Few(list) => &list.0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Many(tree) => tree.points.len(),
            few => few.few().len(),
        }
    }

    /// The point, if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<Link<Point>> {
        if let Self::One(only) = self { Some(*only) } else { None }
    }

    /// Whether [`grow`](Self::grow) must be called before one more point is inserted.
    pub(crate) fn is_full(&self) -> bool {
        self.few().len() == MANY
    }

    /// Turns the list into a tree; `active` has the depths of the active points.
    pub(crate) fn grow(&mut self, active: &[u32], run: &Run) {
        let mut points = PointTable::new();
        self.iter().for_each(|point| _ = points.insert(at_depth(point.get(run).depth()), point));
        *self = Self::Many(Box::new(ByDepth { points, active: PointTable::new() }));
        active.iter().for_each(|depth| self.set_active(*depth, true));
    }

    /// Adds a point of `run`.
    pub(crate) fn insert(&mut self, point: Ref<'_, Point>, active: bool, run: &Run) {
        match self {
            Self::None => *self = Self::One(point.link()),
            Self::One(other) => {
                let mut both = vec![*other];
                both.insert(position(&both, point.depth(), run), point.link());
                *self = Self::Few(Box::new(List(both)));
            }
            Self::Few(list) => list.0.insert(position(&list.0, point.depth(), run), point.link()),
            Self::Many(tree) => {
                tree.points.insert(at_depth(point.depth()), point.link());
                self.set_active(point.depth(), active);
            }
        }
    }

    /// Removes a point of `run` that is not active.
    pub(crate) fn remove(&mut self, point: Ref<'_, Point>, run: &Run) {
        match self {
            Self::None => unreachable!("an unknown point was removed"),
            Self::One(_) => *self = Self::None,
            Self::Few(list) => {
                list.0.remove(position(&list.0, point.depth(), run));
                if let [only] = list.0[..] {
                    *self = Self::One(only);
                }
            }
            Self::Many(tree) => {
                tree.points.remove(&at_depth(point.depth()));
                if tree.points.len() <= MANY / 2 {
                    *self = Self::of_few(self.iter().collect());
                }
            }
        }
    }

    fn of_few(list: Vec<Link<Point>>) -> Self {
        match list[..] {
            [] => Self::None,
            [only] => Self::One(only),
            _ => Self::Few(Box::new(List(list))),
        }
    }

    /// Records whether the point at `depth` is active.
    pub(crate) fn set_active(&mut self, depth: u32, active: bool) {
        let Self::Many(tree) = self else { return };
        let depth = at_depth(depth);
        match tree.points.get(&depth).filter(|_| active) {
            Some(point) => tree.active.insert(depth, *point),
            None => tree.active.remove(&depth),
        };
    }

    /// The next point nearer the root: the deepest one that is less deep than `depth`.
    pub(crate) fn below(&self, depth: u32, run: &Run) -> Option<Link<Point>> {
        match self {
            Self::Many(tree) => {
                let below = (Bound::Unbounded, Bound::Excluded(at_depth(depth)));
                tree.points.range(below).next_back().map(|(_, point)| *point)
            }
            few => {
                let list = few.few();
                position(list, depth, run).checked_sub(1).map(|at| list[at])
            }
        }
    }

    /// Visits the points deeper than `cut.start` and no deeper than `cut.end`, the deepest first.
    pub(crate) fn within(&self, cut: Range<u32>, run: &Run, visit: &mut dyn FnMut(Link<Point>)) {
        match self {
            Self::Many(tree) => {
                let cut = (Bound::Excluded(at_depth(cut.start)), Bound::Included(at_depth(cut.end)));
                tree.points.range(cut).rev().map(|(_, point)| *point).for_each(visit);
            }
            few => {
                let depth = |point: &Link<Point>| point.get(run).depth();
                let deep = few.few().iter().rev().take_while(|point| depth(point) > cut.start);
                deep.filter(|point| depth(point) <= cut.end).copied().for_each(visit);
            }
        }
    }

    /// Depth of the deepest active point, or zero.
    pub(crate) fn deepest_active(&self, run: &Run, owner: &Owner) -> u32 {
        match self {
            Self::Many(tree) => tree.active.last_key_value().map_or(0, |((depth, ..), _)| *depth as u32),
            few => {
                let points = few.few().iter().rev().map(|point| point.get(run));
                let mut active = points.filter(|point| point.account.get(owner).is_active());
                active.next().map_or(0, |point| point.depth())
            }
        }
    }

    /// All points, by depth.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Link<Point>> {
        let tree = if let Self::Many(tree) = self { Some(&tree.points) } else { None };
        self.few().iter().chain(tree.into_iter().flat_map(BTreeMap::values)).copied()
    }

    /// Replaces the points by a damaged list of them.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, damage: impl FnOnce(&mut Vec<Link<Point>>)) {
        let mut list = self.iter().collect();
        damage(&mut list);
        *self = Self::of_few(list);
    }
}

/// The key of a point at this depth.
fn at_depth(depth: u32) -> (u64, u64, u64) {
    (depth.into(), 0, 0)
}

/// Number of points in `list` that are less deep than `depth`.
#[inline]
fn position(list: &[Link<Point>], depth: u32, run: &Run) -> usize {
    list.partition_point(|point| point.get(run).depth() < depth)
}
