//! Exchanging the policy at run time.

use super::PrefixCache;
use super::evictor::SLICE;
use crate::policy::PolicyKind;

impl PrefixCache {
    /// Puts another policy in force, without a pause: eviction goes on under the present one until the order of the new
    /// one is complete.
    ///
    /// Waits its turn if another thread is evicting, and does the first slice. The order is built in slices of a
    /// fraction of a millisecond, by the background evictor, or by [`run_once`](Self::run_once) and by sessions now and
    /// then; [`settle`](Self::settle) completes it. A cache that never had more than 256 candidates at once (idle ends
    /// of what was inserted) is done when this returns. Once complete the order is exactly that of a cache that had the
    /// policy from the start. Calling it again before gives the exchange up and begins another.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PolicyKind, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// cache.set_policy(PolicyKind::Lfu);
    /// cache.settle(); // complete now, whatever was cached
    /// assert_eq!(cache.policy(), PolicyKind::Lfu);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn set_policy(&self, policy: PolicyKind) {
        let more = self.inner.evicting(|evictor, resources| {
            evictor.begin_exchange(policy);
            evictor.advance_exchange(SLICE, resources)
        });
        if let Some(background) = self.inner.background.get().filter(|_| more) {
            background.changes_pending();
        }
    }

    /// The policy that evictions go by now: after [`set_policy`](Self::set_policy) the one before, until the exchange
    /// is complete. Waits its turn if another thread is evicting.
    pub fn policy(&self) -> PolicyKind {
        self.inner.evicting(|evictor, _| evictor.ranking.kind)
    }
}
