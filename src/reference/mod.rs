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
//! **Bigrams.** In a namespace of bigrams ([`Reference::set_bigrams`]) the keys are the pairs of neighbouring tokens:
//! one fewer than tokens, and a block is `block_size` pairs. All lengths count pairs, but those of a sequence that was
//! too short.
//!
//! **Statistics.** Each block has `last`, `hits` and `born` ([`Statistics`]). A request touches a block once:
//!
//! | verb | blocks of the path that the request has not touched | blocks that it has |
//! |---|---|---|
//! | `match_prefix` | `hits += 1`, `last = now` | |
//! | `match_prefix_untouched`, `peek`, `match_partial` | nothing | |
//! | `resume`, the lease carries the touch | `hits += 1`, `last = now` beyond the lease | `last = now` up to the lease |
//! | `resume`, the lease carries none | `hits += 1`, `last = now` on the whole path | |
//! | `insert` | new blocks: `hits = 1`, `last = born = now` | `last = now` on the rest of the path |
//!
//! `last` never goes back. A lease from a match, a resume or an insert carries its request's touch; one from
//! `match_prefix_untouched` or a clone does not. An insert counts no hit on blocks that were there already, duplicates
//! included; resuming from its lease counts hits only beyond it. Releasing a lease takes no touch back.
//!
//! A structure that keeps statistics at the deepest block of a touch and lets them flow down when that block is
//! evicted (`last = max`, `hits += hits - 1`) answers the same: a block is only asked for its rank when nothing
//! lies beyond it, and by then all that lay beyond has flowed down. Moving a touch is `hits -= 1` at the old end
//! and `hits += 1` at the new one.
//!
//! **Levels.** An insert's new blocks are one piece, a level deeper than the token before its first one: that token is
//! the last in which the sequence agrees with a cached one, and may lie inside a block.
//!
//! **Marks.** A lease's holder may give every block up to the lease a priority for some time, and demote or retain them
//! ([`Reference::prioritize`], [`Reference::demote`], [`Reference::retain`]). A block keeps the highest of its
//! priorities and the one that lasts longest, and counts for the highest that has not expired, or for 35. It is demoted
//! until it is used or retained, and goes before all that is not.
//!
//! **Partial hits.** The blocks just beyond a lease that agree longest with a sequence, for less than all of their
//! tokens as a rule. Any of them may be leased; which one is part of no promise.
//!
//! **Protection.** A block is *protected* while a lease stands on it or on a descendant, *evictable* if it is
//! cached and not protected. An empty match has a lease too, on the root; it protects nothing. Retaining is a lease of
//! the cache's own, one at a place, up to the latest moment asked for; clearing or dropping its namespace ends it.
//!
//! **Eviction** takes, again and again, the block of smallest rank among those without child and lease, until
//! enough are free. Trimming a whole edge from its tail is the same thing: the blocks of an edge share their
//! statistics, so the edge's next block still ranks first. Of equal ranks that goes first which was inserted first:
//! the blocks of one insert are a *piece*, and no two leaves are of one piece.
//!
//! **Quotas.** A namespace may have a limit on its cached blocks, and one on those that leases protect or reservations
//! made for it hold, over all its trees. While one has more cached than it may, a block of smallest rank among its own
//! goes before all others; of several such namespaces the one that was limited first pays first. An insert of a new
//! block into a namespace with such a limit, and `settle`, evict what is beyond any; a lookup never does.
//!
//! **Age.** `settle` first drops what was last used so long ago.
//!
//! **Reservations** are all or nothing and evict exactly the blocks that are missing. A refusal evicts nothing.
//!
//! **Clear and drop** detach trees: later lookups start from an empty one, an insert from a lease on a detached
//! tree is refused, and detached blocks are free as soon as no lease protects them. Resuming such a lease still
//! finds what other leases protect beyond it.

mod marks;
mod outcome;
mod policy;
mod store;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use marks::Marks;
pub use outcome::{InsertError, Inserted, Lease, PrefixMatch, Reservation, Stats, Violation};
pub use policy::Statistics;
use store::{HolderId, Place, Store, TreeId};

use crate::cache::{InsertErrorKind, ReserveError};
use crate::key::Token;
use crate::policy::PolicyKind;

/// Index of a block; the reference hands out its own, the lowest that is free.
pub type BlockId = u32;

/// The literal cache.
#[derive(Debug)]
pub struct Reference {
    block_size: usize,
    store: Store,
    namespaces: BTreeMap<Vec<String>, TreeId>,
    /// Namespaces of bigrams, and their trees.
    bigrams: BTreeSet<Vec<String>>,
    bigram_trees: BTreeSet<TreeId>,
    now: u64,
    /// Namespaces in use, their limits on pinned blocks, and how many there have been.
    holders: BTreeMap<Vec<String>, HolderId>,
    pinned_limits: HashMap<HolderId, usize>,
    next_holder: HolderId,
    time_to_idle: Option<u64>,
}

impl Reference {
    /// An empty cache of `capacity` blocks of `block_size` tokens.
    ///
    /// # Panics
    ///
    /// Panics if one of them is zero.
    pub fn new(block_size: usize, capacity: usize, policy: PolicyKind) -> Self {
        assert!(block_size > 0 && capacity > 0);
        Self {
            block_size,
            store: Store::new(policy, capacity),
            namespaces: BTreeMap::new(),
            bigrams: BTreeSet::new(),
            bigram_trees: BTreeSet::new(),
            now: 0,
            holders: BTreeMap::new(),
            pinned_limits: HashMap::new(),
            next_holder: 0,
            time_to_idle: None,
        }
    }

    /// The keys of a namespace that was not used yet are pairs of tokens.
    pub fn set_bigrams(&mut self, namespace: &[&str]) {
        self.bigrams.insert(namespace.iter().map(|part| part.to_string()).collect());
    }

    /// Verbs stamp with this time from now on.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
        self.store.set_time(now);
    }

    /// `settle` drops what was last used so long ago, in units of the clock.
    pub fn time_to_idle(mut self, duration: u64) -> Self {
        self.time_to_idle = Some(duration);
        self
    }

    /// Evicts in the order of another policy from now on.
    pub fn set_policy(&mut self, policy: PolicyKind) {
        self.store.set_policy(policy);
    }

    /// Limits the blocks that a namespace may have cached, and those it may have in leases and reservations.
    pub fn set_quota(&mut self, namespace: &[&str], cached: Option<usize>, pinned: Option<usize>) {
        let holder = self.holder(namespace);
        match self.store.limits.iter_mut().find(|(limited, _)| *limited == holder) {
            Some((_, limit)) => *limit = cached,
            None if cached.is_some() => self.store.limits.push((holder, cached)),
            None => {}
        }
        self.pinned_limits.remove(&holder);
        self.pinned_limits.extend(pinned.map(|limit| (holder, limit)));
    }

    /// Drops what is too old, then evicts what is beyond a limit.
    pub fn settle(&mut self) {
        if let Some(idle_since) = self.time_to_idle.and_then(|duration| self.now.checked_sub(duration)) {
            self.store.age(idle_since);
        }
        self.store.keep_to_limits();
    }

    /// Leases the longest cached prefix and touches it.
    pub fn match_prefix(&mut self, namespace: &[&str], tokens: &[Token]) -> PrefixMatch {
        let lease = self.root_lease(namespace);
        self.resume(lease, tokens)
    }

    /// The same without a touch.
    pub fn match_prefix_untouched(&mut self, namespace: &[&str], tokens: &[Token]) -> PrefixMatch {
        let lease = self.root_lease(namespace);
        self.extend(lease, tokens)
    }

    /// Length of the longest cached prefix in tokens; changes nothing.
    pub fn peek(&self, namespace: &[&str], tokens: &[Token]) -> usize {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        let tree = self.namespaces.get(&key);
        tree.map_or(0, |&tree| self.descend(tree, Place::Root(tree), &self.keys(tree, tokens)).1 * self.block_size)
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

    /// The blocks beyond a lease that agree longest with `tokens`, the whole sequence, and in how many tokens; nothing
    /// if none agrees in `min_tokens`, or in one.
    pub fn match_partial(&self, lease: &Lease, tokens: &[Token], min_tokens: usize) -> Option<(usize, Vec<BlockId>)> {
        let (keys, width) = (self.keys(lease.tree, tokens), self.width(lease.tree));
        let wanted = &keys[lease.len_tokens * width..];
        let pairs = |block| <[Token]>::chunks(block, width).zip(wanted.chunks(width));
        let agreeing = |block| pairs(block).take_while(|(ours, theirs)| ours == theirs).count();
        let below = self.store.blocks_below(lease.at);
        let longest = below.iter().map(|(tokens, _)| agreeing(tokens)).max()?;
        let best = below.iter().filter(|(tokens, _)| agreeing(tokens) == longest).map(|(_, block)| *block);
        (longest >= min_tokens.max(1)).then(|| (longest, best.collect()))
    }

    /// A lease on the path up to `block`, which lies just beyond `lease`, without a touch.
    ///
    /// # Panics
    ///
    /// Panics if it does not lie there.
    pub fn lease_block(&mut self, lease: &Lease, block: BlockId) -> Lease {
        assert!(self.store.blocks_below(lease.at).iter().any(|(_, below)| *below == block));
        let at = Place::After(block);
        self.store.lease(at);
        Lease { tree: lease.tree, at, len_tokens: lease.len_tokens + self.block_size, touched: false }
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

    /// [`reserve`](Self::reserve), counted with a namespace until the blocks are cached or given back.
    ///
    /// # Errors
    ///
    /// [`ReserveError::OverQuota`] beyond its limit; else as `reserve`.
    pub fn reserve_in(&mut self, namespace: &[&str], blocks: usize) -> Result<Reservation, ReserveError> {
        let (holder, requested) = (self.holder(namespace), blocks);
        let pinned = self.store.pinned_by(holder);
        if let Some(&limit) = self.pinned_limits.get(&holder) {
            if requested <= self.store.capacity() && pinned + requested > limit {
                return Err(ReserveError::OverQuota { requested, pinned, limit });
            }
        }
        let reservation = self.reserve(blocks)?;
        self.store.charged.extend(reservation.blocks.iter().map(|block| (*block, holder)));
        Ok(reservation)
    }

    /// Gives a reservation back.
    pub fn abort(&mut self, reservation: Reservation) {
        for block in reservation.blocks {
            assert!(self.store.reserved.remove(&block), "a reservation of this cache");
            self.store.charged.remove(&block);
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
        let (keys, width) = (self.keys(lease.tree, tokens), self.width(lease.tree));
        let (mut at, known) = self.descend(lease.tree, lease.at, &keys[lease.len_tokens * width..]);
        let fresh = keys.chunks(self.block_size * width).skip(lease.len_tokens / self.block_size + known);
        let mut level = None;
        self.store.begin_piece();
        for (block, keys) in reservation.blocks[known..].iter().zip(fresh) {
            // The first block may share tokens with others; all that follow are of one piece.
            let levels = level.map_or_else(|| self.store.levels(at, keys, width - 1), |level| vec![level; keys.len()]);
            level = levels.last().copied();
            self.store.add(at, keys, levels, *block, self.now);
            at = Place::After(*block);
        }
        self.store.lease(at);
        let path = self.store.path(at);
        for &block in &path {
            self.store.touch(block, self.now, false);
        }
        let limited = self.store.limits.iter().any(|(holder, limit)| {
            limit.is_some() && known < reservation.blocks.len() && *holder == self.store.holder_of(at)
        });
        if limited {
            self.store.keep_to_limits();
        }
        let len_tokens = path.len() * self.block_size;
        Ok(Inserted {
            lease: Lease { tree: lease.tree, at, len_tokens, touched: true },
            blocks: path[lease.len_tokens / self.block_size..].to_vec(),
            duplicates: Reservation { blocks: reservation.blocks[..known].to_vec() },
            dropped_tokens: tokens.len() - len_tokens,
        })
    }

    /// Gives every block up to the lease a priority that expires after `ttl`, or does not.
    pub fn prioritize(&mut self, lease: &Lease, priority: u8, ttl: Option<u64>) {
        let expiry = ttl.map(|ttl| self.now.saturating_add(ttl));
        self.store.mark(lease.at, |marks| marks.prioritize(priority, expiry));
    }

    /// Every block up to the lease goes before all others until it is used or retained.
    pub fn demote(&mut self, lease: &Lease) {
        self.store.mark(lease.at, Marks::demote);
    }

    /// Protects every block up to the lease until `duration` has passed; false in a tree that was dropped.
    pub fn retain(&mut self, lease: &Lease, duration: u64) -> bool {
        if self.store.is_dropped(lease.tree) {
            return false;
        }
        let now = self.now;
        self.store.mark(lease.at, Marks::keep);
        if lease.len_tokens > 0 {
            self.store.retain(lease.at, now.saturating_add(duration));
        }
        true
    }

    /// Ends what [`retain`](Self::retain) has begun at the very place of the lease.
    pub fn release_retained(&mut self, lease: &Lease) {
        self.store.release_retained(lease.at);
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
        if let Some(holder) = self.holders.remove(&key) {
            self.store.limits.retain(|(limited, _)| *limited != holder);
            self.pinned_limits.remove(&holder);
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

    fn holder(&mut self, namespace: &[&str]) -> HolderId {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        *self.holders.entry(key).or_insert_with(|| {
            self.next_holder += 1;
            self.next_holder
        })
    }

    fn root_lease(&mut self, namespace: &[&str]) -> Lease {
        let holder = self.holder(namespace);
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        let of_bigrams = self.bigrams.contains(&key);
        let store = &mut self.store;
        let tree = *self.namespaces.entry(key).or_insert_with(|| store.plant(holder));
        if of_bigrams {
            self.bigram_trees.insert(tree);
        }
        let at = Place::Root(tree);
        self.store.lease(at);
        Lease { tree, at, len_tokens: 0, touched: false }
    }

    /// Tokens in a key of `tree`.
    fn width(&self, tree: TreeId) -> usize {
        if self.bigram_trees.contains(&tree) { 2 } else { 1 }
    }

    /// The keys of `tokens` in `tree`, one after another.
    fn keys<'t>(&self, tree: TreeId, tokens: &'t [Token]) -> Cow<'t, [Token]> {
        if self.width(tree) == 1 {
            return Cow::Borrowed(tokens);
        }
        tokens.windows(2).flatten().copied().collect()
    }

    /// Tokens that a lease of so many keys was matched by.
    fn matched_by(&self, lease: &Lease) -> usize {
        if lease.len_tokens == 0 { 0 } else { lease.len_tokens + self.width(lease.tree) - 1 }
    }

    /// The end of the longest cached continuation of `at` by `keys`, and how many blocks it is long.
    fn descend(&self, tree: TreeId, mut at: Place, keys: &[Token]) -> (Place, usize) {
        let mut blocks = 0;
        for keys in keys.chunks_exact(self.block_size * self.width(tree)) {
            let Some(block) = self.store.child(at, keys) else {
                break;
            };
            at = Place::After(block);
            blocks += 1;
        }
        (at, blocks)
    }

    /// Moves a lease as far as `tokens` are cached.
    fn extend(&mut self, lease: Lease, tokens: &[Token]) -> PrefixMatch {
        assert!(tokens.len() >= self.matched_by(&lease), "the sequence begins with the leased one");
        let (keys, width) = (self.keys(lease.tree, tokens), self.width(lease.tree));
        let (at, blocks) = self.descend(lease.tree, lease.at, &keys[lease.len_tokens * width..]);
        self.store.lease(at);
        self.store.release(lease.at);
        let len_tokens = lease.len_tokens + blocks * self.block_size;
        let lease = Lease { at, len_tokens, ..lease };
        PrefixMatch { lease, blocks: self.store.path(at) }
    }

    fn refusal(&self, lease: &Lease, tokens: &[Token], reservation: &Reservation) -> Option<InsertErrorKind> {
        let (leased, given) = (self.matched_by(lease), tokens.len());
        if self.store.is_dropped(lease.tree) {
            return Some(InsertErrorKind::NamespaceDropped);
        }
        if given < leased {
            return Some(InsertErrorKind::TokensTooShort { leased, given });
        }
        let keys = self.keys(lease.tree, tokens).len() / self.width(lease.tree);
        let (needed, given) = ((keys - lease.len_tokens) / self.block_size, reservation.blocks.len());
        (needed != given).then_some(InsertErrorKind::BlockCount { needed, given })
    }
}
