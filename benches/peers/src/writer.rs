//! What rows ask of a cache beyond what `radixkv bench` does: a prefix that stays, a tail appended to it, eviction.

use radixkv::Lease;

use crate::arena::{
    BLOCK, contender::Client, mutexed::MutexedClient, own::RadixkvClient, strawman::Pin, tokens::Tokens,
};

pub(crate) trait Writer: Client {
    /// What keeps a prefix.
    type Held;

    /// Inserts a prompt that stays.
    fn hold(&mut self, prompt: &Self::Prompt) -> Self::Held;

    /// Reserves, inserts what `prompt` has beyond `held`, and releases that.
    fn append(&mut self, held: &Self::Held, prompt: &Self::Prompt);

    /// Makes so many blocks free, or as many as there are; returns how many.
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

impl Writer for MutexedClient {
    type Held = Pin;

    fn hold(&mut self, prompt: &Tokens) -> Pin {
        let mut tree = self.cache.tree();
        let pin = tree.lease(prompt, &mut self.blocks);
        let blocks = tree.reserve(prompt.len() / BLOCK - self.blocks.len()).expect("the pool has room");
        let held = tree.insert(pin, prompt, blocks);
        tree.release(pin);
        held
    }

    fn append(&mut self, &held: &Pin, prompt: &Tokens) {
        let reserved = self.cache.tree().reserve((prompt.len() - held.len) / BLOCK);
        let mut tree = self.cache.tree();
        let inserted = tree.insert(held, prompt, reserved.expect("the pool has room"));
        tree.release(inserted);
    }

    fn evict(&mut self, blocks: usize) -> usize {
        self.cache.tree().evict(blocks)
    }
}
