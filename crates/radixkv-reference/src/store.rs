//! The blocks, trees and leases of the reference, and the order of eviction.
//!
//! # Invariants
//!
//! - **X1** Every block is in exactly one of `free`, `reserved` and `cached`.
//! - **X2** A cached block that is not hidden is a child of its parent only, with its tokens as the
//!   key.
//! - **X3** `candidates` holds exactly the cached blocks without child and lease, each with its
//!   current rank.
//! - **X4** All remaining blocks of a dropped tree, and all hidden ones, are protected.
//! - **X5** A block that is charged to a namespace is reserved.
//! - **X6** A retained place is leased, is in a tree that was not dropped, and has a deadline in
//!   the future.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, iter};

use radixkv::{PolicyKind, Token};

use super::marks::BlockMarks;
use super::policy::{BlockRank, Statistics, rank};

/// Index of a block. A reservation gets the lowest free ids.
pub type BlockId = u32;
/// Number of a tree; never reused.
pub(super) type TreeId = u64;
/// Number of a namespace, from its first use until it is dropped; never reused.
pub(super) type NamespaceId = u64;
/// The blocks that follow a place, keyed by their tokens.
type Children = BTreeMap<Vec<Token>, BlockId>;

/// A place in a tree, where a lease can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Before the first block.
    Root(TreeId),
    /// After this block.
    After(BlockId),
}

#[derive(Debug)]
struct Tree {
    owner: NamespaceId,
    children: Children,
    dropped: bool,
}

/// A cached block; its id is its index in `cached`.
#[derive(Debug)]
struct Vertex {
    parent: Place,
    tokens: Vec<Token>,
    children: Children,
    /// The level of each token of the block.
    levels: Vec<u32>,
    /// Number of the insert that cached it.
    piece: u64,
    statistics: Statistics,
    marks: BlockMarks,
    /// Its rank in `candidates`, if it is listed there.
    filed: Option<BlockRank>,
}

#[derive(Debug)]
pub(super) struct Store {
    policy: PolicyKind,
    pub(super) free: BTreeSet<BlockId>,
    pub(super) reserved: BTreeSet<BlockId>,
    cached: Vec<Option<Vertex>>,
    trees: BTreeMap<TreeId, Tree>,
    next_tree: TreeId,
    /// The number of leases at each leased place.
    leased: BTreeMap<Place, usize>,
    candidates: BTreeSet<(BlockRank, BlockId)>,
    /// Reserved blocks that are charged to a namespace.
    pub(super) charged: BTreeMap<BlockId, NamespaceId>,
    /// Limits on cached blocks, in the order in which the namespaces were first limited.
    pub(super) limits: Vec<(NamespaceId, Option<usize>)>,
    /// Cached blocks that were invalidated, so that no lookup finds them.
    hidden: BTreeSet<BlockId>,
    /// Places that the store itself leases, each with a deadline.
    retained: BTreeMap<Place, u64>,
    now: u64,
    /// The number of inserts so far.
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
            hidden: BTreeSet::new(),
            retained: BTreeMap::new(),
            now: 0,
            pieces: 0,
        }
    }

    /// Sets the time to `now`, and ends retentions and priorities with a deadline up to `now`.
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
    pub(super) fn mark(&mut self, at: Place, mark: impl Fn(&mut BlockMarks)) {
        for block in self.path(at) {
            mark(&mut self.vertex_mut(block).marks);
            self.file(block);
        }
    }

    /// Keeps a lease on `at` until `until`, or until an earlier call's deadline if that is later.
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

    pub(super) fn plant(&mut self, owner: NamespaceId) -> TreeId {
        let id = self.next_tree;
        self.next_tree += 1;
        let children = Children::new();
        let dropped = false;
        self.trees.insert(id, Tree { owner, children, dropped });
        id
    }

    pub(super) fn is_dropped(&self, tree: TreeId) -> bool {
        self.trees.get(&tree).is_none_or(|tree| tree.dropped)
    }

    /// Drops `tree`: lookups do not start there, and nothing is inserted into it.
    pub(super) fn fell(&mut self, tree: TreeId) {
        self.trees.get_mut(&tree).expect("a tree is dropped once").dropped = true;
        let of_it = self.retained.keys().copied().filter(|&at| self.tree_of(at) == tree);
        of_it.collect::<Vec<_>>().into_iter().for_each(|at| self.release_retained(at));
        self.clear_up();
    }

    /// Adds free blocks.
    pub(super) fn grow(&mut self, blocks: usize) {
        let before = self.capacity();
        self.cached.resize_with(before + blocks, || None);
        self.free.extend(before as BlockId..(before + blocks) as BlockId);
    }

    /// Hides these blocks and all their descendants: no lookup or resume finds them. Returns how
    /// many of them lookups could find before.
    pub(super) fn hide(&mut self, blocks: &[BlockId]) -> usize {
        let is_visible = |at: &BlockId| self.cached[*at as usize].is_some() && !self.hidden.contains(at);
        let is_found = |at: &&BlockId| !self.is_dropped(self.tree_of(Place::After(**at)));
        let goes = |at: &BlockId| self.path(Place::After(*at)).iter().any(|above| blocks.contains(above));
        let gone: Vec<BlockId> =
            (0..self.capacity() as BlockId).filter(is_visible).collect::<Vec<_>>().into_iter().filter(goes).collect();
        let found = gone.iter().filter(is_found).count();
        for &block in &gone {
            let (parent, tokens) = (self.vertex(block).parent, self.vertex(block).tokens.clone());
            self.children_mut(parent).remove(&tokens);
            self.hidden.insert(block);
        }
        gone.iter().for_each(|block| self.release_retained(Place::After(*block)));
        self.clear_up();
        found
    }

    /// Whether the block before this place is hidden.
    pub(super) fn is_hidden(&self, at: Place) -> bool {
        matches!(at, Place::After(block) if self.hidden.contains(&block))
    }

    /// The number of the insert that cached the block before a place, if there is one.
    pub(super) fn piece_at(&self, at: Place) -> Option<u64> {
        let Place::After(block) = at else { return None };
        self.cached[block as usize].as_ref().map(|vertex| vertex.piece)
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

    /// The levels of `tokens` after `parent`. Tokens that agree with a block there have the levels
    /// of that block; later tokens are one level deeper.
    ///
    /// Of a hidden block, only its first tokens count, which belong to an earlier piece: the real
    /// cache still has that piece.
    ///
    /// After a block, the first `carried` tokens repeat its last ones, because bigrams overlap.
    pub(super) fn levels(&self, parent: Place, tokens: &[Token], carried: usize) -> Vec<u32> {
        let children = self.children(parent).into_iter().flatten();
        let hidden = self.hidden.iter().map(|block| self.vertex(*block)).filter(|vertex| vertex.parent == parent);
        let beginnings =
            hidden.map(|vertex| (vertex, vertex.levels.partition_point(|level| Some(level) < vertex.levels.last())));
        let all = children.map(|(theirs, &block)| (self.vertex(block), theirs.len())).chain(beginnings);
        let (above, carried) = match parent {
            Place::Root(_) => (0, 0),
            Place::After(block) => (self.vertex(block).statistics.level, carried),
        };
        let shared = all.map(|(vertex, most)| {
            let len = vertex.tokens[..most].iter().zip(tokens).take_while(|(a, b)| a == b).count();
            vertex.levels[..len].to_vec()
        });
        // Carried tokens belong to the block before, whether or not blocks after it remain.
        let carried = iter::once(vec![above; carried]);
        let mut levels = carried.chain(shared).max_by_key(Vec::len).unwrap_or_default();
        let level = levels.last().copied().unwrap_or(above) + 1;
        levels.resize(tokens.len(), level);
        levels
    }

    /// The block after `at` with these tokens.
    pub(super) fn child(&self, at: Place, tokens: &[Token]) -> Option<BlockId> {
        self.children(at)?.get(tokens).copied()
    }

    /// The blocks after `at`, with their tokens.
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

    /// Sets the last use of a block to `now` and ends its demotion; counts a hit on it if `hit`.
    pub(super) fn touch(&mut self, block: BlockId, now: u64, hit: bool) {
        let vertex = self.vertex_mut(block);
        vertex.statistics.last = vertex.statistics.last.max(now);
        vertex.statistics.hits += u64::from(hit);
        vertex.marks.keep();
        self.file(block);
    }

    /// Counts a hit on a block, without updating its last use.
    pub(super) fn count(&mut self, block: BlockId) {
        self.vertex_mut(block).statistics.hits += 1;
        self.file(block);
    }

    /// Begins another insert: later added blocks belong to its piece.
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
            marks: BlockMarks::default(),
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
        if !self.hidden.remove(&block) {
            self.children_mut(vertex.parent).remove(&vertex.tokens);
        }
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

    /// Updates the entry of a block in `candidates` (X3).
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

    fn candidate_rank(&self, block: BlockId, vertex: &Vertex) -> Option<BlockRank> {
        let is_below = |hidden: &BlockId| self.vertex(*hidden).parent == Place::After(block);
        let childless = vertex.children.is_empty() && !self.hidden.iter().any(is_below);
        let idle = childless && !self.leased.contains_key(&Place::After(block));
        idle.then(|| rank(self.policy, &vertex.statistics, vertex.piece, &vertex.marks, self.now))
    }

    /// Changes the policy and ranks all blocks again.
    pub(super) fn set_policy(&mut self, policy: PolicyKind) {
        self.policy = policy;
        for block in 0..self.capacity() as BlockId {
            if self.cached[block as usize].is_some() {
                self.file(block);
            }
        }
    }

    /// Frees all evictable blocks of one or all namespaces that were last used at `idle_since` or
    /// before; returns how many.
    pub(super) fn age(&mut self, owner: Option<NamespaceId>, idle_since: u64) -> usize {
        let is_old = |block: &BlockId| self.vertex(*block).statistics.last <= idle_since;
        let is_of = |block: &BlockId| owner.is_none_or(|owner| self.namespace_of(Place::After(*block)) == owner);
        let candidates = self.candidates.iter().map(|(_, block)| *block);
        let old: Vec<BlockId> = candidates.filter(is_old).filter(is_of).collect();
        if old.is_empty() {
            return 0;
        }
        let freed = old.len();
        old.into_iter().for_each(|block| self.remove(block));
        freed + self.age(owner, idle_since)
    }

    /// A namespace's limit on cached blocks; adds an entry at the end of the order if there is
    /// none.
    pub(super) fn limit_of(&mut self, owner: NamespaceId) -> &mut Option<usize> {
        let at = self.limits.iter().position(|(limited, _)| *limited == owner).unwrap_or(self.limits.len());
        if at == self.limits.len() {
            self.limits.push((owner, None));
        }
        &mut self.limits[at].1
    }

    /// Frees up to `blocks` blocks of one namespace, the smallest rank first; returns how many it
    /// freed.
    pub(super) fn evict_of(&mut self, owner: NamespaceId, blocks: usize) -> usize {
        for freed in 0..blocks {
            let mut candidates = self.candidates.iter().map(|(_, block)| *block);
            let Some(victim) = candidates.find(|block| self.namespace_of(Place::After(*block)) == owner) else {
                return freed;
            };
            self.remove(victim);
        }
        blocks
    }

    /// Frees unprotected blocks of all namespaces that exceed their limits on cached blocks.
    pub(super) fn keep_to_limits(&mut self) {
        while let Some(victim) = self.victim_over_limit() {
            self.remove(victim);
        }
    }

    /// Frees unprotected blocks of one namespace that exceeds its limit on cached blocks.
    pub(super) fn keep_to_limit(&mut self, owner: NamespaceId) {
        let is_it = |of: &&(NamespaceId, Option<usize>)| of.0 == owner;
        while self
            .limits
            .iter()
            .find(is_it)
            .is_some_and(|(_, limit)| limit.is_some_and(|limit| self.cached_of(owner) > limit))
        {
            if self.evict_of(owner, 1) == 0 {
                return;
            }
        }
    }

    /// The smallest-ranked candidate of the first namespace that exceeds its limit and has a
    /// candidate.
    fn victim_over_limit(&self) -> Option<BlockId> {
        let over =
            self.limits.iter().filter(|(owner, limit)| limit.is_some_and(|limit| self.cached_of(*owner) > limit));
        over.filter_map(|(owner, _)| {
            let mut candidates = self.candidates.iter().map(|(_, block)| *block);
            candidates.find(|block| self.namespace_of(Place::After(*block)) == *owner)
        })
        .next()
    }

    /// The namespace of a place.
    pub(super) fn namespace_of(&self, mut at: Place) -> NamespaceId {
        loop {
            match at {
                Place::Root(tree) => return self.trees[&tree].owner,
                Place::After(block) => at = self.vertex(block).parent,
            }
        }
    }

    fn cached_of(&self, owner: NamespaceId) -> usize {
        let blocks = 0..self.capacity() as BlockId;
        let cached = blocks.filter(|block| self.cached[*block as usize].is_some());
        cached.filter(|block| self.namespace_of(Place::After(*block)) == owner).count()
    }

    /// Number of protected and reserved blocks of a namespace.
    pub(super) fn pinned_by(&self, owner: NamespaceId) -> usize {
        let protected = self.protected();
        let protected = protected.iter().filter(|block| self.namespace_of(Place::After(**block)) == owner).count();
        protected + self.charged.values().filter(|charged_to| **charged_to == owner).count()
    }

    /// Frees up to `blocks` blocks, the smallest rank first; returns how many it freed.
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

    /// Blocks that are leased or have a leased descendant.
    pub(super) fn protected(&self) -> BTreeSet<BlockId> {
        self.leased.keys().flat_map(|&at| self.path(at)).collect()
    }

    /// Frees unprotected blocks of dropped trees, and unprotected hidden blocks (X4).
    fn clear_up(&mut self) {
        if !self.hidden.is_empty() {
            let protected = self.protected();
            let mut free: Vec<BlockId> = self.hidden.difference(&protected).copied().collect();
            free.sort_by_key(|block| std::cmp::Reverse(self.path(Place::After(*block)).len()));
            free.into_iter().for_each(|block| self.remove(block));
        }
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
            let is_of_it = |hidden: &BlockId| self.tree_of(Place::After(*hidden)) == tree;
            if self.trees[&tree].children.is_empty() && !self.hidden.iter().any(is_of_it) {
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

    /// Checks X1 to X6 for every block.
    pub(super) fn validate(&self) -> Result<(), Violation> {
        let hung = self.trees.keys().flat_map(|&tree| self.blocks_of(tree));
        let hung: Vec<BlockId> = hung.chain(self.hidden.iter().copied()).collect();
        let cached: BTreeSet<BlockId> = hung.iter().copied().collect();
        let found = |id: &BlockId| self.cached[*id as usize].is_some();
        let held = (0..self.capacity() as BlockId).filter(found).collect();
        check(cached.len() == hung.len() && cached == held, "X2: a cached block has one place in one tree")?;
        for block in 0..self.capacity() as BlockId {
            let homes = [&self.free, &self.reserved, &cached];
            let homes = homes.iter().filter(|home| home.contains(&block)).count();
            check(homes == 1, "X1: a block is free, reserved or cached")?;
        }
        let charged = self.charged.keys().all(|block| self.reserved.contains(block));
        check(charged, "X5: a charged block is reserved")?;
        let mut candidates = BTreeSet::new();
        for &block in &cached {
            let vertex = self.vertex(block);
            let known = self.child(vertex.parent, &vertex.tokens);
            check((known == Some(block)) != self.hidden.contains(&block), "X2: a parent knows its child")?;
            let rank = self.candidate_rank(block, vertex);
            check(rank == vertex.filed, "X3: a candidate is filed under its rank")?;
            candidates.extend(rank.map(|rank| (rank, block)));
        }
        check(candidates == self.candidates, "X3: candidates are the idle leaves")?;
        let protected = self.protected();
        let dropped = self.trees.iter().filter(|(_, tree)| tree.dropped);
        let leftover = dropped.flat_map(|(&tree, _)| self.blocks_of(tree));
        let mut leftover = leftover.chain(self.hidden.iter().copied());
        check(leftover.all(|block| protected.contains(&block)), "X4: dropped and hidden blocks are protected")?;
        let stands = |(at, until): (&Place, &u64)| {
            self.leased.contains_key(at) && !self.is_dropped(self.tree_of(*at)) && *until > self.now
        };
        check(
            self.retained.iter().all(stands),
            "X6: a retained place is leased, in a tree that was not dropped, before its deadline",
        )
    }
}

/// The first broken invariant that [`super::Reference::validate`] found. For a cache, there is
/// [`radixkv::Violation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation(&'static str);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Violation {}

fn check(holds: bool, invariant: &'static str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(invariant)) }
}
