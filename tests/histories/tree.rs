//! The specification of matching, inserting, evicting and clearing, and how real calls are put in
//! its terms.

use std::collections::BTreeSet;

use todc_utils::Specification;

/// Blocks of the longest sequence.
pub const DEPTH: usize = 3;

/// A sequence of blocks, each one of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    len: usize,
    /// The `i`-th bit is the `i`-th block.
    blocks: usize,
}

/// A cached block: the blocks of its prefix below a leading one. The root is 1.
type Node = usize;

impl Path {
    pub fn new(blocks: &[usize]) -> Self {
        let bits = blocks.iter().enumerate().map(|(i, &block)| block << i);
        Self { len: blocks.len(), blocks: bits.sum() }
    }

    /// `len` blocks that begin as this path does and go on as `blocks` says.
    pub fn extended(self, len: usize, blocks: usize) -> Self {
        let mask = (1 << self.len) - 1;
        Self { len, blocks: (self.blocks & mask | blocks & !mask) & ((1 << len) - 1) }
    }

    pub fn len(self) -> usize {
        self.len
    }

    pub fn block(self, i: usize) -> usize {
        self.blocks >> i & 1
    }

    pub fn prefix(self, len: usize) -> Self {
        self.extended(len, self.blocks)
    }

    fn node(self) -> Node {
        (0..self.len).fold(1, |node, i| node * 2 + self.block(i))
    }
}

/// Names a lease in one history.
pub type LeaseId = usize;

/// A call with its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Match {
        path: Path,
        found: usize,
        lease: LeaseId,
    },
    Peek {
        path: Path,
        found: usize,
    },
    Insert {
        from: LeaseId,
        path: Path,
        inserted: Option<Inserted>,
    },
    Release {
        lease: LeaseId,
    },
    Clear,
    /// `evict` freed one block; it freed as many as there are of these.
    Trim,
    /// `evict` freed less than it was asked for.
    Dry,
}

/// What an insert that was not refused said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    pub duplicates: usize,
    pub lease: LeaseId,
}

/// A call, and whether it ran beside one that it may mistake: see the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub call: Call,
    pub lenient: bool,
}

/// All that may be cached, given what was answered so far, and the leases in the namespace's
/// present tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    cached: BTreeSet<Cached>,
    leases: Vec<(LeaseId, Place)>,
}

/// One bit for each cached node.
type Cached = u32;
/// How many blocks a lease covers, and the last of them.
type Place = (usize, Node);

/// Blocks at the beginning of `path` that are cached.
fn longest(cached: Cached, path: Path) -> usize {
    (1..=path.len).take_while(|&len| cached >> path.prefix(len).node() & 1 == 1).count()
}

impl State {
    fn leased(&self, lease: LeaseId) -> Option<usize> {
        self.leases.iter().find(|(id, _)| *id == lease).map(|(_, (len, _))| *len)
    }

    fn lease(mut self, lease: LeaseId, path: Path) -> Self {
        self.leases.push((lease, (path.len, path.node())));
        self
    }

    fn keep(mut self, allowed: impl Fn(Cached) -> bool) -> Option<Self> {
        self.cached.retain(|&cached| allowed(cached));
        (!self.cached.is_empty()).then_some(self)
    }

    /// Every way to take one idle leaf away.
    fn trimmed(&self, cached: Cached) -> impl Iterator<Item = Cached> {
        let is_cached = move |node: Node| node < 2 << DEPTH && cached >> node & 1 == 1;
        let leaves =
            (2..2 << DEPTH).filter(move |&node| is_cached(node) && !is_cached(2 * node) && !is_cached(2 * node + 1));
        leaves
            .filter(|&leaf| self.leases.iter().all(|(_, (_, node))| *node != leaf))
            .map(move |leaf| cached & !(1 << leaf))
    }

    fn after(&self, step: &Step) -> Option<Self> {
        let answers = |truth: usize, answer: usize| answer == truth || (step.lenient && answer < truth);
        let next = self.clone();
        match step.call {
            Call::Match { path, found, lease } => {
                let next = next.keep(|cached| answers(longest(cached, path), found))?;
                Some(next.lease(lease, path.prefix(found)))
            }
            Call::Peek { path, found } => next.keep(|cached| answers(longest(cached, path), found)),
            Call::Insert { from, path, inserted } => next.insert(from, path, inserted, step.lenient),
            Call::Release { lease } => {
                let leases = next.leases.into_iter().filter(|(id, _)| *id != lease).collect();
                Some(Self { leases, ..next })
            }
            Call::Clear => Some(Tree::init()),
            Call::Trim => {
                let mut cached: BTreeSet<_> = self.cached.iter().flat_map(|&cached| self.trimmed(cached)).collect();
                if step.lenient {
                    cached.extend(&self.cached);
                }
                (!cached.is_empty()).then_some(Self { cached, ..next })
            }
            Call::Dry if step.lenient => Some(next),
            Call::Dry => next.keep(|cached| self.trimmed(cached).next().is_none()),
        }
    }

    fn insert(self, from: LeaseId, path: Path, inserted: Option<Inserted>, lenient: bool) -> Option<Self> {
        match (self.leased(from), inserted) {
            (None, None) => Some(self),
            (None, Some(_)) => lenient.then_some(self),
            (Some(_), None) => None,
            (Some(len), Some(Inserted { duplicates, lease })) => {
                let answers = |truth: usize| len + duplicates == truth || (lenient && len + duplicates < truth);
                let mut next = self.keep(|cached| answers(longest(cached, path)))?;
                let whole = (1..=path.len).fold(0, |whole, len| whole | 1 << path.prefix(len).node());
                next.cached = next.cached.iter().map(|cached| cached | whole).collect();
                Some(next.lease(lease, path))
            }
        }
    }
}

/// One namespace, as the header of this test specifies it.
pub struct Tree;

impl Specification for Tree {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        State { cached: BTreeSet::from([0]), leases: Vec::new() }
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        state.after(step).map_or_else(|| (false, state.clone()), |next| (true, next))
    }
}
