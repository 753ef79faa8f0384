//! The strawman behind one `Mutex`, which is locked once for each operation of an engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use radixkv::BlockId;

use super::{
    BLOCK,
    contender::{Client, Clock, Contender},
    strawman::Strawman,
    tokens::Tokens,
};

pub(crate) struct Mutexed(Mutex<Strawman>);

impl Mutexed {
    pub(crate) fn tree(&self) -> MutexGuard<'_, Strawman> {
        // A panic ends the measurement and its cache, so poisoning does not matter.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct MutexedClient {
    pub(crate) cache: Arc<Mutexed>,
    pub(crate) blocks: Vec<BlockId>,
}

impl Contender for Mutexed {
    const NAME: &'static str = "strawman, Mutex";
    const LACKS: &'static str = "";
    type Prompt = Tokens;
    type Client = MutexedClient;

    fn new(blocks: usize) -> Self {
        Self(Mutex::new(Strawman::new(BLOCK, blocks)))
    }

    fn prompt(tokens: &Tokens) -> Tokens {
        tokens.clone()
    }

    fn client(cache: &Arc<Self>) -> MutexedClient {
        MutexedClient { cache: cache.clone(), blocks: Vec::new() }
    }
}

impl Client for MutexedClient {
    type Prompt = Tokens;

    fn look_up(&mut self, prompt: &Tokens) -> usize {
        let pin = self.cache.tree().lease(prompt, &mut self.blocks);
        self.cache.tree().release(pin);
        pin.len
    }

    fn insert(&mut self, prompt: &Tokens, clock: &mut Clock) -> usize {
        let pin = self.cache.tree().lease(prompt, &mut self.blocks);
        let missing = prompt.len() / BLOCK - self.blocks.len();
        let reserved = clock.time(|| self.cache.tree().reserve(missing));
        let mut tree = self.cache.tree();
        if let Some(blocks) = reserved {
            let inserted = tree.insert(pin, prompt, blocks);
            tree.release(inserted);
        }
        tree.release(pin);
        pin.len
    }
}
