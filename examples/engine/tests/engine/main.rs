//! The engine compared with itself without a cache, and its errors for bad input.

mod acceptance;
mod bits;
mod cascade;
mod chats;
mod folder;
mod garbage;
mod golden;
mod input;
mod naive;
mod quiet;
mod saved;
#[cfg(feature = "serve")]
mod server;
mod sharing;
mod templates;
mod texts;
mod tiers;
mod weights;

use std::thread;
use std::time::{Duration, Instant};

use engine::config::{Architecture, Config, Rope};
use engine::model::{Model, RandomWeights};
use radixkv::PrefixCache;

/// A model that computes in a millisecond.
fn tiny() -> Config {
    Config {
        architecture: Architecture::Qwen3,
        vocab_size: 64,
        hidden_size: 32,
        intermediate_size: 48,
        layers: 2,
        query_heads: 4,
        kv_heads: 2,
        head_dim: 8,
        norm_eps: 1e-6,
        rope: Rope { theta: 10_000.0, scaling: None },
        tied: true,
        max_positions: 8_192,
        end_tokens: vec![],
    }
}

fn random(config: Config, seed: u64) -> Model {
    let Ok(model) = Model::load(config, &RandomWeights::new(seed), |_| {});
    model
}

/// No request holds a block: every block is free or evictable, and the cache is valid.
fn assert_at_rest(cache: &PrefixCache, what: &str) {
    cache.settle();
    let mut stats = cache.stats();
    let end = Instant::now() + Duration::from_secs(60);
    // A background evictor may free blocks while the numbers are read.
    while stats.free_blocks + stats.evictable_blocks < stats.capacity_blocks && Instant::now() < end {
        thread::yield_now();
        stats = cache.stats();
    }
    assert_eq!(stats.free_blocks + stats.evictable_blocks, stats.capacity_blocks, "{what}: {stats:?}");
    assert!(cache.validate().is_ok(), "{what}: {:?}", cache.validate());
}
