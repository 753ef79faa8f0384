//! A space: one generation of a namespace's tree. Clearing or dropping a namespace detaches its
//! whole space.

use crate::reclaim::{Canary, Guard, Node, Own, Ref};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, gauge};

use super::namespace_account::NamespaceAccount;
use super::point::Point;
use super::run::Run;

/// One tree: its trunk, its root, and whether lookups still start in it.
#[derive(Debug)]
pub(crate) struct Space {
    trunk: AtomicPtr<Run>,
    root: AtomicPtr<Point>,
    /// 1 once lookups start in another space.
    detached: AtomicUsize,
    /// Number of its runs with an invalidated part.
    hidden_runs: gauge::AtomicUsize,
    /// Offset of the block layout of its sequences.
    pub(crate) offset: u32,
    /// The accounts of its namespace, over all generations.
    pub(crate) account: Arc<NamespaceAccount>,
    canary: Canary,
}

impl Space {
    /// Makes an empty tree and returns its root.
    pub(crate) fn plant<'g>(offset: u32, account: Arc<NamespaceAccount>, guard: &'g Guard<'g>) -> Ref<'g, Point> {
        let space = Own::new(
            Self {
                trunk: AtomicPtr::new(std::ptr::null_mut()),
                root: AtomicPtr::new(std::ptr::null_mut()),
                detached: AtomicUsize::new(0),
                hidden_runs: gauge::AtomicUsize::new(0),
                offset,
                account,
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

    /// Marks that lookups now start in another space. The evictor calls it after it has swapped the
    /// root.
    pub(crate) fn detach(&self) {
        // Relaxed: the evictor, which frees by this flag, is ordered by its lock. A session only
        // uses it to refuse early: a run or retention that is made anyway reaches the evictor
        // through the queue and ends there. On weak memory a refused session may find the old root
        // again, and is refused again.
        self.detached.store(1, Relaxed);
    }

    /// The number of its runs with an invalidated part. Only the evictor changes it.
    ///
    /// Relaxed accesses are enough: a call that begins after the one that hid a run sees that, as
    /// with the tokens that a run shows.
    pub(crate) fn hidden_runs(&self) -> &gauge::AtomicUsize {
        &self.hidden_runs
    }

    /// Whether its namespace was cleared or dropped.
    pub(crate) fn is_detached(&self) -> bool {
        // Relaxed: see `detach`.
        self.detached.load(Relaxed) != 0
    }
}

impl<'g> Ref<'g, Space> {
    /// The point at depth zero of every sequence. A lease or the guard keeps the space, and the
    /// space keeps its root.
    pub(crate) fn root(self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        // Relaxed: never changes once the space is published.
        Ref::from_ptr(self.root.load(Relaxed), guard)
    }

    pub(crate) fn trunk(self, guard: &'g Guard<'_>) -> Option<Ref<'g, Run>> {
        // Relaxed: never changes once the space is published.
        Ref::from_ptr(self.trunk.load(Relaxed), guard)
    }
}

#[allow(unsafe_code)]
// SAFETY: a space is a `Box`; dropping it follows no pointer into the index, and releases one count
// of its account.
unsafe impl Node for Space {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}
