//! The simple alternative: a single-threaded radix tree, to be used behind a lock.
//!
//! It matches whole blocks by exact tokens, keeps nodes in a vector, and evicts leaves from a set
//! in the order of use, block by block from their ends. Nodes are split where prompts diverge; the
//! lower part keeps the node's index, because leases refer to ends. It does not merge split nodes,
//! has no namespaces and no policy except lru, and a lease that ends inside a node protects the
//! whole node.

use std::{collections::BTreeSet, hash::Hasher, mem};

use radixkv::{BlockId, Token};
use rustc_hash::{FxHashMap, FxHasher};

/// The index of the root node.
const ROOT: u32 = 0;
/// Number of tokens that are compared at once in the search for the first difference.
const STRIDE: usize = 64;

pub(crate) struct Strawman {
    block_size: usize,
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    free: Vec<BlockId>,
    /// Leaves without a lease, by the time of their last use.
    idle: BTreeSet<(u64, u32)>,
    now: u64,
}

struct Node {
    parent: u32,
    /// Number of tokens before those of the node.
    begin: usize,
    tokens: Vec<Token>,
    blocks: Vec<BlockId>,
    /// Children by the hash of their first block.
    children: FxHashMap<u64, u32>,
    /// The hash of the node's own first block.
    key: u64,
    leases: u32,
    used: u64,
}

/// A lease: blocks up to `len` tokens are not evicted.
#[derive(Clone, Copy)]
pub(crate) struct Pin {
    node: u32,
    pub(crate) len: usize,
}

impl Node {
    fn is_idle_leaf(&self) -> bool {
        self.leases == 0 && self.children.is_empty()
    }
}

impl Strawman {
    pub(crate) fn new(block_size: usize, blocks: usize) -> Self {
        let root = Node {
            parent: ROOT,
            begin: 0,
            tokens: vec![],
            blocks: vec![],
            children: FxHashMap::default(),
            key: 0,
            leases: 1,
            used: 0,
        };
        let free = (0..blocks as BlockId).rev().collect();
        Self { block_size, nodes: vec![root], vacant: vec![], free, idle: BTreeSet::new(), now: 0 }
    }

    /// Finds the end of the longest match; appends its blocks to `blocks`.
    pub(crate) fn find(&self, tokens: &[Token], mut blocks: Option<&mut Vec<BlockId>>) -> Pin {
        let block = self.block_size;
        let (mut node, mut at) = (ROOT, 0);
        while tokens.len() >= at + block {
            let Some(&child) = self.nodes[node as usize].children.get(&hash(&tokens[at..at + block])) else { break };
            let found = &self.nodes[child as usize];
            let common = common_prefix(&found.tokens, &tokens[at..]) / block * block;
            if common == 0 {
                break;
            }
            if let Some(blocks) = blocks.as_deref_mut() {
                blocks.extend_from_slice(&found.blocks[..common / block]);
            }
            node = child;
            at += common;
            if common < found.tokens.len() {
                break;
            }
        }
        Pin { node, len: at }
    }

    /// Leases the longest match and writes its blocks to `blocks`.
    pub(crate) fn lease(&mut self, tokens: &[Token], blocks: &mut Vec<BlockId>) -> Pin {
        blocks.clear();
        let pin = self.find(tokens, Some(blocks));
        self.now += 1;
        self.hold(pin.node);
        pin
    }

    fn hold(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        if node.is_idle_leaf() {
            self.idle.remove(&(node.used, index));
        }
        node.leases += 1;
        node.used = self.now;
    }

    pub(crate) fn release(&mut self, pin: Pin) {
        let node = &mut self.nodes[pin.node as usize];
        node.leases -= 1;
        if node.is_idle_leaf() {
            self.idle.insert((node.used, pin.node));
        }
    }

    /// Reserves `blocks` blocks, evicting if too few are free; returns all of them or none.
    pub(crate) fn reserve(&mut self, blocks: usize) -> Option<Vec<BlockId>> {
        if self.free.len() < blocks {
            self.evict(blocks - self.free.len());
        }
        let rest = self.free.len().checked_sub(blocks)?;
        Some(self.free.split_off(rest))
    }

    /// Returns reserved blocks that were not inserted.
    #[allow(dead_code, reason = "for the peers' rows")]
    pub(crate) fn give_back(&mut self, mut blocks: Vec<BlockId>) {
        self.free.append(&mut blocks);
    }

    /// Inserts the blocks after `pin` and leases all of them; `pin` remains valid. Frees blocks
    /// that another insert has added in the meantime.
    pub(crate) fn insert(&mut self, pin: Pin, tokens: &[Token], mut blocks: Vec<BlockId>) -> Pin {
        let block = self.block_size;
        let here = self.find(tokens, None);
        let total = tokens.len() / block * block;
        let duplicates = (here.len - pin.len) / block;
        if duplicates > 0 {
            let rest = blocks.split_off(duplicates);
            self.free.append(&mut blocks);
            blocks = rest;
        }
        self.now += 1;
        if here.len == total {
            self.hold(here.node);
            return here;
        }
        let parent = self.split(here);
        let node = &self.nodes[parent as usize];
        if node.is_idle_leaf() {
            self.idle.remove(&(node.used, parent));
        }
        let key = hash(&tokens[here.len..here.len + block]);
        let new = self.place(Node {
            parent,
            begin: here.len,
            tokens: tokens[here.len..total].to_vec(),
            blocks,
            children: FxHashMap::default(),
            key,
            leases: 1,
            used: self.now,
        });
        self.nodes[parent as usize].children.insert(key, new);
        Pin { node: new, len: total }
    }

    /// Splits the node at the end of `pin` unless it ends there; returns the node that ends there.
    fn split(&mut self, pin: Pin) -> u32 {
        let block = self.block_size;
        let node = &mut self.nodes[pin.node as usize];
        let cut = pin.len - node.begin;
        if cut == node.tokens.len() {
            return pin.node;
        }
        let lower = node.tokens.split_off(cut);
        let tokens = mem::replace(&mut node.tokens, lower);
        let lower = node.blocks.split_off(cut / block);
        let blocks = mem::replace(&mut node.blocks, lower);
        let (key, parent, begin, used) = (node.key, node.parent, node.begin, node.used);
        node.begin += cut;
        node.key = hash(&node.tokens[..block]);
        let children = FxHashMap::from_iter([(node.key, pin.node)]);
        let upper = self.place(Node { parent, begin, tokens, blocks, children, key, leases: 0, used });
        self.nodes[pin.node as usize].parent = upper;
        self.nodes[parent as usize].children.insert(key, upper);
        upper
    }

    fn place(&mut self, node: Node) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self.nodes[index as usize] = node;
            return index;
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    /// Frees up to `blocks` blocks, the least recently used first; returns the number of freed
    /// blocks.
    pub(crate) fn evict(&mut self, blocks: usize) -> usize {
        let mut freed = 0;
        while freed < blocks {
            let Some(&(used, index)) = self.idle.first() else { break };
            let node = &mut self.nodes[index as usize];
            let taken = (blocks - freed).min(node.blocks.len());
            let kept = node.blocks.len() - taken;
            self.free.extend_from_slice(&node.blocks[kept..]);
            freed += taken;
            if kept > 0 {
                node.blocks.truncate(kept);
                node.tokens.truncate(kept * self.block_size);
                break;
            }
            self.idle.remove(&(used, index));
            self.unlink(index);
        }
        freed
    }

    fn unlink(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        node.tokens = vec![];
        node.blocks = vec![];
        let (parent, key) = (node.parent, node.key);
        self.vacant.push(index);
        let above = &mut self.nodes[parent as usize];
        above.children.remove(&key);
        if above.is_idle_leaf() {
            self.idle.insert((above.used, parent));
        }
    }
}

/// Length of the common prefix.
fn common_prefix(a: &[Token], b: &[Token]) -> usize {
    let len = a.len().min(b.len());
    if a[..len] == b[..len] {
        return len;
    }
    let mut at = 0;
    while at + STRIDE <= len && a[at..at + STRIDE] == b[at..at + STRIDE] {
        at += STRIDE;
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

fn hash(block: &[Token]) -> u64 {
    let mut hasher = FxHasher::default();
    for pair in block.chunks_exact(2) {
        hasher.write_u64(u64::from(pair[0]) | u64::from(pair[1]) << 32);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(tree: &mut Strawman, tokens: &[Token]) -> Vec<BlockId> {
        let mut blocks = vec![];
        let pin = tree.lease(tokens, &mut blocks);
        let fresh = tree.reserve(tokens.len() / tree.block_size - blocks.len()).expect("room");
        blocks.extend_from_slice(&fresh);
        let inserted = tree.insert(pin, tokens, fresh);
        tree.release(pin);
        tree.release(inserted);
        blocks
    }

    #[test]
    fn what_was_inserted_matches_past_splits() {
        let mut tree = Strawman::new(2, 16);
        let long = insert(&mut tree, &[1, 2, 3, 4, 5, 6]);
        let parted = insert(&mut tree, &[1, 2, 3, 4, 7, 8]);
        assert_eq!(long[..2], parted[..2]);
        let mut blocks = vec![];
        let pin = tree.lease(&[1, 2, 3, 4, 5, 6, 9], &mut blocks);
        assert_eq!((pin.len, &blocks), (6, &long));
        assert_eq!(tree.find(&[1, 2, 3, 9], None).len, 2);
        assert_eq!(tree.find(&[9], None).len, 0);
    }

    #[test]
    fn leases_stay_and_the_least_recently_used_go_first() {
        let mut tree = Strawman::new(2, 3);
        for token in [1, 2, 3] {
            insert(&mut tree, &[token, token]);
        }
        let held = tree.lease(&[1, 1], &mut vec![]);
        assert_eq!(tree.evict(1), 1);
        assert_eq!([1, 2, 3].map(|token| tree.find(&[token, token], None).len), [2, 0, 2]);
        assert!(tree.reserve(3).is_none());
        tree.release(held);
        assert_eq!(tree.reserve(3).map(|blocks| blocks.len()), Some(3));
    }
}
