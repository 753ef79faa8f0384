//! The public methods of `Lease` and `PrefixMatch`, in the order in which a reader needs them.

use crate::block::BlockId;
use crate::cache::leases::lease::{Lease, PrefixMatch, TooManyLeases};
use crate::cache::leases::weak_lease::{self, WeakLease};
use crate::cache::prefix_cache::PrefixCache;
use crate::name::NamespaceName;
use crate::tree::lease::lease_again;

impl Lease {
    /// The number of tokens whose keys and values the lease protects: the tokens of whole blocks.
    pub fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// Creates a second lease on the same prefix. It does not count as another use. Lock-free.
    ///
    /// # Errors
    ///
    /// [`TooManyLeases`] if the prefix holds 2^28 leases already.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 2).build()?;
    /// let lease = cache.session().match_prefix(&cache.default_namespace(), &[]).into_lease();
    /// let again = lease.try_clone()?;
    /// assert_eq!(again.len_tokens(), lease.len_tokens());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_clone(&self) -> Result<Self, TooManyLeases> {
        let Some(held) = self.held() else {
            return Ok(Self::of_nothing(self.layout(&self.cache), self.cache.clone()));
        };
        let again = lease_again(held.point, self.cache.context(self.counted_on.stripe())).ok_or(TooManyLeases)?;
        Ok(Self::new(again, false, self.layout(&self.cache), self.cache.clone()))
    }

    /// The name of the namespace in which it was matched; `None` for the empty lease of a namespace
    /// that was removed or had too many leases.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 2).build()?;
    /// let tenant = cache.namespace("tenant-7");
    /// let lease = cache.session().match_prefix(&tenant, &[1, 2]).into_lease();
    /// assert_eq!(lease.namespace(), Some(&tenant.name()));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn namespace(&self) -> Option<&NamespaceName> {
        Some(&self.held()?.point.run().space().as_ref().account.name)
    }

    /// Creates a weak lease on the same prefix, which does not protect it. Lock-free; allocates the
    /// first time for a prefix.
    pub fn downgrade(&self) -> WeakLease {
        weak_lease::downgrade(self)
    }

    /// Whether blocks of this lease were [invalidated](PrefixCache::invalidate_blocks), so that its
    /// request must be computed again. Lock-free; time linear in the number of inserts that made
    /// the prefix.
    ///
    /// Also true for a lease from an insert that was running during the invalidation.
    pub fn is_invalidated(&self) -> bool {
        let participant = self.cache.participant();
        let guard = participant.pin();
        self.held().is_some_and(|held| held.point.is_invalidated(&guard))
    }

    /// Whether this cache owns the lease; using another cache's is [misuse](PrefixCache#misuse).
    ///
    /// # Examples
    ///
    /// ```
    /// # let build = || radixkv::PrefixCache::builder(2, 2).build();
    /// let (cache, other) = (build()?, build()?);
    /// let lease = cache.session().match_prefix(&cache.default_namespace(), &[]).into_lease();
    /// assert!(lease.is_of(&cache) && !lease.is_of(&other));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn is_of(&self, cache: &PrefixCache) -> bool {
        self.cache.is_of(&cache.inner)
    }
}

impl PrefixMatch {
    /// The number of tokens whose keys and values are cached: the tokens of whole blocks.
    pub fn len_tokens(&self) -> usize {
        self.lease.len_tokens()
    }

    /// The blocks of the prefix: the `i`-th holds the keys and values of tokens
    /// `i * block_size..(i + 1) * block_size`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let miss = session.match_prefix(&space, &[1, 2]);
    /// # drop(session.insert(miss.lease(), &[1, 2], session.reserve(1)?)?);
    /// let hit = session.match_prefix(&space, &[1, 2, 3]);
    /// let mut block_table = hit.blocks().to_vec();
    /// let blocks = session.reserve(1)?; // for token 3
    /// block_table.extend(blocks.blocks());
    /// assert_eq!(block_table.len(), 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// The lease that keeps the blocks in place.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let miss = session.match_prefix(&space, &[1, 2]);
    /// # drop(session.insert(miss.lease(), &[1, 2], session.reserve(1)?)?);
    /// let hit = session.match_prefix(&space, &[1, 2]);
    /// let second = hit.lease().try_clone()?; // for a second request with the same prefix
    /// assert_eq!(second.len_tokens(), 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns only the lease, and drops the list of blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let miss = session.match_prefix(&space, &[1, 2]);
    /// # drop(session.insert(miss.lease(), &[1, 2], session.reserve(1)?)?);
    /// let lease = session.match_prefix(&space, &[1, 2]).into_lease();
    /// assert_eq!(cache.evict(1), 0); // it protects the block
    /// drop(lease);
    /// assert_eq!(cache.evict(1), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}
