//! A radix tree of prompts by their tokens: who shares what with whom, without a block.
//!
//! Edges are ranges of the prompts themselves, so nothing is copied. A node splits where prompts part and is joined
//! again when they are gone; the lower part of a split keeps its name, so a prompt's place never moves. One thread at a
//! time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::request::Waiting;
use crate::cache::Namespace;
use crate::key::{Token, common_prefix};
use crate::sync::Arc;

type NodeId = usize;

/// An edge with what ends on it and what hangs below.
#[derive(Debug)]
struct Node {
    /// A prompt that runs through the edge, or ran.
    source: Arc<Waiting>,
    /// Of the prompt's tokens: those of the edge.
    edge: Range<usize>,
    parent: Option<NodeId>,
    children: BTreeMap<Token, NodeId>,
    /// Prompts that end where the edge ends, by name.
    ends: Vec<u64>,
    /// Prompts that end here or below.
    weight: usize,
}

/// Prompts of all namespaces, each under a name.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    roots: HashMap<Namespace, NodeId>,
    places: HashMap<u64, NodeId>,
}

/// How far a sequence agrees with the prompts of its namespace.
#[derive(Debug, Default)]
pub(super) struct Shared {
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
        let shared = self.walk(&prompt.ticket.namespace, &prompt.tokens[..len]);
        let root = self.root_for(prompt);
        let (mut at, agreed) = shared.path.last().copied().unwrap_or((root, 0));
        if !shared.whole {
            at = self.split(at, agreed);
        }
        if agreed < len {
            at = self.hang(at, prompt, agreed..len);
        }
        let ends = &mut self.node_mut(at).ends;
        let place = ends.partition_point(|&other| other < name);
        ends.insert(place, name);
        self.places.insert(name, at);
        self.weigh(at, 1);
    }

    fn root_for(&mut self, prompt: &Arc<Waiting>) -> NodeId {
        if let Some(&root) = self.roots.get(&prompt.ticket.namespace) {
            return root;
        }
        let root = self.make(Node::new(prompt, 0..0, None));
        self.roots.insert(prompt.ticket.namespace.clone(), root);
        root
    }

    fn hang(&mut self, parent: NodeId, prompt: &Arc<Waiting>, edge: Range<usize>) -> NodeId {
        let first = prompt.tokens[edge.start];
        let child = self.make(Node::new(prompt, edge, Some(parent)));
        self.node_mut(parent).children.insert(first, child);
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
        let upper = self.make(upper);
        self.node_mut(lower).parent = Some(upper);
        self.node_mut(parent).children.insert(first, upper);
        upper
    }

    fn weigh(&mut self, from: NodeId, by: isize) {
        let mut at = Some(from);
        while let Some(id) = at {
            let node = self.node_mut(id);
            node.weight = node.weight.checked_add_signed(by).expect("what is taken out was put in");
            at = node.parent;
        }
    }

    /// Takes out the prompt of that name, if it is there.
    pub(super) fn remove(&mut self, name: u64) {
        let Some(at) = self.places.remove(&name) else { return };
        self.node_mut(at).ends.retain(|&other| other != name);
        self.weigh(at, -1);
        self.tidy(at);
    }

    /// Drops nodes that hold nothing, from `at` upwards, and joins one that only leads on with what it leads to.
    fn tidy(&mut self, mut at: NodeId) {
        while self.node(at).weight == 0 {
            let node = self.nodes[at].take().expect("named nodes are there");
            self.free.push(at);
            let Some(parent) = node.parent else {
                self.roots.remove(&node.source.ticket.namespace);
                return;
            };
            self.node_mut(parent).children.remove(&node.source.tokens[node.edge.start]);
            at = parent;
        }
        let node = self.node(at);
        if let (Some(parent), true, [child]) =
            (node.parent, node.ends.is_empty(), &*node.children.values().copied().collect::<Vec<_>>())
        {
            let (child, start) = (*child, node.edge.start);
            self.nodes[at] = None;
            self.free.push(at);
            let joined = self.node_mut(child);
            joined.edge.start = start;
            joined.parent = Some(parent);
            let first = joined.source.tokens[start];
            self.node_mut(parent).children.insert(first, child);
        }
    }

    /// Walks as far as `tokens` agree with any prompt of the namespace.
    pub(super) fn walk(&self, namespace: &Namespace, tokens: &[Token]) -> Shared {
        let mut shared = Shared { path: Vec::new(), whole: true };
        let mut at = self.roots.get(namespace).copied();
        while let Some(id) = at {
            let node = self.node(id);
            let (start, rest) = (node.edge.start, &node.source.tokens[node.edge.clone()]);
            let agreed = common_prefix(rest, &tokens[start..]);
            shared.path.push((id, start + agreed));
            shared.whole = agreed == rest.len();
            let next = tokens.get(start + agreed).filter(|_| shared.whole);
            at = next.and_then(|token| node.children.get(token).copied());
        }
        shared
    }

    /// Each prompt that shares something with the walked sequence: its name, and how many tokens.
    pub(super) fn sharers(&self, shared: &Shared, mut each: impl FnMut(u64, usize)) {
        let Some(&(last, agreed)) = shared.path.last().filter(|&&(_, agreed)| agreed > 0) else { return };
        for &(id, agreed) in &shared.path[..shared.path.len() - 1] {
            self.node(id).ends.iter().for_each(|&name| each(name, agreed));
        }
        let mut below = vec![last];
        while let Some(id) = below.pop() {
            let node = self.node(id);
            node.ends.iter().for_each(|&name| each(name, agreed));
            below.extend(node.children.values());
        }
    }

    /// Up to `most` names, depth first from where `cursor` leads, the heaviest branch first: whoever shares most comes
    /// next, and a branch is done before another begins.
    pub(super) fn depth_first(&self, cursor: Option<&Waiting>, most: usize) -> Vec<u64> {
        let path = cursor.map(|cursor| self.walk(&cursor.ticket.namespace, &cursor.tokens)).unwrap_or_default().path;
        let mut names = Vec::new();
        let mut done = None;
        for &(id, _) in path.iter().rev() {
            self.visit(vec![id], done, most, &mut names);
            done = Some(id);
        }
        let mut roots: Vec<NodeId> = self.roots.values().copied().collect();
        self.heaviest_last(&mut roots, most + 1);
        self.visit(roots, done, most, &mut names);
        names
    }

    fn visit(&self, mut stack: Vec<NodeId>, done: Option<NodeId>, most: usize, names: &mut Vec<u64>) {
        while let Some(id) = stack.pop().filter(|_| names.len() < most) {
            if Some(id) == done {
                continue;
            }
            let node = self.node(id);
            let room = most - names.len();
            names.extend(node.ends.iter().take(room));
            let mut children: Vec<NodeId> = node.children.values().copied().collect();
            self.heaviest_last(&mut children, room + 1);
            stack.append(&mut children);
        }
    }

    /// Keeps the `most` heaviest nodes, the heaviest last; of equal ones the lower name counts for heavier.
    fn heaviest_last(&self, nodes: &mut Vec<NodeId>, most: usize) {
        let key = |&id: &NodeId| (Reverse(self.node(id).weight), id);
        if most < nodes.len() {
            nodes.select_nth_unstable_by_key(most, key);
            nodes.truncate(most);
        }
        nodes.sort_unstable_by_key(key);
        nodes.reverse();
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}

impl Node {
    fn new(source: &Arc<Waiting>, edge: Range<usize>, parent: Option<NodeId>) -> Self {
        Self { source: Arc::clone(source), edge, parent, children: BTreeMap::new(), ends: Vec::new(), weight: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrefixCache;
    use crate::scheduler::request::testing::waiting;

    /// Few tokens, so that everything shares, parts and ends inside something else.
    fn some(dice: &mut u64) -> Vec<Token> {
        let mut roll = |n: u64| {
            *dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (*dice >> 33) % n
        };
        (0..1 + roll(8)).map(|_| roll(2) as Token).collect()
    }

    #[test]
    fn sharers_are_those_of_a_list() {
        let cache = PrefixCache::builder(1, 1).build().expect("sound");
        let spaces = [cache.namespace(&["a"]), cache.namespace(&["b"])];
        let (mut tree, mut list, mut dice) = (Prompts::default(), Vec::<(u64, Arc<Waiting>)>::new(), 7);
        for name in 0..4_000 {
            let space = &spaces[(name % 3 == 0) as usize];
            let prompt = waiting(space, &some(&mut dice));
            tree.insert(name, &prompt, prompt.tokens.len());
            list.push((name, prompt));
            while list.len() > 1 + name as usize % 23 {
                let (gone, _) = list.swap_remove(dice as usize % list.len());
                tree.remove(gone);
            }
            let asked = some(&mut dice);
            let mut found = Vec::new();
            tree.sharers(&tree.walk(space, &asked), |name, agreed| found.push((name, agreed)));
            found.sort_unstable();
            let longest = |prompt: &Waiting| common_prefix(&prompt.tokens, &asked);
            let there = list.iter().filter(|(_, prompt)| prompt.ticket.namespace == *space);
            let mut expected: Vec<_> = there.map(|(name, prompt)| (*name, longest(prompt))).collect();
            expected.retain(|&(_, agreed)| agreed > 0);
            expected.sort_unstable();
            // Those that part from the path earlier are not asked for: something deeper is shared.
            let deepest = expected.iter().map(|&(_, agreed)| agreed).max().unwrap_or(0);
            let ends =
                |name: u64| list.iter().any(|(n, p)| *n == name && common_prefix(&p.tokens, &asked) == p.tokens.len());
            expected.retain(|&(name, agreed)| agreed == deepest || ends(name));
            assert_eq!(found, expected, "step {name}");
            assert!(tree.len() <= 2 * list.len() + 2, "a joined tree has no more inner nodes than prompts");
        }
        list.iter().for_each(|(name, _)| tree.remove(*name));
        assert_eq!((tree.len(), tree.roots.len()), (0, 0));
    }

    #[test]
    fn the_heaviest_branch_comes_first_and_is_done_before_the_next() {
        let cache = PrefixCache::builder(1, 1).build().expect("sound");
        let space = cache.default_namespace();
        let prompts = [&[1, 1, 5][..], &[2, 1], &[2, 2], &[1, 1, 6], &[1, 2], &[3], &[2, 3], &[1, 1, 7]];
        let mut tree = Prompts::default();
        for (name, prompt) in prompts.iter().enumerate() {
            tree.insert(name as u64, &waiting(&space, prompt), prompt.len());
        }
        assert_eq!(tree.depth_first(None, 99), [0, 3, 7, 4, 1, 2, 6, 5]);
        assert_eq!(tree.depth_first(None, 3), [0, 3, 7]);
        // Whoever came last decides where to go on: its own branch first, whatever is heavier elsewhere.
        assert_eq!(tree.depth_first(Some(&waiting(&space, &[2, 2, 9])), 99), [2, 1, 6, 0, 3, 7, 4, 5]);
        assert_eq!(tree.depth_first(Some(&waiting(&space, &[3, 3])), 2), [5, 0]);
    }
}
