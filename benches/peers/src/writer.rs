//! Operations of a contender that `radixkv bench` does not need: a prefix that stays, a tail
//! appended to it, eviction.

use std::ops::DerefMut;

use radixkv::{BlockId, Lease};

use crate::arena::{
    BLOCK,
    contender::Client,
    mutexed::MutexedClient,
    own::RadixkvClient,
    strawman::{Pin, Strawman},
    tokens::Tokens,
};

pub(crate) trait Writer: Client {
    /// Keeps a prefix from eviction.
    type Held;

    /// Inserts a prompt and keeps it from eviction.
    fn hold(&mut self, prompt: &Self::Prompt) -> Self::Held;

    /// Reserves blocks for the part of `prompt` beyond `held`, inserts it, and releases its lease.
    fn append(&mut self, held: &Self::Held, prompt: &Self::Prompt);

    /// Evicts up to `blocks` blocks; returns how many were evicted.
    fn evict(&mut self, blocks: usize) -> usize;
}

impl Writer for RadixkvClient {
    type Held = Lease;

    fn hold(&mut self, prompt: &Tokens) -> Lease {
        let hit = self.session.match_prefix(&self.space, prompt);
        let missing = prompt.len() / BLOCK - hit.blocks().len();
        let reserved = self.session.reserve(missing).expect("the pool has room");
        self.session.insert(hit.lease(), prompt, reserved).expect("the reservation fits").lease
    }

    fn append(&mut self, held: &Lease, prompt: &Tokens) {
        let missing = (prompt.len() - held.len_tokens()) / BLOCK;
        let reserved = self.session.reserve(missing).expect("the pool has room");
        drop(self.session.insert(held, prompt, reserved).expect("the reservation fits"));
    }

    fn evict(&mut self, blocks: usize) -> usize {
        self.cache.0.evict(blocks)
    }
}

/// A client of the strawman, whatever lock guards it.
pub(crate) trait LocksStrawman: Client<Prompt = Tokens> {
    /// Locks the tree for writing; also returns a buffer for block ids.
    fn lock(&mut self) -> (impl DerefMut<Target = Strawman>, &mut Vec<BlockId>);
}

impl LocksStrawman for MutexedClient {
    fn lock(&mut self) -> (impl DerefMut<Target = Strawman>, &mut Vec<BlockId>) {
        (self.cache.tree(), &mut self.blocks)
    }
}

impl<L: LocksStrawman> Writer for L {
    type Held = Pin;

    fn hold(&mut self, prompt: &Tokens) -> Pin {
        let (mut tree, found) = self.lock();
        let pin = tree.lease(prompt, found);
        let blocks = tree.reserve(prompt.len() / BLOCK - found.len()).expect("the pool has room");
        let held = tree.insert(pin, prompt, blocks);
        tree.release(pin);
        held
    }

    fn append(&mut self, &held: &Pin, prompt: &Tokens) {
        let reserved = self.lock().0.reserve((prompt.len() - held.len) / BLOCK);
        let (mut tree, _) = self.lock();
        let inserted = tree.insert(held, prompt, reserved.expect("the pool has room"));
        tree.release(inserted);
    }

    fn evict(&mut self, blocks: usize) -> usize {
        self.lock().0.evict(blocks)
    }
}
