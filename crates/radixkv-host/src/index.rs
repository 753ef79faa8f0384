//! The index: maps token sequences to host blocks.
//!
//! A radix tree for each namespace, behind the tier's lock. A *run* is an edge: a segment of a
//! sequence. Where another sequence diverges from a run, a child run is attached at that depth;
//! nothing is split. A block belongs to the run that contains its last token.
//!
//! Any block of a run may be missing: a *hole*. A cache evicts the end of a sequence before its
//! beginning, so blocks arrive here without their ancestors. The tokens of a hole are kept as long
//! as the tier holds a block beyond them: they are a part of that block's identity, and every
//! lookup compares all of them. A run without blocks and without child runs is removed, and the end
//! of a run is cut off when no block or child run needs it.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use radixkv::{NamespaceName, Token, key::common_prefix};

use crate::{grid::Grid, tier::HostBlock};

/// Marks a missing block: a hole.
const HOLE: HostBlock = HostBlock::MAX;

pub(crate) type RunId = u32;

/// The position of a block in the index: its run, and its number in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    run: RunId,
    block: u32,
}

impl Place {
    /// The number of the run, the same for all blocks of a segment. It does not change while the
    /// run has a block.
    pub(crate) fn run(self) -> u32 {
        self.run
    }

    /// The block's number in the sequence.
    pub(crate) fn number(self) -> usize {
        self.block as usize
    }
}

/// The segment of a sequence that a run stores.
pub(crate) struct IndexPiece<'a> {
    pub(crate) namespace: &'a NamespaceName,
    pub(crate) parent: Option<RunId>,
    pub(crate) start: usize,
    pub(crate) tokens: &'a [Token],
}

/// The blocks of a path that belong to one run.
#[derive(Debug)]
struct Leg {
    run: RunId,
    blocks: Range<usize>,
}

/// A path from the root: its legs, and the depth up to which its tokens match.
#[derive(Debug)]
pub(crate) struct Path {
    legs: Vec<Leg>,
    depth: usize,
}

#[derive(Debug, Default)]
struct Run {
    space: u32,
    /// The parent run; `None` for a root.
    parent: Option<RunId>,
    /// Its first token, the key under which the parent finds it. It is kept when the run is cut.
    first_token: Token,
    /// The number of tokens before it.
    start: usize,
    tokens: Vec<Token>,
    /// The number of its first block.
    first_block: usize,
    /// Its blocks; `HOLE` where one is missing.
    blocks: Vec<HostBlock>,
    held: usize,
    /// The child runs, by depth and first token.
    children: BTreeMap<(usize, Token), RunId>,
}

/// A namespace's tree.
#[derive(Debug)]
struct Space {
    name: NamespaceName,
    grid: Grid,
    root: RunId,
    held: usize,
}

/// The trees of all namespaces that have a block.
#[derive(Debug)]
pub(crate) struct Index {
    block_size: usize,
    runs: Vec<Run>,
    unused_runs: Vec<RunId>,
    spaces: Vec<Option<Space>>,
    unused_spaces: Vec<u32>,
    names: HashMap<NamespaceName, u32>,
}

impl Run {
    fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    fn place_of(&self, place: Place) -> usize {
        place.block as usize - self.first_block
    }
}

impl Path {
    /// The position of a block.
    pub(crate) fn place(&self, block: usize) -> Option<Place> {
        let at = self.legs.partition_point(|leg| leg.blocks.end <= block);
        let leg = self.legs.get(at).filter(|leg| leg.blocks.contains(&block))?;
        Some(Place { run: leg.run, block: block as u32 })
    }
}

impl Index {
    pub(crate) fn new(block_size: usize) -> Self {
        Self {
            block_size,
            runs: Vec::new(),
            unused_runs: Vec::new(),
            spaces: Vec::new(),
            unused_spaces: Vec::new(),
            names: HashMap::new(),
        }
    }

    /// The longest path that matches `tokens`; `None` if the namespace has no blocks.
    pub(crate) fn path(&self, name: &NamespaceName, tokens: &[Token]) -> Option<Path> {
        let space = self.space(*self.names.get(name)?);
        Some(self.descend(space, tokens))
    }

    /// Returns the path of all of `tokens`, and creates the missing part. The caller then puts
    /// blocks on it, and calls [`cut`](Self::cut) to remove what no block needs.
    pub(crate) fn make_path(&mut self, name: &NamespaceName, tokens: &[Token]) -> Path {
        let number = self.names.get(name).copied().unwrap_or_else(|| self.plant(name));
        let space = self.space(number);
        let (grid, root, mut path) = (space.grid, space.root, self.descend(space, tokens));
        if path.depth < tokens.len() {
            let parent = path.legs.last().map_or(root, |leg| leg.run);
            let blocks = grid.blocks(path.depth)..grid.blocks(tokens.len());
            let run = Run {
                space: number,
                parent: Some(parent),
                first_token: tokens[path.depth],
                start: path.depth,
                tokens: tokens[path.depth..].to_vec(),
                first_block: blocks.start,
                blocks: vec![HOLE; blocks.len()],
                held: 0,
                children: BTreeMap::new(),
            };
            let child = self.add(run);
            self.run_mut(parent).children.insert((path.depth, tokens[path.depth]), child);
            path.legs.push(Leg { run: child, blocks });
            path.depth = tokens.len();
        }
        path
    }

    /// The block at a position, if it is not a hole.
    pub(crate) fn get(&self, place: Place) -> Option<HostBlock> {
        let run = &self.runs[place.run as usize];
        Some(run.blocks[run.place_of(place)]).filter(|&block| block != HOLE)
    }

    /// The namespace of a block.
    pub(crate) fn namespace(&self, place: Place) -> &NamespaceName {
        &self.space(self.runs[place.run as usize].space).name
    }

    /// All tokens up to a block's end.
    pub(crate) fn tokens(&self, place: Place) -> Vec<Token> {
        let mut run = &self.runs[place.run as usize];
        let mut end = self.space(run.space).grid.end_of(place.number());
        let mut tokens = vec![0; end];
        loop {
            tokens[run.start..end].copy_from_slice(&run.tokens[..end - run.start]);
            end = run.start;
            match run.parent {
                Some(parent) => run = &self.runs[parent as usize],
                None => return tokens,
            }
        }
    }

    /// Puts a block at a position that is a hole.
    pub(crate) fn put(&mut self, place: Place, block: HostBlock) {
        let run = self.run_mut(place.run);
        let at = run.place_of(place);
        debug_assert_eq!(run.blocks[at], HOLE, "the position is free");
        run.blocks[at] = block;
        run.held += 1;
        let space = run.space;
        self.space_mut(space).held += 1;
    }

    /// Removes a block, and leaves a hole.
    pub(crate) fn remove(&mut self, place: Place) {
        let run = self.run_mut(place.run);
        let at = run.place_of(place);
        debug_assert_ne!(run.blocks[at], HOLE, "the position has a block");
        run.blocks[at] = HOLE;
        run.held -= 1;
        let space = run.space;
        self.space_mut(space).held -= 1;
        self.shrink(place.run);
    }

    /// Removes the end of a path, as far as no block or child run needs it.
    pub(crate) fn cut(&mut self, path: &Path) {
        if let Some(leg) = path.legs.last() {
            self.shrink(leg.run);
        }
    }

    /// Removes a namespace, and appends its blocks to `blocks`.
    pub(crate) fn clear(&mut self, name: &NamespaceName, blocks: &mut Vec<HostBlock>) {
        let Some(number) = self.names.remove(name) else { return };
        let Some(space) = self.take_space(number) else { return };
        let mut left = vec![space.root];
        while let Some(run) = left.pop() {
            let gone = self.take(run);
            blocks.extend(gone.blocks.into_iter().filter(|&block| block != HOLE));
            left.extend(gone.children.into_values());
        }
    }

    /// The namespaces that have blocks, with the number of blocks.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&NamespaceName, usize)> {
        self.spaces.iter().flatten().map(|space| (&space.name, space.held))
    }

    /// The segment of a sequence that a run stores.
    pub(crate) fn piece(&self, run: RunId) -> IndexPiece<'_> {
        let run = &self.runs[run as usize];
        IndexPiece { namespace: &self.space(run.space).name, parent: run.parent, start: run.start, tokens: &run.tokens }
    }

    /// Bytes of tokens, blocks and runs, without the memory of maps and names.
    pub(crate) fn bytes(&self) -> usize {
        let of_run = |run: &Run| {
            size_of::<Run>()
                + run.tokens.capacity() * size_of::<Token>()
                + run.blocks.capacity() * size_of::<HostBlock>()
        };
        self.runs.iter().map(of_run).sum()
    }

    fn space(&self, number: u32) -> &Space {
        self.spaces[number as usize].as_ref().expect("a listed name has a tree")
    }

    fn space_mut(&mut self, number: u32) -> &mut Space {
        self.spaces[number as usize].as_mut().expect("a run belongs to a live tree")
    }

    fn run_mut(&mut self, run: RunId) -> &mut Run {
        &mut self.runs[run as usize]
    }

    fn descend(&self, space: &Space, tokens: &[Token]) -> Path {
        let (mut run, mut path) = (space.root, Path { legs: Vec::new(), depth: 0 });
        loop {
            let here = &self.runs[run as usize];
            path.depth += common_prefix(&here.tokens[path.depth - here.start..], &tokens[path.depth..]);
            path.legs.push(Leg { run, blocks: here.first_block..space.grid.blocks(path.depth) });
            let below = tokens.get(path.depth).and_then(|&token| here.children.get(&(path.depth, token)));
            match below {
                Some(&child) => run = child,
                None => return path,
            }
        }
    }

    /// Creates a namespace's tree, without blocks.
    fn plant(&mut self, name: &NamespaceName) -> u32 {
        let number = self.unused_spaces.pop().unwrap_or_else(|| {
            self.spaces.push(None);
            (self.spaces.len() - 1) as u32
        });
        let root = self.add(Run { space: number, ..Run::default() });
        let grid = Grid::new(self.block_size, name.keys());
        self.spaces[number as usize] = Some(Space { name: name.clone(), grid, root, held: 0 });
        self.names.insert(name.clone(), number);
        number
    }

    /// Removes a namespace's tree from the list; its number may be reused.
    fn take_space(&mut self, number: u32) -> Option<Space> {
        let space = self.spaces[number as usize].take()?;
        self.unused_spaces.push(number);
        Some(space)
    }

    fn add(&mut self, run: Run) -> RunId {
        match self.unused_runs.pop() {
            Some(id) => {
                self.runs[id as usize] = run;
                id
            }
            None => {
                self.runs.push(run);
                (self.runs.len() - 1) as RunId
            }
        }
    }

    /// Removes a run from the list; its number may be reused.
    fn take(&mut self, id: RunId) -> Run {
        self.unused_runs.push(id);
        std::mem::take(self.run_mut(id))
    }

    /// Removes a run that is no longer needed, and each ancestor whose last child it was; otherwise
    /// cuts its end.
    fn shrink(&mut self, mut id: RunId) {
        loop {
            let run = &self.runs[id as usize];
            if run.held > 0 || !run.children.is_empty() {
                return self.cut_end(id);
            }
            let gone = self.take(id);
            let Some(parent) = gone.parent else {
                if let Some(space) = self.take_space(gone.space) {
                    self.names.remove(&space.name);
                }
                return;
            };
            self.run_mut(parent).children.remove(&(gone.start, gone.first_token));
            id = parent;
        }
    }

    /// Cuts a run after the last token that a block or a child run needs.
    ///
    /// Checks only blocks beyond the deepest child run. Each hole that it passes is removed, so no
    /// hole is passed twice.
    fn cut_end(&mut self, id: RunId) {
        let grid = self.space(self.runs[id as usize].space).grid;
        let run = self.run_mut(id);
        let deepest = run.children.last_key_value().map_or(run.start, |(&(depth, _), _)| depth);
        let least = grid.blocks(deepest).saturating_sub(run.first_block);
        while run.blocks.len() > least && run.blocks.last() == Some(&HOLE) {
            run.blocks.pop();
        }
        let held = run.blocks.len().checked_sub(1).map_or(0, |last| grid.end_of(run.first_block + last));
        let end = held.max(deepest).min(run.end());
        run.tokens.truncate(end - run.start);
        if run.tokens.capacity() > 4 * run.tokens.len() {
            run.tokens.shrink_to_fit();
            run.blocks.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests;
