//! `Violation`: the error of a failed validation.

use std::fmt;

use crate::key::Token;
use crate::reclaim::Ref;
use crate::tree::Run;

/// A broken invariant of a cache, found by [`PrefixCache::validate`](crate::PrefixCache::validate):
/// a bug of this crate, or memory that other code overwrote.
///
/// Its message says what does not hold, at which run or point, and with which numbers. Report it,
/// and build a new cache: no method repairs one.
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
pub struct Violation {
    /// What does not hold: one fixed sentence for each invariant.
    pub(in crate::cache) kind: &'static str,
    /// Where, and with which numbers; empty if `kind` says it all.
    details: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.details.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}", self.kind, self.details)
    }
}

impl std::error::Error for Violation {}

/// A run, or a point on it. No two child runs of a point begin with the same token, so start and
/// first token identify a run.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Place {
    /// Depth of the run's first token from the namespace's root.
    pub(in crate::cache) start: usize,
    /// The run's first token; 0 for the run of length 0 that carries a root.
    pub(in crate::cache) first: Token,
    /// The point's depth on the run, in tokens.
    pub(in crate::cache) depth: Option<u32>,
}

impl Place {
    pub(in crate::cache) fn of(run: Ref<'_, Run>) -> Self {
        Self { start: run.start(), first: run.first(), depth: None }
    }

    pub(in crate::cache) fn on(run: Ref<'_, Run>, depth: u32) -> Self {
        Self { depth: Some(depth), ..Self::of(run) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(depth) = self.depth {
            write!(f, "the point at depth {depth} of ")?;
        }
        write!(f, "the run that starts at {} with token {}", self.start, self.first)
    }
}

/// The violation of the invariant that `kind` names.
pub(in crate::cache) fn broken(kind: &'static str, details: impl fmt::Display) -> Violation {
    Violation { kind, details: details.to_string() }
}

/// `Ok` if the invariant holds, else its violation.
pub(in crate::cache) fn ensure(holds: bool, kind: &'static str, details: impl fmt::Display) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(broken(kind, details)) }
}

/// `Ok` if the number that the cache keeps is the one that validation found, else the violation.
pub(in crate::cache) fn ensure_equal<N: PartialEq + fmt::Display>(
    recorded: N,
    found: N,
    kind: &'static str,
) -> Result<(), Violation> {
    ensure(recorded == found, kind, format_args!("{recorded} recorded, {found} found"))
}
