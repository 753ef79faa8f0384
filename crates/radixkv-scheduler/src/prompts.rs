//! A radix tree of prompts, which finds prompts that share a prefix. It holds no blocks.
//!
//! Edges are ranges of the prompts themselves, so no token is copied. A node is split where prompts
//! diverge, and merged with its child when only one of them is left. The lower part of a split
//! keeps its node id, so a prompt's end node never changes. Only one thread at a time uses a tree.
//!
//! Insert compares the prompt's tokens. Insert and remove cost, at each node on the path, the
//! logarithm of the number of its children and of the prompts that end there.
//!
//! # Invariants
//!
//! - **P1** A node's source is a prompt that ends at the node or deeper, so removed prompts are not
//!   kept alive.
//! - **P2** A node's weight is the number of prompts that end at it or deeper; its parent orders it
//!   by this weight.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use radixkv::{Namespace, Token, key::common_prefix};

use super::request::{SequenceId, Waiting};
use crate::sync::Arc;

type NodeId = usize;
type ByWeight = BTreeSet<(Reverse<usize>, NodeId)>;

/// A node: the edge to it, the prompts that end at it, and its children.
#[derive(Debug)]
struct Node {
    /// A prompt that contains the edge.
    source: Arc<Waiting>,
    /// The range of the source's tokens that is the edge.
    edge: Range<usize>,
    parent: Option<NodeId>,
    children: BTreeMap<Token, NodeId>,
    /// The children, the heaviest first; among equals, the lower node id first.
    by_weight: ByWeight,
    /// Prompts that end at this node.
    ends: BTreeMap<SequenceId, Arc<Waiting>>,
    /// Number of prompts that end here or deeper.
    weight: usize,
}

/// Prompts of all namespaces, by the ids of their requests.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    roots: HashMap<Namespace, NodeId>,
    roots_by_weight: ByWeight,
    /// The node where each prompt ends.
    end_nodes: HashMap<SequenceId, NodeId>,
}

/// The longest prefix of a sequence that a prompt of its namespace shares.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// The nodes on the path from the root, each with the number of tokens that agree up to its
    /// end; the last edge may agree only partly.
    path: Vec<(NodeId, usize)>,
    /// Whether the sequence agrees with the whole last edge.
    whole: bool,
}

impl Prompts {
    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id].as_ref().expect("a node id in use has a node")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id].as_mut().expect("a node id in use has a node")
    }

    fn make(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            self.nodes[id] = Some(node);
            return id;
        }
        self.nodes.push(Some(node));
        self.nodes.len() - 1
    }

    /// Adds the first `len` tokens of `prompt` under a new request id.
    pub(super) fn insert(&mut self, id: SequenceId, prompt: &Arc<Waiting>, len: usize) {
        let agreement = self.walk(&prompt.ticket.namespace, &prompt.tokens[..len]);
        let root = self.root_for(prompt);
        let (mut at, agreed) = agreement.path.last().copied().unwrap_or((root, 0));
        if !agreement.whole {
            at = self.split(at, agreed);
        }
        if agreed < len {
            at = self.hang(at, prompt, agreed..len);
        }
        self.node_mut(at).ends.insert(id, Arc::clone(prompt));
        self.end_nodes.insert(id, at);
        self.add_weight(at, 1);
    }

    fn root_for(&mut self, prompt: &Arc<Waiting>) -> NodeId {
        if let Some(&root) = self.roots.get(&prompt.ticket.namespace) {
            return root;
        }
        let root = self.make(Node::new(prompt, 0..0, None));
        self.roots.insert(prompt.ticket.namespace.clone(), root);
        self.roots_by_weight.insert((Reverse(0), root));
        root
    }

    fn hang(&mut self, parent: NodeId, prompt: &Arc<Waiting>, edge: Range<usize>) -> NodeId {
        let first = prompt.tokens[edge.start];
        let child = self.make(Node::new(prompt, edge, Some(parent)));
        let above = self.node_mut(parent);
        above.children.insert(first, child);
        above.by_weight.insert((Reverse(0), child));
        child
    }

    /// Splits the edge of `lower` at depth `at`; returns the node above the split.
    fn split(&mut self, lower: NodeId, at: usize) -> NodeId {
        let node = self.node_mut(lower);
        let (source, start, weight) = (Arc::clone(&node.source), node.edge.start, node.weight);
        let (first, rest) = (source.tokens[start], source.tokens[at]);
        let parent = node.parent.expect("only a root has no parent, and its edge is empty");
        node.edge.start = at;
        let mut upper = Node::new(&source, start..at, Some(parent));
        upper.weight = weight;
        upper.children.insert(rest, lower);
        upper.by_weight.insert((Reverse(weight), lower));
        let upper = self.make(upper);
        self.node_mut(lower).parent = Some(upper);
        self.replace_child(parent, first, weight, lower, upper);
        upper
    }

    /// Replaces a child by a node of the same weight.
    fn replace_child(&mut self, parent: NodeId, first: Token, weight: usize, old: NodeId, new: NodeId) {
        let above = self.node_mut(parent);
        above.children.insert(first, new);
        above.by_weight.remove(&(Reverse(weight), old));
        above.by_weight.insert((Reverse(weight), new));
    }

    /// The children of a parent, or the roots, ordered by weight.
    fn siblings(&mut self, parent: Option<NodeId>) -> &mut ByWeight {
        match parent {
            Some(parent) => &mut self.node_mut(parent).by_weight,
            None => &mut self.roots_by_weight,
        }
    }

    /// Adds to the weight of a node and its ancestors (P2).
    fn add_weight(&mut self, from: NodeId, by: isize) {
        let mut at = Some(from);
        while let Some(id) = at {
            let node = self.node_mut(id);
            let before = node.weight;
            node.weight = before.checked_add_signed(by).expect("a removed prompt was inserted");
            let after = node.weight;
            at = node.parent;
            let siblings = self.siblings(at);
            siblings.remove(&(Reverse(before), id));
            siblings.insert((Reverse(after), id));
        }
    }

    /// Removes a request's prompt, if the tree has it.
    pub(super) fn remove(&mut self, id: SequenceId) {
        let Some(at) = self.end_nodes.remove(&id) else { return };
        let gone = self.node_mut(at).ends.remove(&id).expect("a prompt ends at its end node");
        self.add_weight(at, -1);
        if let Some(lowest) = self.tidy(at) {
            self.replace_source(&gone, lowest);
        }
    }

    /// Drops the nodes of weight 0 from `at` towards the root, and merges the node above them with
    /// its child if it has only one and no prompt ends at it. Returns the deepest remaining node of
    /// the path.
    fn tidy(&mut self, mut at: NodeId) -> Option<NodeId> {
        while self.node(at).weight == 0 {
            let node = self.nodes[at].take().expect("a node id in use has a node");
            self.free.push(at);
            self.siblings(node.parent).remove(&(Reverse(0), at));
            let Some(parent) = node.parent else {
                self.roots.remove(&node.source.ticket.namespace);
                return None;
            };
            self.node_mut(parent).children.remove(&node.source.tokens[node.edge.start]);
            at = parent;
        }
        let node = self.node(at);
        let Some(parent) = node.parent.filter(|_| node.ends.is_empty() && node.children.len() == 1) else {
            return Some(at);
        };
        let (&child, start, weight) = (node.children.values().next().expect("one"), node.edge.start, node.weight);
        self.nodes[at] = None;
        self.free.push(at);
        let joined = self.node_mut(child);
        joined.edge.start = start;
        joined.parent = Some(parent);
        let first = joined.source.tokens[start];
        self.replace_child(parent, first, weight, at, child);
        Some(parent)
    }

    /// Replaces a removed prompt as the source of the nodes from `lowest` towards the root (P1).
    fn replace_source(&mut self, gone: &Arc<Waiting>, lowest: NodeId) {
        let mut at = Some(lowest);
        while let Some(id) = at {
            let node = self.node(id);
            at = node.parent;
            if Arc::ptr_eq(&node.source, gone) {
                let below = || node.children.values().next().map(|&child| &self.node(child).source);
                let source =
                    Arc::clone(node.ends.values().next().or_else(below).expect("a node has a prompt at it or below"));
                self.node_mut(id).source = source;
            }
        }
    }

    /// Walks down as far as `tokens` agree with any prompt of the namespace.
    pub(super) fn walk(&self, namespace: &Namespace, tokens: &[Token]) -> Agreement {
        let mut agreement = Agreement { path: Vec::new(), whole: true };
        let mut at = self.roots.get(namespace).copied();
        while let Some(id) = at {
            let node = self.node(id);
            let (start, rest) = (node.edge.start, &node.source.tokens[node.edge.clone()]);
            let agreed = common_prefix(rest, &tokens[start..]);
            agreement.path.push((id, start + agreed));
            agreement.whole = agreed == rest.len();
            let next = tokens.get(start + agreed).filter(|_| agreement.whole);
            at = next.and_then(|token| node.children.get(token).copied());
        }
        agreement
    }

    /// Calls `each` with the request id of every prompt that shares tokens with the walked sequence
    /// and the number of shared tokens. Prompts that leave the path before its last edge are
    /// skipped: others share more.
    pub(super) fn sharers(&self, agreement: &Agreement, mut each: impl FnMut(SequenceId, usize)) {
        let Some(&(last, agreed)) = agreement.path.last().filter(|&&(_, agreed)| agreed > 0) else { return };
        for &(node, agreed) in &agreement.path[..agreement.path.len() - 1] {
            self.node(node).ends.keys().for_each(|&id| each(id, agreed));
        }
        let mut below = vec![last];
        while let Some(node) = below.pop() {
            let node = self.node(node);
            node.ends.keys().for_each(|&id| each(id, agreed));
            below.extend(node.children.values());
        }
    }

    /// Returns the next request of a depth-first walk that continues from `cursor`, the heaviest
    /// branch first. A request that shares most with the cursor is next, and all requests of a
    /// branch come before those of another.
    pub(super) fn next(&self, cursor: Option<&Waiting>) -> Option<SequenceId> {
        let path = cursor.map(|cursor| self.walk(&cursor.ticket.namespace, &cursor.tokens)).unwrap_or_default().path;
        let mut done = None;
        for &(id, _) in path.iter().rev() {
            let node = self.node(id);
            // Prompts that end at the node come before deeper ones; the finished branch is skipped.
            let first = node.ends.keys().next().copied();
            if let Some(next) = first.or_else(|| self.first_below(&node.by_weight, done)) {
                return Some(next);
            }
            done = Some(id);
        }
        self.first_below(&self.roots_by_weight, done)
    }

    /// The first request of the heaviest branch that is not `done`.
    fn first_below(&self, branches: &ByWeight, done: Option<NodeId>) -> Option<SequenceId> {
        let &(_, mut at) = branches.iter().find(|&&(_, id)| Some(id) != done)?;
        loop {
            let node = self.node(at);
            if let Some(&id) = node.ends.keys().next() {
                return Some(id);
            }
            (_, at) = *node.by_weight.first().expect("a node has a prompt at it or below");
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}

impl Node {
    fn new(source: &Arc<Waiting>, edge: Range<usize>, parent: Option<NodeId>) -> Self {
        let source = Arc::clone(source);
        Self {
            source,
            edge,
            parent,
            children: BTreeMap::new(),
            by_weight: ByWeight::new(),
            ends: BTreeMap::new(),
            weight: 0,
        }
    }
}

#[cfg(test)]
mod tests;
