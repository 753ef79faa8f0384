//! A radix tree of prompts by their tokens: who shares what with whom, without a block.
//!
//! Edges are ranges of the prompts themselves, so nothing is copied. A node splits where prompts part and is joined
//! again when they are gone; the lower part of a split keeps its name, so a prompt's place never moves. One thread at a
//! time.
//!
//! Putting in and taking out cost a comparison of the tokens and, for each node on the way, the logarithm of what hangs
//! on it.
//!
//! # Invariants
//!
//! - **P1** A node's source is a prompt that ends at the node or below: prompts that are gone are not kept.
//! - **P2** A node's weight is the number of prompts that end there or below, and the key under which its parent has it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::request::Waiting;
use crate::cache::Namespace;
use crate::key::{Token, common_prefix};
use crate::sync::Arc;

type NodeId = usize;
type ByWeight = BTreeSet<(Reverse<usize>, NodeId)>;

/// An edge with what ends on it and what hangs below.
#[derive(Debug)]
struct Node {
    /// A prompt that runs through the edge.
    source: Arc<Waiting>,
    /// Of the prompt's tokens: those of the edge.
    edge: Range<usize>,
    parent: Option<NodeId>,
    children: BTreeMap<Token, NodeId>,
    /// The children, the heaviest first; of equal ones the lower name counts for heavier.
    by_weight: ByWeight,
    /// Prompts that end where the edge ends, by name.
    ends: BTreeMap<u64, Arc<Waiting>>,
    /// Prompts that end here or below.
    weight: usize,
}

/// Prompts of all namespaces, each under a name.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    roots: HashMap<Namespace, NodeId>,
    roots_by_weight: ByWeight,
    places: HashMap<u64, NodeId>,
}

/// How far a sequence agrees with the prompts of its namespace.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// Nodes on the way from the root, each with the tokens that agree up to its end; the last one may be left halfway.
    path: Vec<(NodeId, usize)>,
    /// Whether the sequence agrees with the last edge to its end.
    whole: bool,
}

impl Prompts {
    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id].as_ref().expect("named nodes are there")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id].as_mut().expect("named nodes are there")
    }

    fn make(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            self.nodes[id] = Some(node);
            return id;
        }
        self.nodes.push(Some(node));
        self.nodes.len() - 1
    }

    /// Adds the first `len` tokens of `prompt`, under a name that is not in use.
    pub(super) fn insert(&mut self, name: u64, prompt: &Arc<Waiting>, len: usize) {
        let agreement = self.walk(&prompt.ticket.namespace, &prompt.tokens[..len]);
        let root = self.root_for(prompt);
        let (mut at, agreed) = agreement.path.last().copied().unwrap_or((root, 0));
        if !agreement.whole {
            at = self.split(at, agreed);
        }
        if agreed < len {
            at = self.hang(at, prompt, agreed..len);
        }
        self.node_mut(at).ends.insert(name, Arc::clone(prompt));
        self.places.insert(name, at);
        self.weigh(at, 1);
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

    /// Cuts the edge of `lower` at depth `at`; the node above the cut.
    fn split(&mut self, lower: NodeId, at: usize) -> NodeId {
        let node = self.node_mut(lower);
        let (source, start, weight) = (Arc::clone(&node.source), node.edge.start, node.weight);
        let (first, rest) = (source.tokens[start], source.tokens[at]);
        let parent = node.parent.expect("only the root has none, and no tokens to cut");
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

    /// Hangs a node of the same weight in another one's place.
    fn replace_child(&mut self, parent: NodeId, first: Token, weight: usize, old: NodeId, new: NodeId) {
        let above = self.node_mut(parent);
        above.children.insert(first, new);
        above.by_weight.remove(&(Reverse(weight), old));
        above.by_weight.insert((Reverse(weight), new));
    }

    /// The set in which a node stands by its weight.
    fn siblings(&mut self, parent: Option<NodeId>) -> &mut ByWeight {
        match parent {
            Some(parent) => &mut self.node_mut(parent).by_weight,
            None => &mut self.roots_by_weight,
        }
    }

    fn weigh(&mut self, from: NodeId, by: isize) {
        let mut at = Some(from);
        while let Some(id) = at {
            let node = self.node_mut(id);
            let before = node.weight;
            node.weight = before.checked_add_signed(by).expect("what is taken out was put in");
            let after = node.weight;
            at = node.parent;
            let siblings = self.siblings(at);
            siblings.remove(&(Reverse(before), id));
            siblings.insert((Reverse(after), id));
        }
    }

    /// Takes out the prompt of that name, if it is there.
    pub(super) fn remove(&mut self, name: u64) {
        let Some(at) = self.places.remove(&name) else { return };
        let gone = self.node_mut(at).ends.remove(&name).expect("it ends at its place");
        self.weigh(at, -1);
        if let Some(lowest) = self.tidy(at) {
            self.part_from(&gone, lowest);
        }
    }

    /// Drops nodes that hold nothing, from `at` upwards, and joins one that only leads on with what it leads to. The
    /// lowest node of the way that is left.
    fn tidy(&mut self, mut at: NodeId) -> Option<NodeId> {
        while self.node(at).weight == 0 {
            let node = self.nodes[at].take().expect("named nodes are there");
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

    /// Gives the nodes from `lowest` upwards another source than a prompt that is gone (P1).
    fn part_from(&mut self, gone: &Arc<Waiting>, lowest: NodeId) {
        let mut at = Some(lowest);
        while let Some(id) = at {
            let node = self.node(id);
            at = node.parent;
            if Arc::ptr_eq(&node.source, gone) {
                let below = || node.children.values().next().map(|&child| &self.node(child).source);
                let source = Arc::clone(node.ends.values().next().or_else(below).expect("nodes lead to prompts"));
                self.node_mut(id).source = source;
            }
        }
    }

    /// Walks as far as `tokens` agree with any prompt of the namespace.
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

    /// Each prompt that shares something with the walked sequence: its name, and how many tokens.
    pub(super) fn sharers(&self, agreement: &Agreement, mut each: impl FnMut(u64, usize)) {
        let Some(&(last, agreed)) = agreement.path.last().filter(|&&(_, agreed)| agreed > 0) else { return };
        for &(id, agreed) in &agreement.path[..agreement.path.len() - 1] {
            self.node(id).ends.keys().for_each(|&name| each(name, agreed));
        }
        let mut below = vec![last];
        while let Some(id) = below.pop() {
            let node = self.node(id);
            node.ends.keys().for_each(|&name| each(name, agreed));
            below.extend(node.children.values());
        }
    }

    /// The name that comes next, depth first from where `cursor` leads, the heaviest branch first: whoever shares most
    /// comes next, and a branch is done before another begins.
    pub(super) fn next(&self, cursor: Option<&Waiting>) -> Option<u64> {
        let path = cursor.map(|cursor| self.walk(&cursor.ticket.namespace, &cursor.tokens)).unwrap_or_default().path;
        let mut done = None;
        for &(id, _) in path.iter().rev() {
            let node = self.node(id);
            // Its own come before what hangs below it, but for the branch that is done.
            let first = node.ends.keys().next().copied();
            if let Some(name) = first.or_else(|| self.first_below(&node.by_weight, done)) {
                return Some(name);
            }
            done = Some(id);
        }
        self.first_below(&self.roots_by_weight, done)
    }

    /// The first name of the heaviest of some branches, but for one.
    fn first_below(&self, branches: &ByWeight, done: Option<NodeId>) -> Option<u64> {
        let &(_, mut at) = branches.iter().find(|&&(_, id)| Some(id) != done)?;
        loop {
            let node = self.node(at);
            if let Some(&name) = node.ends.keys().next() {
                return Some(name);
            }
            (_, at) = *node.by_weight.first().expect("nodes lead to prompts");
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
