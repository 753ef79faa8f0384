//! Blocks, trees and leases of the reference: where every block is, and which one goes next.
//!
//! # Invariants
//!
//! - **I1** Every block is in exactly one of `free`, `reserved` and `cached`.
//! - **I2** A cached block's parent knows it as the child for its tokens, and the other way round.
//! - **I3** `candidates` holds exactly the cached blocks without child and lease, each with its present rank.
//! - **I4** What is left of a dropped tree is protected.
//! - **I5** A block that is charged is reserved.
//! - **I6** A place is retained with a lease, in a tree that stands, until a moment that has not come.

use std::collections::{BTreeMap, BTreeSet};

use super::marks::Marks;
use super::policy::{Rank, Statistics, rank};
use super::{BlockId, Violation};
use crate::key::Token;
use crate::policy::PolicyKind;

/// Number of a tree; never used twice.
pub(super) type TreeId = u64;
/// Number of a namespace, from its first use to its being dropped; never used twice.
pub(super) type HolderId = u64;
/// The vertices below a place, by all the tokens of their block.
type Children = BTreeMap<Vec<Token>, BlockId>;

/// A place in a tree where a lease can stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Before the first block.
    Root(TreeId),
    /// After this block.
    After(BlockId),
}

#[derive(Debug)]
struct Tree {
    holder: HolderId,
    children: Children,
    dropped: bool,
}

/// A cached block; its number names it.
#[derive(Debug)]
struct Vertex {
    parent: Place,
    tokens: Vec<Token>,
    children: Children,
    /// The level that each token of the block belongs to.
    levels: Vec<u32>,
    /// Which insert it came with.
    piece: u64,
    statistics: Statistics,
    marks: Marks,
    /// The rank under which `candidates` has it.
    filed: Option<Rank>,
}

#[derive(Debug)]
pub(super) struct Store {
    policy: PolicyKind,
    pub(super) free: BTreeSet<BlockId>,
    pub(super) reserved: BTreeSet<BlockId>,
    cached: Vec<Option<Vertex>>,
    trees: BTreeMap<TreeId, Tree>,
    next_tree: TreeId,
    /// Leases held at each place, where there are any.
    leased: BTreeMap<Place, usize>,
    candidates: BTreeSet<(Rank, BlockId)>,
    /// Reserved blocks that count with a namespace.
    pub(super) charged: BTreeMap<BlockId, HolderId>,
    /// Namespaces with a limit on what is cached, the one that was limited first before the others.
    pub(super) limits: Vec<(HolderId, Option<usize>)>,
    /// Places that the store itself keeps a lease on, each with the moment at which it lets go.
    retained: BTreeMap<Place, u64>,
    now: u64,
    /// Inserts that have added blocks, or would have.
    pieces: u64,
}

impl Store {
    pub(super) fn new(policy: PolicyKind, capacity: usize) -> Self {
        let last = BlockId::try_from(capacity).expect("a block id has 32 bits");
        Self {
            policy,
            free: (0..last).collect(),
            reserved: BTreeSet::new(),
            cached: (0..capacity).map(|_| None).collect(),
            trees: BTreeMap::new(),
            next_tree: 0,
            leased: BTreeMap::new(),
            candidates: BTreeSet::new(),
            charged: BTreeMap::new(),
            limits: Vec::new(),
            retained: BTreeMap::new(),
            now: 0,
            pieces: 0,
        }
    }

    /// It is `now`: what was retained until then is let go, and priorities that have expired count no more.
    pub(super) fn set_time(&mut self, now: u64) {
        self.now = now;
        let over = self.retained.iter().filter(|(_, until)| **until <= now).map(|(&at, _)| at);
        over.collect::<Vec<_>>().into_iter().for_each(|at| self.release_retained(at));
        for block in 0..self.capacity() as BlockId {
            if self.cached[block as usize].as_ref().is_some_and(|vertex| vertex.marks.expire()) {
                self.file(block);
            }
        }
    }

    /// Changes the marks of every block up to `at`.
    pub(super) fn mark(&mut self, at: Place, mark: impl Fn(&mut Marks)) {
        for block in self.path(at) {
            mark(&mut self.vertex_mut(block).marks);
            self.file(block);
        }
    }

    /// Keeps a lease on `at` until `until`, or until the moment that was set before if that is later.
    pub(super) fn retain(&mut self, at: Place, until: u64) {
        match self.retained.get_mut(&at) {
            Some(before) => *before = until.max(*before),
            None => {
                self.retained.insert(at, until);
                self.lease(at);
            }
        }
        self.set_time(self.now);
    }

    pub(super) fn release_retained(&mut self, at: Place) {
        if self.retained.remove(&at).is_some() {
            self.release(at);
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.cached.len()
    }

    pub(super) fn plant(&mut self, holder: HolderId) -> TreeId {
        let id = self.next_tree;
        self.next_tree += 1;
        let children = Children::new();
        let dropped = false;
        self.trees.insert(id, Tree { holder, children, dropped });
        id
    }

    pub(super) fn is_dropped(&self, tree: TreeId) -> bool {
        self.trees.get(&tree).is_none_or(|tree| tree.dropped)
    }

    /// Nothing new is found in `tree` or hung into it from now on.
    pub(super) fn fell(&mut self, tree: TreeId) {
        self.trees.get_mut(&tree).expect("dropped once").dropped = true;
        let of_it = self.retained.keys().copied().filter(|&at| self.tree_of(at) == tree);
        of_it.collect::<Vec<_>>().into_iter().for_each(|at| self.release_retained(at));
        self.clear_up();
    }

    fn vertex(&self, block: BlockId) -> &Vertex {
        self.cached[block as usize].as_ref().expect("a cached block")
    }

    fn vertex_mut(&mut self, block: BlockId) -> &mut Vertex {
        self.cached[block as usize].as_mut().expect("a cached block")
    }

    fn children(&self, at: Place) -> Option<&Children> {
        match at {
            Place::Root(tree) => self.trees.get(&tree).map(|tree| &tree.children),
            Place::After(block) => Some(&self.vertex(block).children),
        }
    }

    fn children_mut(&mut self, at: Place) -> &mut Children {
        match at {
            Place::Root(tree) => &mut self.trees.get_mut(&tree).expect("a live tree").children,
            Place::After(block) => &mut self.vertex_mut(block).children,
        }
    }

    fn tree_of(&self, mut at: Place) -> TreeId {
        loop {
            match at {
                Place::Root(tree) => return tree,
                Place::After(block) => at = self.vertex(block).parent,
            }
        }
    }

    /// The levels of tokens that are to follow `parent`: as far as a block there has the same ones they share its
    /// levels, and what parts from them begins one level more.
    ///
    /// The first `carried` tokens are the last of the block before, if there is one.
    pub(super) fn levels(&self, parent: Place, tokens: &[Token], carried: usize) -> Vec<u32> {
        let children = self.children(parent).into_iter().flatten();
        let shared = children.map(|(theirs, &block)| {
            let len = theirs.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            self.vertex(block).levels[..len].to_vec()
        });
        let (above, carried) = match parent {
            Place::Root(_) => (0, 0),
            Place::After(block) => (self.vertex(block).statistics.level, carried),
        };
        let mut levels = shared.max_by_key(Vec::len).unwrap_or_else(|| vec![above; carried]);
        let level = levels.last().copied().unwrap_or(above) + 1;
        levels.resize(tokens.len(), level);
        levels
    }

    /// The block that follows `at` and holds `tokens`.
    pub(super) fn child(&self, at: Place, tokens: &[Token]) -> Option<BlockId> {
        self.children(at)?.get(tokens).copied()
    }

    /// The blocks that follow `at`, by their tokens.
    pub(super) fn blocks_below(&self, at: Place) -> Vec<(&[Token], BlockId)> {
        let children = self.children(at).into_iter().flatten();
        children.map(|(tokens, block)| (&tokens[..], *block)).collect()
    }

    /// The blocks from the root to `at`.
    pub(super) fn path(&self, mut at: Place) -> Vec<BlockId> {
        let mut path = Vec::new();
        while let Place::After(block) = at {
            path.push(block);
            at = self.vertex(block).parent;
        }
        path.reverse();
        path
    }

    /// Stamps a block, and counts a hit on it if the request has not had one there.
    pub(super) fn touch(&mut self, block: BlockId, now: u64, hit: bool) {
        let vertex = self.vertex_mut(block);
        vertex.statistics.last = vertex.statistics.last.max(now);
        vertex.statistics.hits += u64::from(hit);
        vertex.marks.keep();
        self.file(block);
    }

    /// Another insert begins: blocks that are added from now on are its piece.
    pub(super) fn begin_piece(&mut self) {
        self.pieces += 1;
    }

    /// Caches a reserved block after `parent`.
    pub(super) fn add(&mut self, parent: Place, tokens: &[Token], levels: Vec<u32>, block: BlockId, now: u64) {
        assert!(self.reserved.remove(&block), "only reserved blocks are inserted");
        self.charged.remove(&block);
        let before = self.children_mut(parent).insert(tokens.to_vec(), block);
        assert_eq!(before, None, "a block is cached once");
        self.cached[block as usize] = Some(Vertex {
            parent,
            tokens: tokens.to_vec(),
            children: Children::new(),
            statistics: Statistics::born_at(now, *levels.last().expect("a block holds tokens")),
            levels,
            piece: self.pieces,
            marks: Marks::default(),
            filed: None,
        });
        self.file_place(parent);
        self.file(block);
    }

    /// Frees a block without child and lease.
    fn remove(&mut self, block: BlockId) {
        let vertex = self.cached[block as usize].take().expect("a cached block");
        assert!(vertex.children.is_empty() && !self.leased.contains_key(&Place::After(block)));
        if let Some(rank) = vertex.filed {
            self.candidates.remove(&(rank, block));
        }
        self.children_mut(vertex.parent).remove(&vertex.tokens);
        self.file_place(vertex.parent);
        self.free.insert(block);
    }

    pub(super) fn lease(&mut self, at: Place) {
        *self.leased.entry(at).or_default() += 1;
        self.file_place(at);
    }

    pub(super) fn release(&mut self, at: Place) {
        let leases = self.leased.get_mut(&at).expect("a held lease");
        *leases -= 1;
        if *leases == 0 {
            self.leased.remove(&at);
        }
        self.file_place(at);
        self.clear_up();
    }

    fn file_place(&mut self, at: Place) {
        if let Place::After(block) = at {
            self.file(block);
        }
    }

    /// Brings `candidates` up to date with one block (I3).
    fn file(&mut self, block: BlockId) {
        let vertex = self.vertex(block);
        let before = vertex.filed;
        let now = self.candidate_rank(block, vertex);
        if before == now {
            return;
        }
        if let Some(rank) = before {
            self.candidates.remove(&(rank, block));
        }
        if let Some(rank) = now {
            self.candidates.insert((rank, block));
        }
        self.vertex_mut(block).filed = now;
    }

    fn candidate_rank(&self, block: BlockId, vertex: &Vertex) -> Option<Rank> {
        let idle = vertex.children.is_empty() && !self.leased.contains_key(&Place::After(block));
        idle.then(|| rank(self.policy, &vertex.statistics, vertex.piece, &vertex.marks, self.now))
    }

    /// Puts another policy in force.
    pub(super) fn set_policy(&mut self, policy: PolicyKind) {
        self.policy = policy;
        for block in 0..self.capacity() as BlockId {
            if self.cached[block as usize].is_some() {
                self.file(block);
            }
        }
    }

    /// Frees what was last used at `idle_since` or before, until nothing more can go.
    pub(super) fn age(&mut self, idle_since: u64) {
        let is_old = |block: &BlockId| self.vertex(*block).statistics.last <= idle_since;
        let old: Vec<BlockId> = self.candidates.iter().map(|(_, block)| *block).filter(is_old).collect();
        if !old.is_empty() {
            old.into_iter().for_each(|block| self.remove(block));
            self.age(idle_since);
        }
    }

    /// Frees what namespaces have cached beyond their limits, as far as nothing protects it.
    pub(super) fn keep_to_limits(&mut self) {
        while let Some(victim) = self.victim_over_limit() {
            self.remove(victim);
        }
    }

    /// The candidate of smallest rank of the first namespace that has more than it may, and a candidate.
    fn victim_over_limit(&self) -> Option<BlockId> {
        let over =
            self.limits.iter().filter(|(holder, limit)| limit.is_some_and(|limit| self.cached_of(*holder) > limit));
        over.filter_map(|(holder, _)| {
            let mut candidates = self.candidates.iter().map(|(_, block)| *block);
            candidates.find(|block| self.holder_of(Place::After(*block)) == *holder)
        })
        .next()
    }

    /// Whose tree a place is in.
    pub(super) fn holder_of(&self, mut at: Place) -> HolderId {
        loop {
            match at {
                Place::Root(tree) => return self.trees[&tree].holder,
                Place::After(block) => at = self.vertex(block).parent,
            }
        }
    }

    fn cached_of(&self, holder: HolderId) -> usize {
        let blocks = 0..self.capacity() as BlockId;
        let cached = blocks.filter(|block| self.cached[*block as usize].is_some());
        cached.filter(|block| self.holder_of(Place::After(*block)) == holder).count()
    }

    /// Blocks of a namespace that leases protect or reservations hold.
    pub(super) fn pinned_by(&self, holder: HolderId) -> usize {
        let protected = self.protected();
        let protected = protected.iter().filter(|block| self.holder_of(Place::After(**block)) == holder).count();
        protected + self.charged.values().filter(|charged_to| **charged_to == holder).count()
    }

    /// Frees up to `blocks` blocks, the smallest rank first; returns how many it found.
    pub(super) fn evict(&mut self, blocks: usize) -> usize {
        for freed in 0..blocks {
            let first = self.candidates.first().map(|&(_, block)| block);
            let Some(victim) = self.victim_over_limit().or(first) else {
                return freed;
            };
            self.remove(victim);
        }
        blocks
    }

    /// Blocks with a lease on them or on one of their descendants.
    pub(super) fn protected(&self) -> BTreeSet<BlockId> {
        self.leased.keys().flat_map(|&at| self.path(at)).collect()
    }

    /// Frees what no lease protects in dropped trees (I4).
    fn clear_up(&mut self) {
        let dropped = self.trees.iter().filter(|(_, tree)| tree.dropped);
        let dropped: Vec<TreeId> = dropped.map(|(&id, _)| id).collect();
        if dropped.is_empty() {
            return;
        }
        let protected = self.protected();
        for tree in dropped {
            for block in self.blocks_of(tree).into_iter().rev() {
                if !protected.contains(&block) {
                    self.remove(block);
                }
            }
            if self.trees[&tree].children.is_empty() {
                self.trees.remove(&tree);
            }
        }
    }

    /// Every block of a tree, parents before their children.
    fn blocks_of(&self, tree: TreeId) -> Vec<BlockId> {
        let mut blocks: Vec<BlockId> = self.trees[&tree].children.values().copied().collect();
        let mut at = 0;
        while at < blocks.len() {
            blocks.extend(self.vertex(blocks[at]).children.values());
            at += 1;
        }
        blocks
    }

    /// Checks I1 to I6, in O(everything).
    pub(super) fn validate(&self) -> Result<(), Violation> {
        let hung: Vec<BlockId> = self.trees.keys().flat_map(|&tree| self.blocks_of(tree)).collect();
        let cached: BTreeSet<BlockId> = hung.iter().copied().collect();
        let found = |id: &BlockId| self.cached[*id as usize].is_some();
        let held = (0..self.capacity() as BlockId).filter(found).collect();
        check(cached.len() == hung.len() && cached == held, "I2: a cached block hangs once")?;
        for block in 0..self.capacity() as BlockId {
            let homes = [&self.free, &self.reserved, &cached];
            let homes = homes.iter().filter(|home| home.contains(&block)).count();
            check(homes == 1, "I1: a block is free, reserved or cached")?;
        }
        let charged = self.charged.keys().all(|block| self.reserved.contains(block));
        check(charged, "I5: a charged block is reserved")?;
        let mut candidates = BTreeSet::new();
        for &block in &cached {
            let vertex = self.vertex(block);
            let known = self.child(vertex.parent, &vertex.tokens);
            check(known == Some(block), "I2: a parent knows its child")?;
            let rank = self.candidate_rank(block, vertex);
            check(rank == vertex.filed, "I3: a candidate is filed under its rank")?;
            candidates.extend(rank.map(|rank| (rank, block)));
        }
        check(candidates == self.candidates, "I3: candidates are the idle leaves")?;
        let protected = self.protected();
        let dropped = self.trees.iter().filter(|(_, tree)| tree.dropped);
        let mut leftover = dropped.flat_map(|(&tree, _)| self.blocks_of(tree));
        check(leftover.all(|block| protected.contains(&block)), "I4: dropped blocks are protected")?;
        let stands = |(at, until): (&Place, &u64)| {
            self.leased.contains_key(at) && !self.is_dropped(self.tree_of(*at)) && *until > self.now
        };
        check(self.retained.iter().all(stands), "I6: what is retained is leased, and for a while yet")
    }
}

fn check(holds: bool, invariant: &'static str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(invariant)) }
}
