//! A space: one generation of a namespace's tree. Clearing or dropping a namespace detaches its space whole.

use crate::reclaim::{Canary, Guard, Node, Own, Ref};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use super::holdings::Holdings;
use super::point::Point;
use super::run::Run;

/// One tree: its trunk, its root, and whether lookups still start in it.
#[derive(Debug)]
pub(crate) struct Space {
    trunk: AtomicPtr<Run>,
    root: AtomicPtr<Point>,
    /// One once lookups start elsewhere.
    detached: AtomicUsize,
    /// Offset of the grid on which blocks end in its sequences.
    pub(crate) offset: u32,
    /// The blocks of its namespace, over all generations.
    pub(crate) holdings: Arc<Holdings>,
    canary: Canary,
}

impl Space {
    /// The root of an empty tree.
    pub(crate) fn plant<'g>(offset: u32, holdings: Arc<Holdings>, guard: &'g Guard<'g>) -> Ref<'g, Point> {
        let space = Own::new(
            Self {
                trunk: AtomicPtr::new(std::ptr::null_mut()),
                root: AtomicPtr::new(std::ptr::null_mut()),
                detached: AtomicUsize::new(0),
                offset,
                holdings,
                canary: Canary::new(),
            },
            guard,
        )
        .publish();
        let trunk = Run::trunk(space.link(), guard).publish();
        let root = trunk.as_ref().points.get(0, guard).expect("a trunk is made with its root");
        // Relaxed: published with the root, when it is stored in a namespace.
        space.trunk.store(trunk.as_ptr(), Relaxed);
        space.root.store(root.as_ptr(), Relaxed);
        root
    }

    /// Marks that lookups start elsewhere from now on. The evictor's, after it has swapped the root.
    pub(crate) fn detach(&self) {
        // Relaxed: the evictor, which frees by this flag, is ordered by its lock. For a session it is an early refusal:
        // a run or a retention that is made all the same reaches the evictor through the queue, and ends there. A session
        // that was refused may, on a weak memory, find the old root again, and is refused once more.
        self.detached.store(1, Relaxed);
    }

    /// Whether its namespace was cleared or dropped.
    pub(crate) fn is_detached(&self) -> bool {
        // Relaxed: as above.
        self.detached.load(Relaxed) != 0
    }
}

impl<'g> Ref<'g, Space> {
    /// Depth zero of every sequence. A lease or the guard keeps the space, and the space its root.
    pub(crate) fn root(self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        // Relaxed: as old as the space.
        Ref::from_ptr(self.root.load(Relaxed), guard)
    }

    pub(crate) fn trunk(self, guard: &'g Guard<'_>) -> Option<Ref<'g, Run>> {
        // Relaxed: as old as the space.
        Ref::from_ptr(self.trunk.load(Relaxed), guard)
    }
}

#[allow(unsafe_code)]
// SAFETY: a space is a `Box`; dropping it follows no pointer into the index, and gives up a count of its holdings.
unsafe impl Node for Space {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}
