//! radixkv with its default eviction: inline, lru.

use std::{hint::black_box, sync::Arc};

use radixkv::{BlockId, Namespace, PrefixCache, Session};

use super::{
    BLOCK,
    contender::{Client, Clock, Contender},
    tokens::Tokens,
};

pub(crate) struct Radixkv(pub(crate) PrefixCache);

pub(crate) struct RadixkvClient {
    pub(crate) cache: Arc<Radixkv>,
    pub(crate) session: Session,
    pub(crate) space: Namespace,
    pub(crate) blocks: Vec<BlockId>,
}

impl Contender for Radixkv {
    const NAME: &'static str = "radixkv";
    const LACKS: &'static str = "";
    type Prompt = Tokens;
    type Client = RadixkvClient;

    fn new(blocks: usize) -> Self {
        Self(PrefixCache::builder(BLOCK, blocks).build().expect("a sound configuration"))
    }

    fn prompt(tokens: &Tokens) -> Tokens {
        tokens.clone()
    }

    fn client(cache: &Arc<Self>) -> RadixkvClient {
        RadixkvClient {
            cache: cache.clone(),
            session: cache.0.session(),
            space: cache.0.default_namespace(),
            blocks: Vec::new(),
        }
    }
}

impl Client for RadixkvClient {
    type Prompt = Tokens;

    fn look_up(&mut self, prompt: &Tokens) -> usize {
        let lease = self.session.match_prefix_into(&self.space, prompt, &mut self.blocks);
        black_box(&self.blocks);
        lease.len_tokens()
    }

    fn insert(&mut self, prompt: &Tokens, clock: &mut Clock) -> usize {
        let lease = self.session.match_prefix_into(&self.space, prompt, &mut self.blocks);
        let missing = prompt.len() / BLOCK - self.blocks.len();
        if let Ok(reserved) = clock.time(|| self.session.reserve(missing)) {
            drop(self.session.insert(&lease, prompt, reserved).expect("the reservation fits"));
        }
        lease.len_tokens()
    }

    fn settle(&mut self) {
        self.cache.0.settle();
    }
}
