#![doc = include_str!("../README.md")]
//! # Structure
//!
//! Every structure states the contract as literally as possible. Each cached block is one vertex,
//! whose key in its parent is all the tokens of the block. A use updates every block of its path.
//! Leases and reservations have no destructors: give them back with [`Reference::release`] and
//! [`Reference::abort`].
//!
//! # Contract
//!
//! **Whole blocks.** A match is the longest cached path of whole blocks from the root of its
//! namespace, compared token by token. An insert drops the last tokens if they do not fill a block,
//! and returns their number.
//!
//! **Bigrams.** A namespace of bigrams ([`Reference::set_bigrams`]) compares pairs of neighbouring
//! tokens: `n` tokens are `n - 1` pairs, and a block is `block_size` pairs. All lengths count
//! pairs; `dropped_tokens` is the number of tokens minus the number of cached pairs.
//!
//! **Statistics.** Each block has `last`, `hits` and `born` ([`Statistics`]). A request counts at
//! most one hit per block:
//!
//! | operation | blocks of the path without a hit of this request | blocks with one |
//! |---|---|---|
//! | `match_prefix` | `hits += 1`, `last = now` | |
//! | `match_prefix_untouched`, `peek`, `match_partial` | nothing | |
//! | `resume`, the lease was counted | `hits += 1`, `last = now` beyond the lease | `last = now` up to the lease |
//! | `resume`, the lease was not counted | `hits += 1`, `last = now` on the whole path | |
//! | `insert` | new blocks: `hits = 1`, `last = born = now` | `last = now` on the rest of the path |
//!
//! `last` never decreases. A lease from `match_prefix`, `resume` or `insert` was counted; other
//! leases (`match_prefix_untouched`, `lease_block`, a clone, an upgrade) were not. An insert counts
//! no hit on blocks that were already cached, duplicates included; resuming from its lease counts
//! hits only beyond it. Releasing a lease does not subtract a hit.
//!
//! The real cache keeps statistics only at the deepest block of a use, and adds them to the parent
//! when that block is evicted (`last = max`, `hits += hits - 1`). The result is the same: a block's
//! rank matters only when no cached block follows it, and by then it has received the statistics of
//! all blocks that did. When a resume extends a counted lease, the cache does `hits -= 1` at the
//! old end and `hits += 1` at the new one.
//!
//! **Levels.** The new blocks of an insert are one *piece*. Its level is one more than the level of
//! the last token that the sequence shares with a cached one, which may be inside a block.
//!
//! **Marks.** Through a lease, a caller may give every block up to the lease a temporary priority,
//! demote them, or retain them ([`Reference::prioritize`], [`Reference::demote`],
//! [`Reference::retain`]). A block keeps two of its priorities: the highest, and the one that lasts
//! longest. Its priority is the higher of these that has not expired, or 35. A demoted block is
//! evicted before all that are not demoted, until it is used, renewed or retained.
//!
//! **Partial hits.** A partial hit is the block just beyond a lease that shares the most first
//! tokens with a sequence. If several share equally many, any of them may be leased.
//!
//! **Protection.** A block is *protected* while it or a descendant is leased, and *evictable* if it
//! is cached and not protected. An empty match also has a lease, on the root, which protects
//! nothing. The cache itself holds a lease on each retained path until the latest requested
//! deadline; clearing or dropping the namespace, or invalidating the path, ends it.
//!
//! **Eviction** removes the block of smallest rank among those without child and lease, and repeats
//! this until enough blocks are free. The real cache trims a run from its end, with the same
//! result: the blocks of a run share their statistics, so after its last block the block before it
//! has the smallest rank. Among equal ranks, the block that was inserted first is evicted first;
//! two blocks without children never belong to one piece.
//!
//! **Quotas.** A namespace may have a limit on its cached blocks and a limit on its pinned blocks
//! (protected by leases, or reserved). Both count all its trees. While a namespace exceeds its
//! first limit, its blocks are evicted, by rank, before blocks of other namespaces; of several such
//! namespaces, the one that was limited first loses a block. Inserting a new block into a namespace
//! with this limit evicts the blocks beyond all limits, as does `settle`; a lookup evicts nothing.
//!
//! **Age.** With [`Reference::time_to_idle`], `settle` first drops blocks that were unused for that
//! time.
//!
//! **Reservations** get all their blocks or none, and evict exactly as many as are missing. A
//! refusal evicts nothing.
//!
//! **Clear and drop** detach trees: later lookups start from an empty tree, an insert from a lease
//! of a detached tree is refused, and detached blocks are freed as soon as no lease protects them.
//! Resuming such a lease still finds the blocks that other leases protect beyond it.
//!
//! **Invalidate** hides blocks and all their descendants: no lookup or resume finds them, an insert
//! from a lease on one is refused, and they are freed as soon as no lease protects them.

mod insert;
mod lookup;
mod marks;
mod outcome;
mod policy;
mod store;
mod upkeep;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use outcome::{InsertError, Inserted, Lease, PrefixMatch, Reservation, Stats, WeakLease};
pub use policy::Statistics;
pub use store::{BlockId, Violation};
use store::{NamespaceId, Store, TreeId};

use radixkv::{PolicyKind, Token};

/// A simple, single-threaded cache that follows the contract of the [module](self) literally.
///
/// # Examples
///
/// ```
/// use radixkv_reference::Reference;
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
    /// The ids of namespaces by name, their limits on pinned blocks, and the number of issued ids.
    namespace_ids: BTreeMap<Vec<String>, NamespaceId>,
    pinned_limits: HashMap<NamespaceId, usize>,
    next_namespace: NamespaceId,
    time_to_idle: Option<u64>,
    times_to_idle: BTreeMap<NamespaceId, u64>,
}

impl Reference {
    /// Creates an empty cache of `capacity` blocks of `block_size` tokens.
    ///
    /// # Panics
    ///
    /// Panics if one of them is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PolicyKind;
    /// # use radixkv_reference::Reference;
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
            times_to_idle: BTreeMap::new(),
        }
    }

    /// Makes a new namespace compare pairs of tokens.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
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

    /// Sets the time for later uses. Retentions and priorities whose deadline has come end.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
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

    /// Makes [`settle`](Self::settle) drop blocks that were unused for `duration`, in units of the
    /// clock.
    pub fn time_to_idle(mut self, duration: u64) -> Self {
        self.time_to_idle = Some(duration);
        self
    }

    fn namespace_id(&mut self, namespace: &[&str]) -> NamespaceId {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        *self.namespace_ids.entry(key).or_insert_with(|| {
            self.next_namespace += 1;
            self.next_namespace
        })
    }

    /// Number of tokens in a key of `tree`: one, or two for bigrams.
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

    /// The number of tokens that a lease was matched with.
    fn matched_by(&self, lease: &Lease) -> usize {
        if lease.len_tokens == 0 { 0 } else { lease.len_tokens + self.width(lease.tree) - 1 }
    }
}
