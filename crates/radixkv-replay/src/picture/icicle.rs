//! Lays out the runs of a tree as an icicle plot.
//!
//! Columns are blocks: a run spans its own blocks and those of its descendants. Its own blocks are
//! the part of its width that no run below it covers. Under each run, its widest child comes first.

use std::cmp::Reverse;

use super::cache_tree::CacheTree;

/// The content of a box of an icicle.
///
/// # Examples
///
/// ```
/// use radixkv_replay::picture::{CacheTree, Icicle, Shown};
///
/// let mut tree = CacheTree::new(16);
/// tree.push(0, 98, 1, 0);
/// tree.push(0, 1, 1, 0);
/// tree.push(0, 1, 1, 0);
/// let icicle = Icicle::new(&tree, 2, 10); // runs of one block are too small
/// assert_eq!(icicle.boxes()[1].shown, Shown::Run(1));
/// assert_eq!(icicle.boxes()[2].shown, Shown::Group { runs: 2 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shown {
    /// The run with this index; the root stands for the whole tree.
    Run(usize),
    /// A group of runs that are too small or too deep to be drawn separately, with all their
    /// descendants.
    Group {
        /// Number of runs in the group, including the descendants.
        runs: usize,
    },
}

/// A box of an icicle.
///
/// # Examples
///
/// ```
/// use radixkv_replay::picture::{CacheTree, Icicle};
///
/// let mut tree = CacheTree::new(16);
/// let shared = tree.push(0, 10, 2, 0);
/// tree.push(shared, 30, 2, 0);
/// let icicle = Icicle::new(&tree, 1, 10);
/// let boxes = icicle.boxes().iter().map(|one| (one.level, one.left, one.blocks, one.own_blocks));
/// assert_eq!(boxes.collect::<Vec<_>>(), [(0, 0, 40, 0), (1, 0, 40, 10), (2, 0, 30, 30)]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IcicleBox {
    /// The content of the box.
    pub shown: Shown,
    /// The parent box; the root is its own parent.
    pub parent: usize,
    /// Number of boxes above this one.
    pub level: usize,
    /// Number of blocks to the left of the box.
    pub left: usize,
    /// The width of the box: the blocks of its content and of all descendants.
    pub blocks: usize,
    /// The blocks of the content: the run's own blocks, or all blocks of the group.
    pub own_blocks: usize,
    /// The last use of the content; of a group, the mean over its blocks.
    pub last_use: u64,
    /// Leases on the content.
    pub leases: usize,
}

/// The layout of a tree as boxes in depth-first order: each is followed by the boxes below it.
///
/// # Examples
///
/// ```
/// use radixkv_replay::picture::{CacheTree, Icicle};
///
/// let mut tree = CacheTree::new(16);
/// (0..10_000).for_each(|run| _ = tree.push(run / 10, 1, run as u64, 0));
/// let icicle = Icicle::new(&tree, 100, 20);
/// assert!(icicle.boxes().len() < 1000);
/// assert_eq!(icicle.grouped_runs() + icicle.shown_runs(), 10_000);
/// ```
#[derive(Debug, Clone)]
pub struct Icicle<'a> {
    tree: &'a CacheTree,
    boxes: Vec<IcicleBox>,
    levels: usize,
    narrowest: usize,
    grouped: usize,
}

/// The content to be drawn.
#[derive(Clone, Copy)]
enum What {
    Run(usize),
    Group(Subtree),
}

/// A position for a box that is yet to be placed.
struct Place {
    what: What,
    parent: usize,
    level: usize,
    left: usize,
}

/// The children of each run, the largest first, and the totals of each run's subtree.
struct Family {
    children: Vec<Vec<usize>>,
    subtrees: Vec<Subtree>,
}

/// The totals of a run and its descendants.
#[derive(Clone, Copy)]
struct Subtree {
    blocks: usize,
    runs: usize,
    leases: usize,
    /// The sum of the last uses of all blocks.
    last_uses: u128,
}

impl<'a> Icicle<'a> {
    /// Lays out a tree on `levels` levels, including the root's. Runs narrower than `narrowest`
    /// blocks, and runs on the last level that have children, are drawn together in groups.
    #[must_use]
    pub fn new(tree: &'a CacheTree, narrowest: usize, levels: usize) -> Self {
        let mut icicle = Self { tree, boxes: Vec::new(), levels: 1, narrowest, grouped: 0 };
        let family = Family::of(tree);
        // The places yet to be filled; the last one is the next.
        let mut waiting = vec![Place { what: What::Run(0), parent: 0, level: 0, left: 0 }];
        while let Some(place) = waiting.pop() {
            icicle.levels = icicle.levels.max(place.level + 1);
            match place.what {
                What::Run(run) => {
                    let at = icicle.boxes.len();
                    icicle.place_run(run, &place, family.subtrees[run]);
                    let is_last_but_one = place.level + 2 >= levels;
                    let below = family.below(run, narrowest, is_last_but_one);
                    waiting.extend(placed(below, &place, at).into_iter().rev());
                }
                What::Group(group) => icicle.place_group(group, &place),
            }
        }
        icicle
    }

    /// Lays out a tree so that about `count` runs are drawn separately: those with the largest
    /// subtrees in blocks.
    pub(super) fn of_largest(tree: &'a CacheTree, count: usize, levels: usize) -> Self {
        let mut sizes: Vec<usize> = subtrees(tree).iter().skip(1).map(|subtree| subtree.blocks).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        Self::new(tree, sizes.get(count).map_or(0, |size| size + 1), levels)
    }

    fn place_run(&mut self, run: usize, place: &Place, subtree: Subtree) {
        let own = &self.tree.runs()[run];
        self.boxes.push(IcicleBox {
            shown: Shown::Run(run),
            parent: place.parent,
            level: place.level,
            left: place.left,
            blocks: subtree.blocks,
            own_blocks: own.blocks(),
            last_use: if run == 0 { self.tree.now() } else { own.last_use },
            leases: own.leases,
        });
    }

    fn place_group(&mut self, group: Subtree, place: &Place) {
        self.grouped += group.runs;
        self.boxes.push(IcicleBox {
            shown: Shown::Group { runs: group.runs },
            parent: place.parent,
            level: place.level,
            left: place.left,
            blocks: group.blocks,
            own_blocks: group.blocks,
            last_use: group.mean_use(),
            leases: group.leases,
        });
    }

    /// The tree that is laid out.
    #[must_use]
    pub fn tree(&self) -> &CacheTree {
        self.tree
    }

    /// The boxes; box 0 is the root.
    #[must_use]
    pub fn boxes(&self) -> &[IcicleBox] {
        &self.boxes
    }

    /// Number of levels in use.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// The smallest width in blocks of a run that has its own box.
    #[must_use]
    pub fn narrowest(&self) -> usize {
        self.narrowest
    }

    /// Number of runs that share a box with others.
    #[must_use]
    pub fn grouped_runs(&self) -> usize {
        self.grouped
    }

    /// Number of runs with their own box, without the root.
    #[must_use]
    pub fn shown_runs(&self) -> usize {
        self.tree.runs().len() - 1 - self.grouped
    }
}

impl Family {
    fn of(tree: &CacheTree) -> Self {
        let subtrees = subtrees(tree);
        let mut children = vec![Vec::new(); tree.runs().len()];
        for (at, run) in tree.runs().iter().enumerate().skip(1) {
            children[run.parent].push(at);
        }
        for below in &mut children {
            below.sort_by_key(|&run| Reverse(subtrees[run].blocks));
        }
        Self { children, subtrees }
    }

    /// The boxes below a run: the large children, and all others as one group. On the last level a
    /// run has its own box only if it has no children.
    fn below(&self, run: usize, narrowest: usize, is_last: bool) -> Vec<(What, usize)> {
        let is_shown = |child: &usize| {
            let has_room = !is_last || self.children[*child].is_empty();
            has_room && self.subtrees[*child].blocks >= narrowest
        };
        let (shown, hidden): (Vec<usize>, Vec<usize>) = self.children[run].iter().partition(|&child| is_shown(child));
        let mut below: Vec<_> = shown.iter().map(|&run| (What::Run(run), self.subtrees[run].blocks)).collect();
        let group = hidden.iter().map(|&run| self.subtrees[run]).reduce(Subtree::and);
        below.extend(group.map(|group| (What::Group(group), group.blocks)));
        below
    }
}

/// Places boxes side by side below `place`, whose box is `parent`.
fn placed(below: Vec<(What, usize)>, place: &Place, parent: usize) -> Vec<Place> {
    let mut left = place.left;
    let put = |(what, blocks): (What, usize)| {
        let put = Place { what, parent, level: place.level + 1, left };
        left += blocks;
        put
    };
    below.into_iter().map(put).collect()
}

impl Subtree {
    fn and(self, other: Self) -> Self {
        Self {
            blocks: self.blocks + other.blocks,
            runs: self.runs + other.runs,
            leases: self.leases + other.leases,
            last_uses: self.last_uses + other.last_uses,
        }
    }

    fn mean_use(self) -> u64 {
        (self.last_uses / (self.blocks as u128).max(1)) as u64
    }
}

fn subtrees(tree: &CacheTree) -> Vec<Subtree> {
    let own = tree.runs().iter().map(|run| Subtree {
        blocks: run.blocks(),
        runs: 1,
        leases: run.leases,
        last_uses: u128::from(run.last_use) * run.blocks() as u128,
    });
    let mut subtrees: Vec<Subtree> = own.collect();
    for run in (1..subtrees.len()).rev() {
        let parent = tree.runs()[run].parent;
        subtrees[parent] = subtrees[parent].and(subtrees[run]);
    }
    subtrees
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    fn random(rng: &mut Rng, runs: usize) -> CacheTree {
        let mut tree = CacheTree::new(16);
        for run in 0..runs {
            tree.push(rng.usize(..=run), 1 + rng.usize(..9), rng.u64(..100), rng.usize(..2));
        }
        tree
    }

    #[test]
    fn boxes_of_a_level_do_not_overlap_and_lie_below_what_they_hang_on() {
        let mut rng = Rng::with_seed(3);
        for _ in 0..200 {
            let runs = rng.usize(..80);
            let tree = random(&mut rng, runs);
            let icicle = Icicle::new(&tree, rng.usize(..20), 1 + rng.usize(1..8));
            let mut ends = vec![0; icicle.levels()];
            for (at, one) in icicle.boxes().iter().enumerate() {
                assert!(one.left >= ends[one.level], "levels are filled from the left");
                ends[one.level] = one.left + one.blocks;
                if at > 0 {
                    let above = &icicle.boxes()[one.parent];
                    assert_eq!((one.parent < at, above.level + 1), (true, one.level));
                    assert!(one.left >= above.left && one.left + one.blocks <= above.left + above.blocks);
                }
            }
            assert_eq!(
                icicle.shown_runs() + 1 + icicle.boxes().iter().map(grouped).filter(|&runs| runs > 0).count(),
                icicle.boxes().len()
            );
            assert_eq!(icicle.boxes().iter().map(grouped).sum::<usize>(), icicle.grouped_runs());
            assert_eq!(icicle.boxes().iter().map(|one| one.own_blocks).sum::<usize>(), tree.blocks());
            assert_eq!(icicle.boxes().iter().map(|one| one.leases).sum::<usize>(), tree.leases());
        }
    }

    fn grouped(one: &IcicleBox) -> usize {
        match one.shown {
            Shown::Run(_) => 0,
            Shown::Group { runs } => runs,
        }
    }
}
