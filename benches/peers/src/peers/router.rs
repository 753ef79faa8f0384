//! Indexes for routers. They answer which worker holds which blocks of a chain of hashes, and are
//! told which blocks are stored and removed.
//!
//! They have no blocks, leases or eviction. Where a row needs a full pool, each thread acts as one
//! engine that stores its prompts and removes the oldest; the time of this bookkeeping is included.
//! Each index is two contenders: one makes the hashes from the tokens while it is timed, the other
//! gets them ready-made.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    arena::{
        BLOCK,
        contender::{Client, Clock, Contender},
        tokens::Tokens,
    },
    writer::Writer,
};

/// An index that knows blocks by their hashes.
pub(crate) trait Router: Send + Sync + 'static {
    const FROM_TOKENS: &'static str;
    const FROM_HASHES: &'static str;
    const LACKS: &'static str;
    /// The hash of a block's own tokens.
    type Content: Copy + Send + Sync;
    /// The hash of a block's tokens and all tokens before it.
    type Key: Copy + Send + Sync;
    /// The index's handle of an engine that stores blocks.
    type Engine: 'static;

    fn new() -> Self;
    fn engine(index: &Arc<Self>) -> Self::Engine;
    fn contents(tokens: &[u32]) -> Vec<Self::Content>;
    fn keys(contents: &[Self::Content]) -> Vec<Self::Key>;
    /// The number of leading blocks that at least one engine has.
    fn depth(&self, engine: &mut Self::Engine, contents: &[Self::Content]) -> usize;
    /// The number of leading blocks that this engine has.
    fn own_depth(&self, engine: &mut Self::Engine, contents: &[Self::Content]) -> usize;
    /// Tells the index that the engine now has all blocks from `from` on.
    fn store(&self, engine: &mut Self::Engine, chain: &Chain<Self>, from: usize);
    fn remove(&self, engine: &mut Self::Engine, keys: &[Self::Key]);
    /// Waits until lookups find all stored blocks.
    fn settle(&self, _engine: &mut Self::Engine) {}
}

/// The hashes of a prompt.
pub(crate) struct Chain<R: Router + ?Sized> {
    pub(crate) contents: Vec<R::Content>,
    pub(crate) keys: Vec<R::Key>,
}

impl<R: Router> Chain<R> {
    fn of(tokens: &[u32]) -> Self {
        let contents = R::contents(tokens);
        Self { keys: R::keys(&contents), contents }
    }
}

/// A router's index as a contender. If `GIVEN`, prompts come with their hashes.
pub(crate) struct Routed<R, const GIVEN: bool> {
    index: Arc<R>,
    capacity: usize,
    used: AtomicUsize,
}

/// A prompt, with its hashes if the contender is `GIVEN` them.
pub(crate) struct Prompt<R: Router> {
    tokens: Tokens,
    chain: Option<Chain<R>>,
}

pub(crate) struct RoutedClient<R: Router, const GIVEN: bool> {
    cache: Arc<Routed<R, GIVEN>>,
    engine: R::Engine,
    /// The keys of stored prompts, the oldest first.
    stored: VecDeque<Vec<R::Key>>,
}

impl<R: Router, const GIVEN: bool> Contender for Routed<R, GIVEN> {
    const NAME: &'static str = if GIVEN { R::FROM_HASHES } else { R::FROM_TOKENS };
    const LACKS: &'static str = R::LACKS;
    type Prompt = Prompt<R>;
    type Client = RoutedClient<R, GIVEN>;

    fn new(blocks: usize) -> Self {
        Self { index: Arc::new(R::new()), capacity: blocks, used: AtomicUsize::new(0) }
    }

    fn prompt(tokens: &Tokens) -> Prompt<R> {
        Prompt { tokens: tokens.clone(), chain: GIVEN.then(|| Chain::of(tokens)) }
    }

    fn client(cache: &Arc<Self>) -> Self::Client {
        RoutedClient { cache: cache.clone(), engine: R::engine(&cache.index), stored: VecDeque::new() }
    }
}

/// The outcome of a store: the first `found` blocks were there; the blocks of `keys` are new and
/// are removed later.
struct Stored<R: Router> {
    found: usize,
    keys: Vec<R::Key>,
}

impl<R: Router, const GIVEN: bool> RoutedClient<R, GIVEN> {
    /// Calls `use_chain` with the prompt's hashes, which are made here if the prompt has none.
    fn with_chain<T>(&mut self, prompt: &Prompt<R>, use_chain: impl FnOnce(&mut Self, &Chain<R>) -> T) -> T {
        match &prompt.chain {
            Some(chain) => use_chain(self, chain),
            None => use_chain(self, &Chain::of(&prompt.tokens)),
        }
    }

    /// Stores a prompt's blocks after the first `from`, or those that the engine does not have.
    fn store(&mut self, prompt: &Prompt<R>, from: Option<usize>) -> Stored<R> {
        self.with_chain(prompt, |client, chain| {
            let index = client.cache.index.clone();
            let found = from.unwrap_or_else(|| index.own_depth(&mut client.engine, &chain.contents));
            if found < chain.keys.len() {
                index.store(&mut client.engine, chain, found);
            }
            Stored { found, keys: chain.keys[found..].to_vec() }
        })
    }

    /// Removes the oldest prompt; returns its number of blocks.
    fn remove_oldest(&mut self) -> usize {
        let Some(keys) = self.stored.pop_front() else { return 0 };
        self.cache.index.remove(&mut self.engine, &keys);
        self.cache.used.fetch_sub(keys.len(), Relaxed);
        keys.len()
    }
}

impl<R: Router, const GIVEN: bool> Client for RoutedClient<R, GIVEN> {
    type Prompt = Prompt<R>;

    fn look_up(&mut self, prompt: &Prompt<R>) -> usize {
        let index = &*self.cache.index;
        BLOCK
            * match &prompt.chain {
                Some(chain) => index.depth(&mut self.engine, &chain.contents),
                None => index.depth(&mut self.engine, &R::contents(&prompt.tokens)),
            }
    }

    fn insert(&mut self, prompt: &Prompt<R>, _clock: &mut Clock) -> usize {
        let Stored { found, keys } = self.store(prompt, None);
        let blocks = keys.len();
        let mut used = self.cache.used.fetch_add(blocks, Relaxed) + blocks;
        self.stored.push_back(keys);
        while used > self.cache.capacity && self.stored.len() > 1 {
            used -= self.remove_oldest();
        }
        found * BLOCK
    }

    fn settle(&mut self) {
        self.cache.index.settle(&mut self.engine);
    }
}

impl<R: Router, const GIVEN: bool> Writer for RoutedClient<R, GIVEN> {
    /// The number of leading blocks, which are never removed.
    type Held = usize;

    fn hold(&mut self, prompt: &Prompt<R>) -> usize {
        let Stored { found, keys } = self.store(prompt, None);
        self.settle();
        found + keys.len()
    }

    fn append(&mut self, &held: &usize, prompt: &Prompt<R>) {
        let Stored { keys, .. } = self.store(prompt, Some(held));
        self.cache.used.fetch_add(keys.len(), Relaxed);
        self.stored.push_back(keys);
    }

    fn evict(&mut self, blocks: usize) -> usize {
        let mut removed = 0;
        while removed < blocks && !self.stored.is_empty() {
            removed += self.remove_oldest();
        }
        removed
    }
}
