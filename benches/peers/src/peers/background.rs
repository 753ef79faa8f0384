//! radixkv with a background evictor.

use std::sync::Arc;

use radixkv::{Eviction, PrefixCache, Watermarks};

use crate::arena::{
    BLOCK,
    contender::Contender,
    own::{Radixkv, RadixkvClient},
    tokens::Tokens,
};

pub(crate) struct InBackground(Arc<Radixkv>);

impl Contender for InBackground {
    const NAME: &'static str = "radixkv, background evictor";
    const LACKS: &'static str = "";
    type Prompt = Tokens;
    type Client = RadixkvClient;

    fn new(blocks: usize) -> Self {
        let eviction = Eviction::Background(Watermarks::for_capacity(blocks));
        let cache = PrefixCache::builder(BLOCK, blocks).eviction(eviction).build();
        Self(Arc::new(Radixkv(cache.expect("a sound configuration"))))
    }

    fn prompt(tokens: &Tokens) -> Tokens {
        tokens.clone()
    }

    fn client(cache: &Arc<Self>) -> RadixkvClient {
        Radixkv::client(&cache.0)
    }
}
