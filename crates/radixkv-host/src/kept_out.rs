//! Keeps namespaces out of a tier: none of their blocks are stored.

use radixkv::NamespaceName;

use crate::tier::HostTier;

/// Keeps one namespace, or all, out of a tier while it lives; made by [`HostTier::keep_out`] and
/// [`HostTier::keep_all_out`].
///
/// For tenants whose data must not be stored, and for clears: keep the namespace out, clear it in
/// each cache over the tier, then drop this value. Blocks that a cache evicted before the drop are
/// not stored afterwards either.
#[derive(Debug)]
#[must_use = "dropping it lets the namespace in again"]
pub struct KeptOut {
    tier: HostTier,
    /// `None`: all namespaces.
    namespace: Option<NamespaceName>,
}

impl HostTier {
    /// Removes all blocks of a namespace, and rejects new ones until the result is dropped.
    ///
    /// Blocks that are being read keep their memory until the reads end; no lookup finds them.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let tier = radixkv_host::HostTier::builder(2, 8).build()?;
    /// let tenant = cache.namespace(&["tenant-7"]);
    /// // Other weights: what was computed before is of no use.
    /// let kept_out = tier.keep_out(&tenant.name());
    /// tenant.clear();
    /// drop(kept_out);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_out(&self, namespace: &NamespaceName) -> KeptOut {
        let mut state = self.inner.lock();
        state.eras.keep_out(namespace);
        state.clear(namespace);
        drop(state);
        KeptOut { tier: self.clone(), namespace: Some(namespace.clone()) }
    }

    /// Removes all blocks, and rejects new ones until the result is dropped, as
    /// [`keep_out`](Self::keep_out) does for one namespace.
    ///
    /// For a clear of several caches over one tier. For one cache use
    /// [`TieredCache::clear`](crate::TieredCache::clear).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let tier = radixkv_host::HostTier::builder(2, 8).build()?;
    /// # let caches = [cache];
    /// let kept_out = tier.keep_all_out();
    /// caches.iter().for_each(radixkv::PrefixCache::clear);
    /// drop(kept_out);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_all_out(&self) -> KeptOut {
        let mut state = self.inner.lock();
        state.eras.keep_all_out();
        state.clear_all();
        drop(state);
        KeptOut { tier: self.clone(), namespace: None }
    }
}

impl Drop for KeptOut {
    fn drop(&mut self) {
        let mut state = self.tier.inner.lock();
        match &self.namespace {
            Some(namespace) => state.eras.let_in(namespace),
            None => state.eras.let_all_in(),
        }
        self.tier.inner.set_era(state.eras.now());
    }
}
