//! Eviction policies: the order in which idle prefixes are evicted. Only the evictor calls them,
//! under its lock.
//!
//! Each built-in policy is a variant of [`PolicyKind`], whose `build` has the key by which it ranks
//! a candidate's [`CandidateStats`]. The order of all candidates by that key is [`Policy`], the
//! same structure for every policy.
//!
//! A policy only decides the order. The evictor files candidates with their stats, removes them
//! when they are leased, asks for the next victim and trims it. So a policy is an ordinary
//! single-threaded structure.

mod candidate;
mod chain;
mod order;
mod ranked;
mod stack;
mod table;

use std::fmt;
use std::str::FromStr;

pub(crate) use candidate::{CandidateEntry, CandidateId, CandidateStats, GroupTable, QuotaGroup};
pub(crate) use order::CandidateTable;
pub(crate) use ranked::Policy;
use ranked::RankBy;
pub(crate) use stack::Stack;
pub(crate) use table::Table;

/// The built-in eviction policies. Among candidates with equal ranks the one inserted first is
/// evicted first.
///
/// A cache may change its policy while it is in use ([`set_policy`](crate::Settings::set_policy)).
///
/// # Examples
///
/// ```
/// use radixkv::{PolicyKind, PrefixCache};
///
/// let policy: PolicyKind = "slru".parse()?;
/// assert_eq!(policy, PolicyKind::Slru);
/// assert_eq!("slru:3".parse(), Ok(PolicyKind::SlruFrom(3)));
/// let cache = PrefixCache::builder(16, 1024).policy(policy).build()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PolicyKind {
    /// Least recently used first.
    #[default]
    Lru,
    /// Least often used first; among equals, the least recently used.
    Lfu,
    /// First inserted first.
    Fifo,
    /// Most recently used first.
    Mru,
    /// Last inserted first.
    Filo,
    /// Prefixes used once before prefixes used again; within each group, the least recently used
    /// first.
    Slru,
    /// Like [`Slru`](Self::Slru), but prefixes used at least this many times are evicted last,
    /// instead of those used twice or more.
    SlruFrom(u32),
    /// Deepest first: the run with the most runs above it; among equals, the least recently used.
    Level,
    /// Lowest [`Priority`](crate::Priority) first; among equals, the least recently used.
    Priority,
}

impl PolicyKind {
    /// Every built-in policy. [`SlruFrom`](Self::SlruFrom) is listed only with its usual threshold,
    /// as [`Slru`](Self::Slru).
    pub const ALL: &[Self] =
        &[Self::Lru, Self::Lfu, Self::Fifo, Self::Mru, Self::Filo, Self::Slru, Self::Level, Self::Priority];

    /// The name that `FromStr` reads and `Display` writes: `"lru"`, `"lfu"` and so on. Both add the
    /// threshold of [`SlruFrom`](Self::SlruFrom): `"slru:3"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Fifo => "fifo",
            Self::Mru => "mru",
            Self::Filo => "filo",
            Self::Slru | Self::SlruFrom(_) => "slru",
            Self::Level => "level",
            Self::Priority => "priority",
        }
    }

    /// Whether a use never moves an idle prefix closer to eviction. If so, its place in the order
    /// need not be corrected before its turn.
    #[inline]
    pub(crate) fn keys_rise(self) -> bool {
        !matches!(self, Self::Mru | Self::Filo)
    }

    /// As [`keys_rise`](Self::keys_rise), for a leased prefix, whose use may be undone.
    #[inline]
    pub(crate) fn keys_rise_while_leased(self) -> bool {
        matches!(self, Self::Lru | Self::Fifo | Self::Level | Self::Priority)
    }

    /// Makes an empty structure for this policy.
    pub(crate) fn build(self) -> Policy {
        let (rank_by, uses): (RankBy, u32) = match self {
            Self::Lru => (|s, _| (s.last, 0), 0),
            Self::Lfu => (|s, _| (s.hits, s.last), 0),
            Self::Fifo => (|s, _| (s.born, 0), 0),
            Self::Mru => (|s, _| (!s.last, 0), 0),
            Self::Filo => (|s, _| (!s.born, 0), 0),
            Self::Slru => return Self::SlruFrom(2).build(),
            Self::SlruFrom(uses) => (|s, uses| (u64::from(s.hits >= u64::from(uses)), s.last), uses),
            Self::Level => (|s, _| (u64::from(!s.level), s.last), 0),
            Self::Priority => (|s, _| (ascending(s.priority), s.last), 0),
        };
        Policy::by(rank_by, uses)
    }
}

impl PolicyKind {
    /// The policy as a number.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::SlruFrom(uses) => WITH_USES | u64::from(uses),
            _ => Self::ALL.iter().position(|kind| *kind == self).expect("all others are listed") as u64,
        }
    }

    /// The policy with this number.
    pub(crate) fn of_code(code: u64) -> Self {
        if code & WITH_USES != 0 { Self::SlruFrom(code as u32) } else { Self::ALL[code as usize] }
    }
}

/// Flag in the number of a policy: the lower half is a number of uses.
const WITH_USES: u64 = 1 << 32;

/// Maps signed to unsigned numbers and keeps their order.
fn ascending(level: i64) -> u64 {
    level as u64 ^ 1 << 63
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlruFrom(uses) => f.pad(&format!("slru:{uses}")),
            _ => f.pad(self.name()),
        }
    }
}

/// An unknown policy name; its message lists the known names.
///
/// # Examples
///
/// ```
/// use radixkv::PolicyKind;
///
/// let error = "least-recent".parse::<PolicyKind>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown policy 'least-recent', known are lru lfu fifo mru filo slru slru:USES level priority");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy {
    name: Box<str>,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown policy '{}', known are", self.name)?;
        PolicyKind::ALL.iter().try_for_each(|kind| {
            let with_uses = if *kind == PolicyKind::Slru { " slru:USES" } else { "" };
            write!(f, " {kind}{with_uses}")
        })
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let with_uses = name.strip_prefix("slru:").and_then(|uses| uses.parse().ok()).map(Self::SlruFrom);
        let found = with_uses.or_else(|| Self::ALL.iter().copied().find(|kind| kind.name() == name));
        found.ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}
