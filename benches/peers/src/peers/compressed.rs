//! dynamo-kv-router 1.6, `ConcurrentRadixTreeCompressed`: lookups run on the caller's thread,
//! stores and removals on one thread per engine, as its interface requires.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed, LocalBlockHash, RouterEvent, SyncIndexer, compute_block_hash_for_seq,
    indexer::WorkerTask,
    protocols::{
        BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData,
        KvCacheStoreData, KvCacheStoredBlockData, compute_seq_hash_for_block,
    },
};
use tokio::sync::oneshot;

use super::router::{Chain, Router};
use crate::arena::BLOCK;

/// Most stores and removals that wait for an engine's thread: far fewer than the prompts between
/// two uses of the same one.
const MOST_TASKS: usize = 256;

pub(crate) struct Compressed {
    tree: Arc<ConcurrentRadixTreeCompressed>,
    engines: AtomicU64,
}

pub(crate) struct Engine {
    id: u64,
    events: u64,
    tasks: flume::Sender<WorkerTask>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    fn send(&mut self, data: KvCacheEventData) {
        self.events += 1;
        let event = KvCacheEvent { event_id: self.events, data, dp_rank: 0 };
        self.tasks.send(WorkerTask::Event(RouterEvent::new(self.id, event))).expect("its thread runs");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.tasks.send(WorkerTask::Terminate);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Router for Compressed {
    const FROM_TOKENS: &'static str = "dynamo-kv-router CRTC, from tokens";
    const FROM_HASHES: &'static str = "dynamo-kv-router CRTC, hashes given";
    const LACKS: &'static str = "stores on the caller's thread, blocks, ids, lease, eviction, tokens";
    type Content = LocalBlockHash;
    type Key = ExternalSequenceBlockHash;
    type Engine = Engine;

    fn new() -> Self {
        Self { tree: Arc::new(ConcurrentRadixTreeCompressed::new()), engines: AtomicU64::new(0) }
    }

    fn engine(index: &Arc<Self>) -> Engine {
        let (tasks, received) = flume::bounded(MOST_TASKS);
        let tree = index.tree.clone();
        let thread = thread::spawn(move || tree.worker(received, None).expect("it ends when it is told to"));
        Engine { id: index.engines.fetch_add(1, Relaxed), events: 0, tasks, thread: Some(thread) }
    }

    fn contents(tokens: &[u32]) -> Vec<LocalBlockHash> {
        compute_block_hash_for_seq(tokens, BLOCK as u32, BlockHashOptions::default())
    }

    fn keys(contents: &[LocalBlockHash]) -> Vec<ExternalSequenceBlockHash> {
        compute_seq_hash_for_block(contents).into_iter().map(ExternalSequenceBlockHash).collect()
    }

    fn depth(&self, _engine: &mut Engine, contents: &[LocalBlockHash]) -> usize {
        self.tree.find_matches(contents, false).scores.values().copied().max().unwrap_or(0) as usize
    }

    fn own_depth(&self, engine: &mut Engine, contents: &[LocalBlockHash]) -> usize {
        let scores = self.tree.find_matches(contents, false).scores;
        scores.iter().find(|(worker, _)| worker.worker_id == engine.id).map_or(0, |(_, &depth)| depth as usize)
    }

    fn store(&self, engine: &mut Engine, chain: &Chain<Self>, from: usize) {
        let block =
            |(&tokens_hash, &block_hash)| KvCacheStoredBlockData { block_hash, tokens_hash, mm_extra_info: None };
        let blocks = chain.contents[from..].iter().zip(&chain.keys[from..]).map(block).collect();
        let parent_hash = from.checked_sub(1).map(|parent| chain.keys[parent]);
        engine.send(KvCacheEventData::Stored(KvCacheStoreData { parent_hash, start_position: None, blocks }));
    }

    fn remove(&self, engine: &mut Engine, keys: &[ExternalSequenceBlockHash]) {
        engine.send(KvCacheEventData::Removed(KvCacheRemoveData { block_hashes: keys.to_vec() }));
    }

    fn settle(&self, engine: &mut Engine) {
        let (done, settled) = oneshot::channel();
        engine.tasks.send(WorkerTask::Flush(done)).expect("its thread runs");
        settled.blocking_recv().expect("its thread answers");
    }
}
