//! Policies: which idle prefix goes first.
//!
//! A policy only chooses: the evictor files candidates with their standing, removes them when they are leased, asks for the
//! next victim and trims it. So a policy is an ordinary single-threaded structure.

mod candidate;
mod order;
mod ranked;
mod table;

use std::fmt;
use std::str::FromStr;

pub(crate) use candidate::{CandidateEntry, CandidateId, Policy, QuotaGroup, Standing};
use ranked::RankedCandidates;
pub(crate) use table::Table;

/// The built-in policies. Of candidates with equal ranks the one that was inserted first goes first.
///
/// # Examples
///
/// ```
/// use radixkv::{PolicyKind, PrefixCache};
///
/// let policy: PolicyKind = "slru".parse()?;
/// assert_eq!(policy, PolicyKind::Slru);
/// let cache = PrefixCache::builder(16, 1024).policy(policy).build()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PolicyKind {
    /// Least recently used first.
    #[default]
    Lru,
    /// Least often used first, the least recent of equals.
    Lfu,
    /// First inserted first.
    Fifo,
    /// Most recently used first.
    Mru,
    /// Last inserted first.
    Filo,
    /// Prefixes used once before prefixes used again, the least recent first.
    Slru,
    /// The deepest first: the run with the most runs above it; of equals the least recent.
    Level,
    /// Lowest [`Priority`](crate::Priority) first, the least recent of equals.
    Priority,
}

impl PolicyKind {
    /// Every built-in policy.
    pub const ALL: &[Self] =
        &[Self::Lru, Self::Lfu, Self::Fifo, Self::Mru, Self::Filo, Self::Slru, Self::Level, Self::Priority];

    /// The name that `FromStr` reads and `Display` writes: `"lru"`, `"lfu"` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Fifo => "fifo",
            Self::Mru => "mru",
            Self::Filo => "filo",
            Self::Slru => "slru",
            Self::Level => "level",
            Self::Priority => "priority",
        }
    }

    /// A fresh structure for this policy.
    pub(crate) fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Lru => Box::new(RankedCandidates::by(|s| (s.last, 0))),
            Self::Lfu => Box::new(RankedCandidates::by(|s| (s.hits, s.last))),
            Self::Fifo => Box::new(RankedCandidates::by(|s| (s.born, 0))),
            Self::Mru => Box::new(RankedCandidates::by(|s| (!s.last, 0))),
            Self::Filo => Box::new(RankedCandidates::by(|s| (!s.born, 0))),
            Self::Slru => Box::new(RankedCandidates::by(|s| (u64::from(s.hits >= 2), s.last))),
            Self::Level => Box::new(RankedCandidates::by(|s| (u64::from(!s.level), s.last))),
            Self::Priority => Box::new(RankedCandidates::by(|s| (u64::from(s.priority), s.last))),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no policy's; its message lists the known names.
///
/// # Examples
///
/// ```
/// use radixkv::PolicyKind;
///
/// let error = "least-recent".parse::<PolicyKind>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown policy 'least-recent', known are lru lfu fifo mru filo slru level priority");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy {
    name: Box<str>,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown policy '{}', known are", self.name)?;
        PolicyKind::ALL.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.iter().copied().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}
