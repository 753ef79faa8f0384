//! The two halves of a use: recency and frequency, each without the other.

use super::lease::Lease;
use super::session::Session;

impl Session {
    /// Makes the prefix of a lease as recent as if it had been matched now, and counts no use.
    ///
    /// For a look that should keep a prefix from growing old and says nothing of how often it is wanted: a pin of a waiting
    /// request, a warm-up. Takes effect in the policy's order when the lease is released. Lock-free.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).clock(radixkv::Clock::Logical).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # for prompt in [[1, 2], [3, 4]] {
    /// #     drop(session.insert(session.match_prefix(&space, &[]).lease(), &prompt, session.reserve(1)?)?);
    /// #     cache.set_time(cache.stats().inserted_blocks);
    /// # }
    /// // Cached are 1 2, and later 3 4.
    /// session.renew(session.match_prefix_untouched(&space, &[1, 2]).lease());
    /// cache.evict(1);
    /// assert_eq!((session.peek(&space, &[1, 2]), session.peek(&space, &[3, 4])), (2, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew(&self, lease: &Lease) {
        let inner = self.inner();
        assert!(self.is_ours(lease.cache()), "the lease is of another cache");
        let now = inner.time.now();
        let participant = self.participant();
        let guard = participant.pin();
        if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
            inner.hot.statistics(&held).stamp(now);
            inner.undo_demotions(held.point, now, &guard);
        }
    }

    /// Counts a use of the prefix of a lease, and makes it no more recent.
    ///
    /// For a use that was served from elsewhere, or was counted late. Takes effect in the policy's order when the lease is
    /// released. Lock-free.
    ///
    /// # Panics
    ///
    /// If the lease is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).policy(radixkv::PolicyKind::Lfu).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # for prompt in [[1, 2], [3, 4]] {
    /// #     drop(session.insert(session.match_prefix(&space, &[]).lease(), &prompt, session.reserve(1)?)?);
    /// # }
    /// // Cached are 1 2 and 3 4, and the least often used goes first.
    /// session.count_use(session.match_prefix_untouched(&space, &[1, 2]).lease());
    /// cache.evict(1);
    /// assert_eq!((session.peek(&space, &[1, 2]), session.peek(&space, &[3, 4])), (2, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn count_use(&self, lease: &Lease) {
        assert!(self.is_ours(lease.cache()), "the lease is of another cache");
        if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
            self.inner().hot.statistics(&held).count();
        }
    }
}
