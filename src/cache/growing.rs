//! More blocks while the cache is in use.

use std::fmt;
use std::ops::Range;

use super::prefix_cache::PrefixCache;
use crate::block::BlockId;

/// The cache was not built to have so many blocks. Nothing has changed.
///
/// # Examples
///
/// ```
/// use radixkv::{GrowError, PrefixCache};
///
/// let cache = PrefixCache::builder(16, 64).growable_to(128).build()?;
/// let refused = cache.grow(65).unwrap_err();
/// assert_eq!(refused.to_string(), "64 blocks cannot grow by 65: the cache was built for at most 128");
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrowError {
    /// Blocks asked for.
    pub requested: usize,
    /// Blocks of the cache.
    pub capacity: usize,
    /// The most that it was built for ([`Builder::growable_to`](crate::Builder::growable_to)).
    pub limit: usize,
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, capacity, limit } = self;
        write!(f, "{capacity} blocks cannot grow by {requested}: the cache was built for at most {limit}")
    }
}

impl std::error::Error for GrowError {}

impl PrefixCache {
    /// Adds `blocks` blocks, free at once, and returns their ids, which follow those that there are: for an engine that gets
    /// more memory while it runs, a segment at a time.
    ///
    /// What was sized by the capacity before stays so: make a `WaitingQueue` of the scheduler after the first growth, because it
    /// takes no request longer than the cache was then.
    ///
    /// With an [external pool](crate::Builder::external) the engine has the new blocks, and may pass them to the cache from now
    /// on. Wakes those that wait for blocks. Lock-free but for the waking; time linear in `blocks`.
    ///
    /// # Errors
    ///
    /// [`GrowError`] if there would be more than the cache was built for.
    ///
    /// # Examples
    ///
    /// ```
    /// let cache = radixkv::PrefixCache::builder(16, 64).growable_to(256).build()?;
    /// let session = cache.session();
    /// assert!(session.reserve(100).is_err());
    /// assert_eq!(cache.grow(64)?, 64..128);
    /// assert!(session.reserve(100).is_ok());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&self, blocks: usize) -> Result<Range<BlockId>, GrowError> {
        let pool = &self.inner.pool;
        let Some(added) = pool.grow(blocks) else {
            return Err(GrowError { requested: blocks, capacity: pool.capacity(), limit: pool.limit() });
        };
        self.inner.ring();
        Ok(added)
    }
}
