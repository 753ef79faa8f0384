//! Of which cache a handle is: for bindings, which ask before they call a verb that panics.

use super::lease::Lease;
use super::namespace::Namespace;
use super::prefix_cache::PrefixCache;
use super::reservation::Reservation;
use super::weak_lease::WeakLease;

impl Lease {
    /// Whether it is of this cache: verbs panic with a lease of another one.
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
        self.cache().is_of(&cache.inner)
    }
}

impl Reservation {
    /// Whether it is of this cache: verbs refuse a reservation of another one.
    pub fn is_of(&self, cache: &PrefixCache) -> bool {
        self.cache.is_of(&cache.inner)
    }
}

impl Namespace {
    /// Whether it is of this cache: verbs panic with a namespace of another one.
    ///
    /// # Examples
    ///
    /// ```
    /// # let build = || radixkv::PrefixCache::builder(2, 2).build();
    /// let (cache, other) = (build()?, build()?);
    /// let tenant = cache.namespace(&["tenant-7"]);
    /// assert!(tenant.is_of(&cache) && !tenant.is_of(&other));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn is_of(&self, cache: &PrefixCache) -> bool {
        cache.inner.namespaces.has_made(self)
    }
}

impl WeakLease {
    /// Whether it is of this cache: [`upgrade`](crate::Session::upgrade) panics with one of another.
    pub fn is_of(&self, cache: &PrefixCache) -> bool {
        cache.inner.namespaces.is_family(self.family())
    }
}
