//! kvbm-logical 1.6, `BlockManager`: blocks found by the hash of their lineage, with its default
//! eviction policy (lineage).

use std::sync::Arc;

use dynamo_tokens::TokenBlockSequence;
use kvbm_logical::{BlockManager, BlockRegistry, ImmutableBlock, KvbmSequenceHashProvider, MutableBlock, SequenceHash};

use crate::{
    arena::{
        BLOCK,
        contender::{Client, Clock, Contender},
        tokens::Tokens,
    },
    writer::Writer,
};

/// Marks the tier that all blocks are in.
#[derive(Clone)]
pub(crate) struct Device;

/// The contender. If `GIVEN`, prompts come with their hashes.
pub(crate) struct Managed<const GIVEN: bool>(BlockManager<Device>);

pub(crate) struct Prompt {
    tokens: Tokens,
    hashes: Option<Vec<SequenceHash>>,
}

pub(crate) struct ManagedClient<const GIVEN: bool> {
    cache: Arc<Managed<GIVEN>>,
    /// Block ids of the last match.
    ids: Vec<usize>,
    /// Blocks that were evicted and not yet reused.
    evicted: Vec<MutableBlock<Device>>,
}

fn hashes(tokens: &[u32]) -> Vec<SequenceHash> {
    let sequence = TokenBlockSequence::from_slice(tokens, BLOCK as u32, None);
    sequence.blocks().iter().map(|block| block.kvbm_sequence_hash()).collect()
}

impl<const GIVEN: bool> Contender for Managed<GIVEN> {
    const NAME: &'static str = if GIVEN { "kvbm-logical, hashes given" } else { "kvbm-logical, from tokens" };
    const LACKS: &'static str = "tokens: identity is a hash";
    type Prompt = Prompt;
    type Client = ManagedClient<GIVEN>;

    fn new(blocks: usize) -> Self {
        let builder = BlockManager::builder().block_count(blocks).block_size(BLOCK).registry(BlockRegistry::new());
        Self(builder.build().expect("a sound configuration"))
    }

    fn prompt(tokens: &Tokens) -> Prompt {
        Prompt { tokens: tokens.clone(), hashes: GIVEN.then(|| hashes(tokens)) }
    }

    fn client(cache: &Arc<Self>) -> Self::Client {
        ManagedClient { cache: cache.clone(), ids: Vec::new(), evicted: Vec::new() }
    }
}

impl<const GIVEN: bool> ManagedClient<GIVEN> {
    fn with_hashes<T>(&mut self, prompt: &Prompt, use_hashes: impl FnOnce(&mut Self, &[SequenceHash]) -> T) -> T {
        match &prompt.hashes {
            Some(hashes) => use_hashes(self, hashes),
            None => use_hashes(self, &hashes(&prompt.tokens)),
        }
    }

    fn register(&self, blocks: Vec<MutableBlock<Device>>, hashes: &[SequenceHash]) -> Vec<ImmutableBlock<Device>> {
        let staged = blocks.into_iter().zip(hashes).map(|(block, &hash)| block.stage(hash, BLOCK));
        self.cache.0.register_blocks(staged.map(|block| block.expect("the size of a block")).collect())
    }
}

impl<const GIVEN: bool> Client for ManagedClient<GIVEN> {
    type Prompt = Prompt;

    fn look_up(&mut self, prompt: &Prompt) -> usize {
        self.with_hashes(prompt, |client, hashes| {
            let matched = client.cache.0.match_blocks(hashes);
            client.ids.clear();
            client.ids.extend(matched.iter().map(|block| block.block_id()));
            matched.len() * BLOCK
        })
    }

    fn insert(&mut self, prompt: &Prompt, clock: &mut Clock) -> usize {
        self.evicted.clear();
        self.with_hashes(prompt, |client, hashes| {
            let matched = client.cache.0.match_blocks(hashes);
            let missing = hashes.len() - matched.len();
            if let Some(blocks) = clock.time(|| client.cache.0.allocate_blocks(missing)) {
                drop(client.register(blocks, &hashes[matched.len()..]));
            }
            matched.len() * BLOCK
        })
    }
}

impl<const GIVEN: bool> Writer for ManagedClient<GIVEN> {
    type Held = Vec<ImmutableBlock<Device>>;

    fn hold(&mut self, prompt: &Prompt) -> Self::Held {
        self.with_hashes(prompt, |client, hashes| {
            let mut held = client.cache.0.match_blocks(hashes);
            let blocks = client.cache.0.allocate_blocks(hashes.len() - held.len()).expect("the pool has room");
            let fresh = client.register(blocks, &hashes[held.len()..]);
            held.extend(fresh);
            held
        })
    }

    fn append(&mut self, held: &Self::Held, prompt: &Prompt) {
        self.evicted.clear();
        self.with_hashes(prompt, |client, hashes| {
            let fresh = &hashes[held.len()..];
            let blocks = client.cache.0.allocate_blocks(fresh.len()).expect("the pool has room");
            drop(client.register(blocks, fresh));
        });
    }

    fn evict(&mut self, blocks: usize) -> usize {
        // The manager evicts only to allocate, so an eviction is an allocation.
        let evicted = self.cache.0.allocate_blocks(blocks).unwrap_or_default();
        let count = evicted.len();
        self.evicted.extend(evicted);
        count
    }
}
