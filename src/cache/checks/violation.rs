//! `Violation`: the error of a failed validation.

use std::fmt;

use super::diagnostics::BrokenInvariant;

/// A broken invariant of a cache, found by [`PrefixCache::validate`](crate::PrefixCache::validate):
/// a bug of this crate, or memory that other code overwrote.
///
/// Report its message, and build a new cache: no method repairs one. The feature `diagnostics` adds
/// the invariant with its place and numbers.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(16, 64).build()?;
/// if let Err(violation) = cache.validate() {
///     eprintln!("{violation}");
/// }
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub(in crate::cache) BrokenInvariant);

impl Violation {
    /// The invariant, with its place and numbers.
    #[cfg(feature = "diagnostics")]
    pub fn details(&self) -> BrokenInvariant {
        self.0
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Violation {}
