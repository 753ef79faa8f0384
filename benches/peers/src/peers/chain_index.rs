//! kv-index 2, `ChainIndex`: chains in runs, lookups that write nothing.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use kv_index::{
    ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock, chain_prefix_hash,
    compute_request_content_hashes,
};

use super::router::{Chain, Router};
use crate::arena::BLOCK;

pub(crate) struct Chains {
    index: ChainIndex,
    engines: AtomicUsize,
}

pub(crate) struct Engine {
    worker: u32,
    map: ChainBlockMap,
}

impl Router for Chains {
    const FROM_TOKENS: &'static str = "kv-index ChainIndex, from tokens";
    const FROM_HASHES: &'static str = "kv-index ChainIndex, hashes given";
    const LACKS: &'static str = "blocks, ids, lease, eviction, tokens";
    type Content = ContentHash;
    type Key = SequenceHash;
    type Engine = Engine;

    fn new() -> Self {
        Self { index: ChainIndex::new(), engines: AtomicUsize::new(0) }
    }

    fn engine(index: &Arc<Self>) -> Engine {
        let name = index.engines.fetch_add(1, Relaxed).to_string();
        Engine { worker: index.index.intern_worker(&name).expect("few workers"), map: ChainBlockMap::new() }
    }

    fn contents(tokens: &[u32]) -> Vec<ContentHash> {
        compute_request_content_hashes(tokens, BLOCK)
    }

    fn keys(contents: &[ContentHash]) -> Vec<SequenceHash> {
        let mut before = None;
        let next = |&content: &ContentHash| {
            let key = before.map_or(SequenceHash(content.0), |before| chain_prefix_hash(before, content));
            before = Some(key);
            key
        };
        contents.iter().map(next).collect()
    }

    fn depth(&self, _engine: &mut Engine, contents: &[ContentHash]) -> usize {
        let mut deepest = 0;
        self.index.score_into(contents, |content| content.0, false, |_, depth| deepest = deepest.max(depth));
        deepest as usize
    }

    fn own_depth(&self, engine: &mut Engine, contents: &[ContentHash]) -> usize {
        let mut own = 0;
        let report = |worker, depth| own = if worker == engine.worker { depth } else { own };
        self.index.score_into(contents, |content| content.0, false, report);
        own as usize
    }

    fn store(&self, engine: &mut Engine, chain: &Chain<Self>, from: usize) {
        let block = |(&content_hash, &seq_hash)| StoredBlock { seq_hash, content_hash };
        let blocks: Vec<StoredBlock> = chain.contents[from..].iter().zip(&chain.keys[from..]).map(block).collect();
        let parent = from.checked_sub(1).map(|parent| chain.keys[parent]);
        self.index.apply_stored(engine.worker, &blocks, parent, &mut engine.map).expect("the parent is stored");
    }

    fn remove(&self, engine: &mut Engine, keys: &[SequenceHash]) {
        self.index.apply_removed(engine.worker, keys, &mut engine.map);
    }
}
