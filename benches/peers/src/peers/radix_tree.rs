//! smg-radix-tree 0.1: chains in runs, for one thread. It is behind an `RwLock` here, because it
//! cannot be shared in another way.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use radix_tree::{Config, HolderId, Overlap, OverlapScratch, RadixTree};

use super::{
    chain_index::Chains,
    router::{Chain, Router},
};

pub(crate) struct Holders {
    tree: RwLock<RadixTree>,
    engines: AtomicUsize,
}

pub(crate) struct Engine {
    holder: HolderId,
    scratch: OverlapScratch,
    found: Vec<Overlap>,
}

impl Holders {
    fn overlap(&self, engine: &mut Engine, contents: &[u64]) {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        tree.overlap(contents, &mut engine.scratch, &mut engine.found);
    }
}

impl Router for Holders {
    const FROM_TOKENS: &'static str = "smg-radix-tree, from tokens";
    const FROM_HASHES: &'static str = "smg-radix-tree, hashes given";
    const LACKS: &'static str = "threads (an RwLock here), blocks, ids, lease, eviction, tokens";
    type Content = u64;
    type Key = u64;
    type Engine = Engine;

    fn new() -> Self {
        Self { tree: RwLock::new(RadixTree::new(Config::default())), engines: AtomicUsize::new(0) }
    }

    fn engine(index: &Arc<Self>) -> Engine {
        let name = index.engines.fetch_add(1, Relaxed).to_string();
        let holder = index.tree.write().unwrap_or_else(PoisonError::into_inner).create_holder(&name);
        Engine { holder, scratch: OverlapScratch::default(), found: Vec::new() }
    }

    /// It works only on hashes: these are the ones of its project's other index.
    fn contents(tokens: &[u32]) -> Vec<u64> {
        Chains::contents(tokens).into_iter().map(|content| content.0).collect()
    }

    fn keys(contents: &[u64]) -> Vec<u64> {
        let contents: Vec<_> = contents.iter().copied().map(kv_index::ContentHash).collect();
        Chains::keys(&contents).into_iter().map(|key| key.0).collect()
    }

    fn depth(&self, engine: &mut Engine, contents: &[u64]) -> usize {
        self.overlap(engine, contents);
        engine.found.iter().map(|found| found.depth as usize).max().unwrap_or(0)
    }

    fn own_depth(&self, engine: &mut Engine, contents: &[u64]) -> usize {
        self.overlap(engine, contents);
        engine.found.iter().find(|found| found.holder == engine.holder).map_or(0, |found| found.depth as usize)
    }

    fn store(&self, engine: &mut Engine, chain: &Chain<Self>, from: usize) {
        let blocks: Vec<(u64, u64)> =
            chain.keys[from..].iter().copied().zip(chain.contents[from..].iter().copied()).collect();
        let parent = from.checked_sub(1).map(|parent| chain.keys[parent]);
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        tree.store(engine.holder, parent, &blocks).expect("the parent is stored");
    }

    fn remove(&self, engine: &mut Engine, keys: &[u64]) {
        self.tree.write().unwrap_or_else(PoisonError::into_inner).remove(engine.holder, keys);
    }
}
