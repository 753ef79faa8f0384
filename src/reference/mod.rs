//! The contract of the cache as a simple, slow, single-threaded program, with which the real cache is compared.
//!
//! Every structure is the most literal one that states the contract. There is one thread, and one vertex for each cached
//! block, found under its parent by all the tokens of the block. A use updates every block of its path. Leases and
//! reservations have no destructors: [`Reference::release`] and [`Reference::abort`] give them back.
//!
//! # Examples
//!
//! ```
//! use radixkv::PolicyKind;
//! use radixkv::reference::Reference;
//!
//! let mut cache = Reference::new(2, 8, PolicyKind::Lru); // 8 blocks of 2 tokens
//! let miss = cache.match_prefix(&[], &[1, 2, 3]);
//! let blocks = cache.reserve(1)?;
//! let inserted = cache.insert(&miss.lease, &[1, 2, 3], blocks).expect("one block for two of three tokens");
//! assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (2, 1));
//! cache.release(miss.lease);
//! cache.release(inserted.lease);
//! assert_eq!(cache.stats().evictable_blocks, 1);
//! # Ok::<_, radixkv::ReserveError>(())
//! ```
//!
//! # Contract
//!
//! **Whole blocks.** A match is the longest cached path of whole blocks from the root of its namespace, compared token by
//! token. An insert drops the tokens at the end that fill no block, and says how many there were.
//!
//! **Bigrams.** In a namespace of bigrams ([`Reference::set_bigrams`]) the pairs of neighbouring tokens are compared: `n`
//! tokens are `n - 1` pairs, and a block is `block_size` pairs. All lengths count pairs, except in the error for a sequence
//! that is too short.
//!
//! **Statistics.** Each block has `last`, `hits` and `born` ([`Statistics`]). A request counts at most one hit on a block:
//!
//! | verb | blocks of the path that the request has not counted yet | blocks that it has counted |
//! |---|---|---|
//! | `match_prefix` | `hits += 1`, `last = now` | |
//! | `match_prefix_untouched`, `peek`, `match_partial` | nothing | |
//! | `resume`, the lease was counted | `hits += 1`, `last = now` beyond the lease | `last = now` up to the lease |
//! | `resume`, the lease was not counted | `hits += 1`, `last = now` on the whole path | |
//! | `insert` | new blocks: `hits = 1`, `last = born = now` | `last = now` on the rest of the path |
//!
//! `last` never goes back. A lease of a match, a resume or an insert was counted; a lease of `match_prefix_untouched` and a
//! clone were not. An insert counts no hit on blocks that were cached already, duplicates included; resuming from its
//! lease counts hits only beyond it. Releasing a lease takes no hit back.
//!
//! The real cache keeps statistics only at the deepest block of a use, and adds them to the parent when that block is
//! evicted (`last = max`, `hits += hits - 1`). The result is the same: the rank of a block matters only when no cached
//! block follows it, and by then it has received the statistics of all blocks that followed it. When a resume goes beyond
//! a counted lease, it does `hits -= 1` at the old end and `hits += 1` at the new one.
//!
//! **Levels.** The new blocks of an insert are one *piece*. Its level is one more than the level of the token before its
//! first token, which is the last token that the sequence shares with a cached one, and may lie inside a block.
//!
//! **BlockMarks.** With a lease, a caller may give every block up to the lease a priority for some time, demote them, or retain
//! them ([`Reference::prioritize`], [`Reference::demote`], [`Reference::retain`]). A block keeps two of its priorities:
//! the highest, and the one that lasts longest. Its priority is the highest of these that has not expired, or 35. A
//! demoted block goes before all that are not demoted, until it is used or retained.
//!
//! **Partial hits.** Of the blocks just beyond a lease, a partial hit is one whose first tokens agree longest with a
//! sequence. If several agree equally long, any of them may be leased.
//!
//! **Protection.** A block is *protected* while there is a lease on it or on a descendant, and *evictable* if it is cached
//! and not protected. An empty match has a lease too, on the root; it protects nothing. Retaining is a lease of the
//! cache's own, one for each path, until the latest deadline asked for; clearing or dropping the namespace ends it.
//!
//! **Eviction** takes the block of smallest rank among those without child and lease, again and again, until enough blocks
//! are free. The real cache trims a run from its end, with the same result: the blocks of a run share their statistics,
//! so after its last block the block before it has the smallest rank. Of equal ranks, the block that was inserted first
//! goes first; two blocks without children are never of one piece.
//!
//! **Quotas.** A namespace may have a limit on its cached blocks, and a limit on the blocks that its leases protect or its
//! reservations hold, over all its trees. While a namespace is beyond the first limit, its own block of smallest rank goes
//! before all others; of several such namespaces the one that was limited first goes first. Inserting a new block into a
//! namespace with that limit, and `settle`, evict what is beyond any limit; a lookup evicts nothing.
//!
//! **Age.** With [`Reference::time_to_idle`], `settle` first drops blocks that were not used for that time.
//!
//! **Reservations** take all their blocks or none, and evict exactly the missing ones. A refusal evicts nothing.
//!
//! **Clear and drop** detach trees: later lookups start from an empty tree, an insert from a lease of a detached tree is
//! refused, and detached blocks are free as soon as no lease protects them. Resuming such a lease still finds the blocks
//! that other leases protect beyond it.

mod marks;
mod outcome;
mod policy;
mod store;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use marks::BlockMarks;
pub use outcome::{InsertError, Inserted, Lease, PrefixMatch, Reservation, Stats};
pub use policy::Statistics;
pub use store::{BlockId, Violation};
use store::{NamespaceId, Place, Store, TreeId};

use crate::cache::{InsertErrorKind, ReserveError};
use crate::key::Token;
use crate::policy::PolicyKind;

/// The cache as a literal program; see the [module](self) for its contract and an example.
///
/// # Examples
///
/// ```
/// use radixkv::reference::Reference;
/// use radixkv::{PolicyKind, PrefixCache};
///
/// // The same verbs on both give the same result.
/// let cache = PrefixCache::builder(2, 8).build()?;
/// let mut reference = Reference::new(2, 8, PolicyKind::Lru);
/// let hit = cache.session().match_prefix(&cache.default_namespace(), &[1, 2, 3]);
/// let expected = reference.match_prefix(&[], &[1, 2, 3]);
/// assert_eq!(hit.len_tokens(), expected.lease.len_tokens());
/// reference.release(expected.lease); // the reference's leases have no destructor
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Reference {
    block_size: usize,
    store: Store,
    namespaces: BTreeMap<Vec<String>, TreeId>,
    /// The names of bigram namespaces, and their trees.
    bigrams: BTreeSet<Vec<String>>,
    bigram_trees: BTreeSet<TreeId>,
    now: u64,
    /// Ids of namespaces by name, their limits on pinned blocks, and the number of ids given so far.
    namespace_ids: BTreeMap<Vec<String>, NamespaceId>,
    pinned_limits: HashMap<NamespaceId, usize>,
    next_namespace: NamespaceId,
    time_to_idle: Option<u64>,
}

impl Reference {
    /// An empty cache of `capacity` blocks of `block_size` tokens.
    ///
    /// # Panics
    ///
    /// Panics if one of them is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PolicyKind;
    /// # use radixkv::reference::Reference;
    /// let cache = Reference::new(2, 8, PolicyKind::Lfu); // 8 blocks of 2 tokens
    /// assert_eq!(cache.stats().free_blocks, 8);
    /// ```
    pub fn new(block_size: usize, capacity: usize, policy: PolicyKind) -> Self {
        assert!(block_size > 0 && capacity > 0);
        Self {
            block_size,
            store: Store::new(policy, capacity),
            namespaces: BTreeMap::new(),
            bigrams: BTreeSet::new(),
            bigram_trees: BTreeSet::new(),
            now: 0,
            namespace_ids: BTreeMap::new(),
            pinned_limits: HashMap::new(),
            next_namespace: 0,
            time_to_idle: None,
        }
    }

    /// Makes a namespace that was not used yet compare pairs of tokens.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// cache.set_bigrams(&["draft"]);
    /// let miss = cache.match_prefix(&["draft"], &[1, 2, 3]);
    /// let blocks = cache.reserve(1)?; // two pairs fill a block of two
    /// let inserted = cache.insert(&miss.lease, &[1, 2, 3], blocks).expect("one block");
    /// assert_eq!(inserted.lease.len_tokens(), 2);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn set_bigrams(&mut self, namespace: &[&str]) {
        self.bigrams.insert(namespace.iter().map(|part| part.to_string()).collect());
    }

    /// Sets the time: verbs stamp with it from now on, and what has ended by then ends.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2, 3, 4]);
    /// assert!(cache.retain(&hit.lease, 10));
    /// cache.release(hit.lease);
    /// assert_eq!(cache.evict(2), 0);
    /// cache.set_time(10); // the retention ends
    /// assert_eq!(cache.evict(2), 2);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
        self.store.set_time(now);
    }

    /// Makes [`settle`](Self::settle) drop blocks that were not used for `duration`, in units of the clock.
    pub fn time_to_idle(mut self, duration: u64) -> Self {
        self.time_to_idle = Some(duration);
        self
    }

    /// Evicts in the order of another policy from now on.
    pub fn set_policy(&mut self, policy: PolicyKind) {
        self.store.set_policy(policy);
    }

    /// Limits the blocks that a namespace may have cached, and the blocks that it may have in leases and reservations.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// cache.set_quota(&["tenant-7"], Some(4), Some(2)); // 4 blocks cached, 2 in leases and reservations
    /// assert!(cache.reserve_in(&["tenant-7"], 3).is_err());
    /// ```
    pub fn set_quota(&mut self, namespace: &[&str], cached: Option<usize>, pinned: Option<usize>) {
        let owner = self.namespace_id(namespace);
        match self.store.limits.iter_mut().find(|(limited, _)| *limited == owner) {
            Some((_, limit)) => *limit = cached,
            None if cached.is_some() => self.store.limits.push((owner, cached)),
            None => {}
        }
        self.pinned_limits.remove(&owner);
        self.pinned_limits.extend(pinned.map(|limit| (owner, limit)));
    }

    /// Drops blocks that are too old, then evicts blocks beyond a limit.
    pub fn settle(&mut self) {
        if let Some(idle_since) = self.time_to_idle.and_then(|duration| self.now.checked_sub(duration)) {
            self.store.age(idle_since);
        }
        self.store.keep_to_limits();
    }

    /// Leases the longest cached prefix and counts a use of it.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2, 9]);
    /// assert_eq!((hit.lease.len_tokens(), hit.blocks.len()), (2, 1));
    /// cache.release(hit.lease);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn match_prefix(&mut self, namespace: &[&str], tokens: &[Token]) -> PrefixMatch {
        let lease = self.root_lease(namespace);
        self.resume(lease, tokens)
    }

    /// As [`match_prefix`](Self::match_prefix), without counting a use.
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

    /// Continues a match from its lease; the request's use moves along.
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

    /// The number of tokens in which the blocks beyond a lease agree longest with `tokens`, the whole sequence, and those
    /// blocks. `None` if no block agrees in `min_tokens`, or in one.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2, 3, 9]);
    /// let (agreeing, blocks) = cache.match_partial(&hit.lease, &[1, 2, 3, 9], 1).expect("token 3 agrees");
    /// assert_eq!((agreeing, blocks.len()), (1, 1));
    /// # cache.release(hit.lease);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
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

    /// Leases the path up to `block`, which lies just beyond `lease`, without counting a use.
    ///
    /// # Panics
    ///
    /// If it does not lie there.
    pub fn lease_block(&mut self, lease: &Lease, block: BlockId) -> Lease {
        assert!(self.store.blocks_below(lease.at).iter().any(|(_, below)| *below == block));
        let at = Place::After(block);
        self.store.lease(at);
        Lease { tree: lease.tree, at, len_tokens: lease.len_tokens + self.block_size, touched: false }
    }

    /// A second lease on the same path, not counted as a use.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2]);
    /// let second = cache.clone_lease(&hit.lease);
    /// cache.release(hit.lease);
    /// assert_eq!(cache.stats().protected_blocks, 1); // by the second one
    /// # cache.release(second);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn clone_lease(&mut self, lease: &Lease) -> Lease {
        self.store.lease(lease.at);
        Lease { touched: false, ..*lease }
    }

    /// Gives a lease back.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2, 3, 4]);
    /// assert_eq!(cache.evict(2), 0);
    /// cache.release(hit.lease);
    /// assert_eq!(cache.evict(2), 2);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn release(&mut self, lease: Lease) {
        self.store.release(lease.at);
    }

    /// Reserves `blocks` blocks or none, and evicts exactly as many as are missing.
    ///
    /// # Errors
    ///
    /// [`ReserveError::TooLarge`] for more than the capacity, [`ReserveError::Exhausted`] for more than is free or
    /// evictable.
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

    /// As [`reserve`](Self::reserve), charged to a namespace until the blocks are cached or given back.
    ///
    /// # Errors
    ///
    /// [`ReserveError::OverQuota`] beyond the namespace's limit; else as `reserve`.
    pub fn reserve_in(&mut self, namespace: &[&str], blocks: usize) -> Result<Reservation, ReserveError> {
        let (owner, requested) = (self.namespace_id(namespace), blocks);
        let pinned = self.store.pinned_by(owner);
        if let Some(&limit) = self.pinned_limits.get(&owner) {
            if requested <= self.store.capacity() && pinned + requested > limit {
                return Err(ReserveError::OverQuota { requested, pinned, limit });
            }
        }
        let reservation = self.reserve(blocks)?;
        self.store.charged.extend(reservation.blocks.iter().map(|block| (*block, owner)));
        Ok(reservation)
    }

    /// Gives a reservation back.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// let reservation = cache.reserve(3)?;
    /// cache.abort(reservation);
    /// assert_eq!(cache.stats().free_blocks, 8);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn abort(&mut self, reservation: Reservation) {
        for block in reservation.blocks {
            assert!(self.store.reserved.remove(&block), "a reservation of this cache");
            self.store.charged.remove(&block);
            self.store.free.insert(block);
        }
    }

    /// Caches the whole blocks of `tokens` beyond the lease; the i-th block of the reservation holds the i-th of them.
    ///
    /// `tokens` is the whole sequence and begins with the leased one.
    ///
    /// # Errors
    ///
    /// See [`InsertErrorKind`]; nothing has changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv::reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// let miss = cache.match_prefix(&[], &[1, 2, 3]);
    /// let blocks = cache.reserve(1)?;
    /// let inserted = cache.insert(&miss.lease, &[1, 2, 3], blocks).expect("one whole block");
    /// assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (2, 1));
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
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
            // The first block may share tokens with other blocks; all that follow are of one piece.
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
        let limited = self.store.limits.iter().any(|(owner, limit)| {
            limit.is_some() && known < reservation.blocks.len() && *owner == self.store.namespace_of(at)
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

    /// Gives every block up to the lease a priority, which expires after `ttl` if there is one.
    pub fn prioritize(&mut self, lease: &Lease, priority: u8, ttl: Option<u64>) {
        let expiry = ttl.map(|ttl| self.now.saturating_add(ttl));
        self.store.mark(lease.at, |marks| marks.prioritize(priority, expiry));
    }

    /// Demotes every block up to the lease: it goes before all others until it is used or retained.
    pub fn demote(&mut self, lease: &Lease) {
        self.store.mark(lease.at, BlockMarks::demote);
    }

    /// Protects every block up to the lease until `duration` has passed. False if the lease's tree was dropped.
    pub fn retain(&mut self, lease: &Lease, duration: u64) -> bool {
        if self.store.is_dropped(lease.tree) {
            return false;
        }
        let now = self.now;
        self.store.mark(lease.at, BlockMarks::keep);
        if lease.len_tokens > 0 {
            self.store.retain(lease.at, now.saturating_add(duration));
        }
        true
    }

    /// Ends the retention ([`retain`](Self::retain)) of exactly the lease's path.
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

    /// Empties one namespace, and ends its quota.
    pub fn drop_namespace(&mut self, namespace: &[&str]) {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        if let Some(tree) = self.namespaces.remove(&key) {
            self.store.fell(tree);
        }
        if let Some(owner) = self.namespace_ids.remove(&key) {
            self.store.limits.retain(|(limited, _)| *limited != owner);
            self.pinned_limits.remove(&owner);
        }
    }

    /// How many blocks are free, reserved, evictable and protected.
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

    /// Checks every invariant, in time linear in everything that is cached.
    ///
    /// # Errors
    ///
    /// The first invariant that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        self.store.validate()
    }

    fn namespace_id(&mut self, namespace: &[&str]) -> NamespaceId {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        *self.namespace_ids.entry(key).or_insert_with(|| {
            self.next_namespace += 1;
            self.next_namespace
        })
    }

    fn root_lease(&mut self, namespace: &[&str]) -> Lease {
        let owner = self.namespace_id(namespace);
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        let of_bigrams = self.bigrams.contains(&key);
        let store = &mut self.store;
        let tree = *self.namespaces.entry(key).or_insert_with(|| store.plant(owner));
        if of_bigrams {
            self.bigram_trees.insert(tree);
        }
        let at = Place::Root(tree);
        self.store.lease(at);
        Lease { tree, at, len_tokens: 0, touched: false }
    }

    /// Tokens in a key of `tree`: one, or two for bigrams.
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

    /// The number of tokens that a lease was matched by.
    fn matched_by(&self, lease: &Lease) -> usize {
        if lease.len_tokens == 0 { 0 } else { lease.len_tokens + self.width(lease.tree) - 1 }
    }

    /// The end of the longest cached continuation of `at` by `keys`, and its length in blocks.
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

    /// Moves a lease to the end of the longest cached prefix of `tokens`.
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
