//! The public methods of `Reservation`, in the order in which a reader needs them.

use crate::block::BlockId;
use crate::cache::blocks::fork::{self, PendingCopy};
use crate::cache::blocks::reservation::Reservation;
use crate::cache::blocks::shared_blocks::is_alone;
use crate::cache::prefix_cache::PrefixCache;

impl Reservation {
    /// The blocks, in the order in which an insert takes them.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let reservation = cache.session().reserve(2)?;
    /// let mut block_table: Vec<u32> = Vec::new();
    /// block_table.extend(reservation.blocks()); // what the engine fills
    /// assert_eq!(block_table.len(), 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it holds no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Moves the first `n` blocks into a new reservation, for a prompt that is inserted in chunks.
    ///
    /// # Panics
    ///
    /// If it holds fewer than `n` blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let prompt = [1, 2, 3, 4];
    /// let mut blocks = session.reserve(2)?;
    /// let miss = session.match_prefix(&space, &prompt);
    /// // The first chunk is computed and published, then the rest.
    /// let chunk = session.insert(miss.lease(), &prompt[..2], blocks.split(1))?;
    /// let whole = session.insert(&chunk.lease, &prompt, blocks)?;
    /// assert_eq!(whole.lease.len_tokens(), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the part gives its blocks back"]
    pub fn split(&mut self, n: usize) -> Self {
        let rest = self.blocks.split_off(n);
        let shared = self.shared.split_off(n);
        let (blocks, shared) = (std::mem::replace(&mut self.blocks, rest), std::mem::replace(&mut self.shared, shared));
        let charge = self.charge.split(n - shared.counted());
        Self { blocks, shared, charge, cache: self.cache.clone() }
    }

    /// Appends the blocks of `other`, for a sequence that grows.
    ///
    /// # Panics
    ///
    /// If `other` belongs to another cache, or different namespaces pay for the two
    /// ([`BlockRequest::paid_by`](crate::BlockRequest::paid_by)).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let mut blocks = session.reserve(2)?;
    /// blocks.append(session.reserve(1)?); // for the next tokens of the sequence
    /// assert_eq!(blocks.len(), 3);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn append(&mut self, mut other: Self) {
        // Nothing has moved if it panics: `self` is unchanged, and `other` gives its blocks back.
        assert!(self.is_same_cache(&other), "the reservation belongs to another cache");
        assert!(self.has_payer_of(&other), "different namespaces pay for the two reservations");
        self.shared.append(self.blocks.len(), std::mem::take(&mut other.shared));
        self.charge.append(std::mem::take(&mut other.charge));
        self.blocks.append(&mut other.blocks);
    }

    /// Whether the same namespace pays for both reservations, so that [`append`](Self::append) can
    /// join them.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::BlockRequest;
    ///
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let session = cache.session();
    /// let [one, two] = ["one", "two"].map(|name| cache.namespace(&[name]));
    /// let blocks = session.reserve(BlockRequest::new(2).paid_by(&one))?;
    /// let others = session.reserve(BlockRequest::new(1).paid_by(&two))?;
    /// assert!(!blocks.has_payer_of(&others));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_payer_of(&self, other: &Self) -> bool {
        self.charge.goes_with(&other.charge)
    }

    /// Whether this cache owns the reservation; using another cache's is
    /// [misuse](PrefixCache#misuse).
    pub fn is_of(&self, cache: &PrefixCache) -> bool {
        self.cache.is_of(&cache.inner)
    }

    /// Returns the blocks to the engine at once, without
    /// [`ExternalPool::take_evicted`](crate::ExternalPool::take_evicted): for the duplicates of an
    /// insert.
    ///
    /// Blocks that a fork also holds are not returned: the fork keeps them.
    ///
    /// # Panics
    ///
    /// If the cache owns its pool.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(4, 8).external().build()?;
    /// let adopted = cache.external().expect("built as external").adopt(&[5, 2])?;
    /// assert_eq!(adopted.into_blocks(), [5, 2]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_blocks(mut self) -> Vec<BlockId> {
        assert!(self.cache.returned.is_some(), "the cache owns its pool: only an external pool gets blocks back");
        self.shared.keep_alone(&mut self.blocks, &mut self.charge);
        let blocks = std::mem::take(&mut self.blocks);
        self.cache.pool.give_back(&blocks);
        blocks
    }
}

/// # Forks
impl Reservation {
    /// Creates a second reservation of the same blocks, for a sequence that continues in several
    /// ways.
    ///
    /// A block is given back when the last reservation that holds it is dropped. While several hold
    /// it, none of them may write to it or insert it: see [`make_unique`](Self::make_unique). The
    /// prefix that is already cached needs no fork: clone its [`Lease`](crate::Lease). Allocates a
    /// reference count for each block that has none yet.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let session = cache.session();
    /// // Two full blocks and one that is being filled; a second beam goes on from there.
    /// let mut one = session.reserve(3)?;
    /// let mut two = one.fork();
    /// assert_eq!(cache.stats().reserved_blocks, 3);
    ///
    /// // Before the second one writes to the last block, it takes a copy.
    /// let mut fresh = session.reserve(1)?;
    /// if let Some(copy) = two.make_unique(2, &mut fresh) {
    ///     // ... copy `copy.source()` to `copy.destination()` ...
    ///     assert_eq!((copy.source(), copy.destination()), (one.blocks()[2], two.blocks()[2]));
    /// }
    /// // The first one has the last block alone now.
    /// assert!(one.is_shared(1) && !one.is_shared(2));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the fork gives its blocks back"]
    pub fn fork(&mut self) -> Self {
        fork::fork(self)
    }

    /// Whether a fork also holds block `i`. If not, this reservation may write to it.
    ///
    /// # Panics
    ///
    /// If it has no more than `i` blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let mut one = session.reserve(1)?;
    /// let two = one.fork();
    /// assert!(one.is_shared(0));
    /// drop(two);
    /// assert!(!one.is_shared(0)); // it may be written to
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_shared(&mut self, i: usize) -> bool {
        assert!(i < self.len(), "block index {i} is out of range: the reservation has {} blocks", self.len());
        let charge = &mut self.charge;
        self.shared.0.get_mut(i).is_some_and(|share| !is_alone(share, charge))
    }

    /// If a fork also holds block `i`, replaces it with the last block of `fresh` and returns the
    /// copy to make; otherwise returns `None`.
    ///
    /// # Panics
    ///
    /// If it has no more than `i` blocks; if the block is shared and `fresh` belongs to another
    /// cache, is empty, or ends with a block that is shared itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 4).build()?;
    /// # let session = cache.session();
    /// let mut one = session.reserve(1)?;
    /// let mut two = one.fork();
    /// let mut fresh = session.reserve(1)?;
    /// let copy = two.make_unique(0, &mut fresh).expect("shared with `one`");
    /// assert_eq!((copy.source(), copy.destination()), (one.blocks()[0], two.blocks()[0]));
    /// assert!(fresh.is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn make_unique(&mut self, i: usize, fresh: &mut Self) -> Option<PendingCopy> {
        if !self.is_shared(i) {
            return None;
        }
        assert!(self.is_same_cache(fresh), "the block to copy into belongs to another cache");
        let last = fresh.len().checked_sub(1).expect("no block to copy into: reserve one");
        assert!(!fresh.is_shared(last), "a fork also holds the block to copy into");
        self.replace_shared(i, last, fresh)
    }
}
