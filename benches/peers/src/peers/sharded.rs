//! radixkv with sixteen shards.

use std::sync::Arc;

use radixkv::PrefixCache;

use crate::arena::{
    BLOCK,
    contender::Contender,
    own::{Radixkv, RadixkvClient},
    tokens::Tokens,
};

pub(crate) struct Sharded(Arc<Radixkv>);

impl Contender for Sharded {
    const NAME: &'static str = "radixkv, 16 shards";
    const LACKS: &'static str = "one order of eviction";
    type Prompt = Tokens;
    type Client = RadixkvClient;

    fn new(blocks: usize) -> Self {
        let cache = PrefixCache::builder(BLOCK, blocks).shards(16).build();
        Self(Arc::new(Radixkv(cache.expect("a sound configuration"))))
    }

    fn prompt(tokens: &Tokens) -> Tokens {
        tokens.clone()
    }

    fn client(cache: &Arc<Self>) -> RadixkvClient {
        Radixkv::client(&cache.0)
    }
}
