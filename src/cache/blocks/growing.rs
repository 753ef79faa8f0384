//! The error of growing a cache.

use std::fmt;

/// The error of growing a cache beyond the limit that it was built with. Nothing has changed.
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
    /// Blocks requested.
    pub requested: usize,
    /// Blocks of the cache.
    pub capacity: usize,
    /// The limit that the cache was built with
    /// ([`Builder::growable_to`](crate::Builder::growable_to)).
    pub limit: usize,
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, capacity, limit } = self;
        write!(f, "{capacity} blocks cannot grow by {requested}: the cache was built for at most {limit}")
    }
}

impl std::error::Error for GrowError {}
