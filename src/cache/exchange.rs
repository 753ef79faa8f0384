//! Exchanging the policy at run time.

use super::evictor::{FEW_SLICES, SLICE};
use super::prefix_cache::PrefixCache;
use crate::policy::PolicyKind;

impl PrefixCache {
    /// Exchanges the policy without a pause: evictions go by the old policy until the order of the new one is complete.
    ///
    /// Waits its turn if another thread is evicting, and does the first slice. If there were never more than 256
    /// candidates (idle ends of runs), it does all slices, and the exchange is complete when this returns.
    /// Otherwise the new order is built in slices of a fraction of a millisecond, by the background evictor, or by
    /// [`run_once`](Self::run_once) and now and then by sessions; [`settle`](Self::settle) completes it. The
    /// complete order is exactly that of a cache that had the policy from the start. Calling this again before
    /// then gives up the exchange and begins another.
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
        let mut more = false;
        for slice in 0..FEW_SLICES {
            let few;
            (more, few) = self.inner.in_turn(|evictor, resources| {
                if slice == 0 {
                    evictor.begin_exchange(policy);
                }
                (evictor.advance_exchange(SLICE, resources), evictor.ranking.slots().len() <= FEW_SLICES * SLICE)
            });
            if !(more && few) {
                break;
            }
        }
        if let Some(background) = self.inner.background.get().filter(|_| more) {
            background.changes_pending();
        }
    }

    /// The policy that evictions go by now: after [`set_policy`](Self::set_policy) still the old one, until the exchange
    /// is complete. Never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PolicyKind, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).build()?;
    /// assert_eq!(cache.policy(), PolicyKind::Lru);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn policy(&self) -> PolicyKind {
        self.inner.gauges.policy()
    }
}
