//! The strawman behind one `RwLock`. A lookup only reads: it takes no lease and does not count as a
//! use for the order of eviction.

use std::{
    ops::DerefMut,
    sync::{Arc, PoisonError, RwLock, RwLockWriteGuard},
};

use radixkv::BlockId;

use crate::{
    arena::{
        BLOCK,
        contender::{Client, Clock, Contender},
        strawman::Strawman,
        tokens::Tokens,
    },
    writer::LocksStrawman,
};

pub(crate) struct Shared(RwLock<Strawman>);

impl Shared {
    fn write(&self) -> RwLockWriteGuard<'_, Strawman> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct SharedClient {
    cache: Arc<Shared>,
    blocks: Vec<BlockId>,
}

impl Contender for Shared {
    const NAME: &'static str = "strawman, RwLock";
    const LACKS: &'static str = "lease; a lookup is no use";
    type Prompt = Tokens;
    type Client = SharedClient;

    fn new(blocks: usize) -> Self {
        Self(RwLock::new(Strawman::new(BLOCK, blocks)))
    }

    fn prompt(tokens: &Tokens) -> Tokens {
        tokens.clone()
    }

    fn client(cache: &Arc<Self>) -> SharedClient {
        SharedClient { cache: cache.clone(), blocks: Vec::new() }
    }
}

impl Client for SharedClient {
    type Prompt = Tokens;

    fn look_up(&mut self, prompt: &Tokens) -> usize {
        self.blocks.clear();
        self.cache.0.read().unwrap_or_else(PoisonError::into_inner).find(prompt, Some(&mut self.blocks)).len
    }

    fn insert(&mut self, prompt: &Tokens, clock: &mut Clock) -> usize {
        let pin = self.cache.write().lease(prompt, &mut self.blocks);
        let missing = prompt.len() / BLOCK - self.blocks.len();
        let reserved = clock.time(|| self.cache.write().reserve(missing));
        let mut tree = self.cache.write();
        if let Some(blocks) = reserved {
            let inserted = tree.insert(pin, prompt, blocks);
            tree.release(inserted);
        }
        tree.release(pin);
        pin.len
    }
}

impl LocksStrawman for SharedClient {
    fn lock(&mut self) -> (impl DerefMut<Target = Strawman>, &mut Vec<BlockId>) {
        (self.cache.write(), &mut self.blocks)
    }
}
