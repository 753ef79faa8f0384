//! The cache as it would be if nothing had to be fast: what the real one is compared with.
//!
//! Nothing here is meant to be fast: every structure is the most literal one that states the contract. There is
//! one thread, one vertex for each cached block, found under its parent by all the tokens of the block, and every
//! touch goes to every block of the path. Leases and reservations are given back by hand.
//!
//! # Contract
//!
//! **Whole blocks.** Keys are tokens, payload is blocks. A match is the longest cached path of whole blocks from
//! the root of its namespace; an insert drops the tail that fills no block, and says how long it was.
//!
//! **Statistics.** Each block has `last`, `hits` and `born` ([`Statistics`]). A request touches a block once:
//!
//! | verb | blocks of the path that the request has not touched | blocks that it has |
//! |---|---|---|
//! | `match_prefix` | `hits += 1`, `last = now` | |
//! | `lease_prefix`, `peek` | nothing | |
//! | `resume`, the lease carries the touch | `hits += 1`, `last = now` beyond the lease | `last = now` up to the lease |
//! | `resume`, the lease carries none | `hits += 1`, `last = now` on the whole path | |
//! | `insert` | new blocks: `hits = 1`, `last = born = now` | `last = now` on the rest of the path |
//!
//! `last` never goes back. A lease from a match, a resume or an insert carries its request's touch; one from
//! `lease_prefix` or a clone does not. An insert counts no hit on blocks that were there already, duplicates
//! included; resuming from its lease counts hits only beyond it. Releasing a lease takes no touch back.
//!
//! A structure that keeps statistics at the deepest block of a touch and lets them flow down when that block is
//! evicted (`last = max`, `hits += hits - 1`) answers the same: a block is only asked for its rank when nothing
//! lies beyond it, and by then all that lay beyond has flowed down. Moving a touch is `hits -= 1` at the old end
//! and `hits += 1` at the new one.
//!
//! **Protection.** A block is *protected* while a lease stands on it or on a descendant, *evictable* if it is
//! cached and not protected. An empty match has a lease too, on the root; it protects nothing.
//!
//! **Eviction** takes, again and again, the block of smallest rank among those without child and lease, until
//! enough are free. Trimming a whole edge from its tail is the same thing: the blocks of an edge share their
//! statistics, so the edge's next block still ranks first. Equal ranks of different leaves would need one time on
//! two paths; every verb that stamps has a time of its own and stamps one path, so there are none. (With a clock
//! that stands still the lower block id goes first, which is part of no promise.)
//!
//! **Reservations** are all or nothing and evict exactly the blocks that are missing. A refusal evicts nothing.
//!
//! **Clear and drop** detach trees: later lookups start from an empty one, an insert from a lease on a detached
//! tree is refused, and detached blocks are free as soon as no lease protects them. Resuming such a lease still
//! finds what other leases protect beyond it.

mod outcome;
mod policy;
mod store;

use std::collections::{BTreeMap, BTreeSet};

pub use outcome::{
    InsertError, InsertErrorKind, Inserted, Lease, PrefixMatch, Reservation, ReserveError, Stats, Violation,
};
pub use policy::{Policy, Statistics};
use store::{Place, Store, TreeId};

use crate::key::Token;

/// Index of a block; the reference hands out its own, the lowest that is free.
pub type BlockId = u32;

/// The literal cache.
#[derive(Debug)]
pub struct Reference {
    block_size: usize,
    store: Store,
    namespaces: BTreeMap<Vec<String>, TreeId>,
    now: u64,
}

impl Reference {
    /// An empty cache of `capacity` blocks of `block_size` tokens.
    ///
    /// # Panics
    ///
    /// Panics if one of them is zero.
    pub fn new(block_size: usize, capacity: usize, policy: Policy) -> Self {
        assert!(block_size > 0 && capacity > 0);
        Self { block_size, store: Store::new(policy, capacity), namespaces: BTreeMap::new(), now: 0 }
    }

    /// Verbs stamp with this time from now on.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// Leases the longest cached prefix and touches it.
    pub fn match_prefix(&mut self, namespace: &[&str], tokens: &[Token]) -> PrefixMatch {
        let lease = self.root_lease(namespace);
        self.resume(lease, tokens)
    }

    /// The same without a touch.
    pub fn lease_prefix(&mut self, namespace: &[&str], tokens: &[Token]) -> PrefixMatch {
        let lease = self.root_lease(namespace);
        self.extend(lease, tokens)
    }

    /// Length of the longest cached prefix in tokens; changes nothing.
    pub fn peek(&self, namespace: &[&str], tokens: &[Token]) -> usize {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        let tree = self.namespaces.get(&key);
        tree.map_or(0, |&tree| self.descend(Place::Root(tree), tokens).1 * self.block_size)
    }

    /// Continues a match from its lease and takes the request's touch along.
    ///
    /// `tokens` is the whole sequence and begins with the leased one.
    pub fn resume(&mut self, lease: Lease, tokens: &[Token]) -> PrefixMatch {
        let touched = if lease.touched { lease.len_tokens / self.block_size } else { 0 };
        let mut found = self.extend(lease, tokens);
        for (i, &block) in found.blocks.iter().enumerate() {
            self.store.touch(block, self.now, i >= touched);
        }
        found.lease.touched = true;
        found
    }

    /// A second lease on the same path, without a touch.
    pub fn clone_lease(&mut self, lease: &Lease) -> Lease {
        self.store.lease(lease.at);
        Lease { touched: false, ..*lease }
    }

    /// Gives a lease back.
    pub fn release(&mut self, lease: Lease) {
        self.store.release(lease.at);
    }

    /// Reserves `blocks` blocks or none, and evicts exactly as many as are missing.
    ///
    /// # Errors
    ///
    /// [`ReserveError::TooLarge`] beyond the capacity, [`ReserveError::Exhausted`] beyond what is free or evictable.
    pub fn reserve(&mut self, blocks: usize) -> Result<Reservation, ReserveError> {
        let (requested, capacity) = (blocks, self.store.capacity());
        if requested > capacity {
            return Err(ReserveError::TooLarge { requested, capacity });
        }
        let stats = self.stats();
        let available = stats.free_blocks + stats.evictable_blocks;
        if available < requested {
            return Err(ReserveError::Exhausted { requested, available });
        }
        let missing = requested.saturating_sub(stats.free_blocks);
        assert_eq!(self.store.evict(missing), missing, "what is evictable can be evicted");
        let blocks: Vec<BlockId> = self.store.free.iter().copied().take(requested).collect();
        for block in &blocks {
            self.store.free.remove(block);
            self.store.reserved.insert(*block);
        }
        Ok(Reservation { blocks })
    }

    /// Gives a reservation back.
    pub fn abort(&mut self, reservation: Reservation) {
        for block in reservation.blocks {
            assert!(self.store.reserved.remove(&block), "a reservation of this cache");
            self.store.free.insert(block);
        }
    }

    /// Caches the whole blocks of `tokens` beyond the lease; block i of the reservation holds the i-th of them.
    ///
    /// `tokens` is the whole sequence and begins with the leased one.
    ///
    /// # Errors
    ///
    /// [`InsertErrorKind`] says when; nothing has changed then.
    pub fn insert(
        &mut self,
        lease: &Lease,
        tokens: &[Token],
        reservation: Reservation,
    ) -> Result<Inserted, InsertError> {
        if let Some(kind) = self.refusal(lease, tokens, &reservation) {
            return Err(InsertError { reservation, kind });
        }
        let (mut at, known) = self.descend(lease.at, &tokens[lease.len_tokens..]);
        let fresh = &tokens[lease.len_tokens + known * self.block_size..];
        for (block, tokens) in reservation.blocks[known..].iter().zip(fresh.chunks(self.block_size)) {
            self.store.add(at, tokens, *block, self.now);
            at = Place::After(*block);
        }
        self.store.lease(at);
        let path = self.store.path(at);
        for &block in &path {
            self.store.touch(block, self.now, false);
        }
        let len_tokens = path.len() * self.block_size;
        Ok(Inserted {
            lease: Lease { tree: lease.tree, at, len_tokens, touched: true },
            blocks: path[lease.len_tokens / self.block_size..].to_vec(),
            duplicates: Reservation { blocks: reservation.blocks[..known].to_vec() },
            dropped_tokens: tokens.len() - len_tokens,
        })
    }

    /// Evicts up to `blocks` blocks in the order of the policy; returns how many.
    pub fn evict(&mut self, blocks: usize) -> usize {
        self.store.evict(blocks)
    }

    /// Empties every namespace.
    pub fn clear(&mut self) {
        for (_, tree) in std::mem::take(&mut self.namespaces) {
            self.store.fell(tree);
        }
    }

    /// Empties one namespace.
    pub fn drop_namespace(&mut self, namespace: &[&str]) {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        if let Some(tree) = self.namespaces.remove(&key) {
            self.store.fell(tree);
        }
    }

    /// Where all the blocks are.
    pub fn stats(&self) -> Stats {
        let (free_blocks, reserved_blocks) = (self.store.free.len(), self.store.reserved.len());
        let protected_blocks = self.store.protected().len();
        let used = free_blocks + reserved_blocks + protected_blocks;
        Stats { free_blocks, reserved_blocks, evictable_blocks: self.store.capacity() - used, protected_blocks }
    }

    /// Blocks that are reserved or cached.
    pub fn blocks_in_use(&self) -> BTreeSet<BlockId> {
        let blocks = 0..self.store.capacity() as BlockId;
        blocks.filter(|block| !self.store.free.contains(block)).collect()
    }

    /// Checks the structure, in O(everything).
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold.
    pub fn validate(&self) -> Result<(), Violation> {
        self.store.validate()
    }

    fn root_lease(&mut self, namespace: &[&str]) -> Lease {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        let store = &mut self.store;
        let tree = *self.namespaces.entry(key).or_insert_with(|| store.plant());
        let at = Place::Root(tree);
        self.store.lease(at);
        Lease { tree, at, len_tokens: 0, touched: false }
    }

    /// The end of the longest cached continuation of `at` by `tokens`, and how many blocks it is long.
    fn descend(&self, mut at: Place, tokens: &[Token]) -> (Place, usize) {
        let mut blocks = 0;
        for tokens in tokens.chunks_exact(self.block_size) {
            let Some(block) = self.store.child(at, tokens) else {
                break;
            };
            at = Place::After(block);
            blocks += 1;
        }
        (at, blocks)
    }

    /// Moves a lease as far as `tokens` are cached.
    fn extend(&mut self, lease: Lease, tokens: &[Token]) -> PrefixMatch {
        assert!(tokens.len() >= lease.len_tokens, "the sequence begins with the leased one");
        let (at, blocks) = self.descend(lease.at, &tokens[lease.len_tokens..]);
        self.store.lease(at);
        self.store.release(lease.at);
        let len_tokens = lease.len_tokens + blocks * self.block_size;
        let lease = Lease { at, len_tokens, ..lease };
        PrefixMatch { lease, blocks: self.store.path(at) }
    }

    fn refusal(&self, lease: &Lease, tokens: &[Token], reservation: &Reservation) -> Option<InsertErrorKind> {
        let (leased, given) = (lease.len_tokens, tokens.len());
        if self.store.is_dropped(lease.tree) {
            return Some(InsertErrorKind::NamespaceDropped);
        }
        if given < leased {
            return Some(InsertErrorKind::TokensTooShort { leased, given });
        }
        let (needed, given) = ((given - leased) / self.block_size, reservation.blocks.len());
        (needed != given).then_some(InsertErrorKind::BlockCount { needed, given })
    }
}
