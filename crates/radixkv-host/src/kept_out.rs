//! Namespaces of which nothing may be in a tier.

use radixkv::NamespaceName;

use crate::tier::HostTier;

/// While it lives, nothing of a namespace is in a tier; made by [`HostTier::keep_out`].
///
/// For tenants whose data must not be stored, and around a clear: keep the namespace out, clear it in each cache over the tier,
/// then drop this. What was evicted from a cache before does not come in afterwards either.
#[derive(Debug)]
#[must_use = "dropping it lets the namespace in again"]
pub struct KeptOut {
    tier: HostTier,
    namespace: NamespaceName,
}

impl HostTier {
    /// Removes what the tier has of a namespace, and lets nothing of it in until the result is dropped.
    ///
    /// Blocks that are being read stay in their place until that is over; no lookup finds them.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let tier = radixkv_host::HostTier::builder(2, 8).build()?;
    /// let tenant = cache.namespace(&["tenant-7"]);
    /// // Other weights: what was computed before is of no use.
    /// let kept_out = tier.keep_out(&tenant.name());
    /// cache.clear_namespace(&tenant);
    /// drop(kept_out);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_out(&self, namespace: &NamespaceName) -> KeptOut {
        let mut state = self.inner.lock();
        state.eras.keep_out(namespace);
        state.clear(namespace);
        drop(state);
        KeptOut { tier: self.clone(), namespace: namespace.clone() }
    }
}

impl Drop for KeptOut {
    fn drop(&mut self) {
        self.tier.inner.lock().eras.let_in(&self.namespace);
    }
}
