//! Policies: which idle prefix goes first.
//!
//! A policy chooses, it does not do: the evictor files candidates with their standing, takes them out again when they
//! are leased, asks for the best victim and trims it. So a policy is an ordinary single-threaded structure.

mod ranked;
mod table;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use ranked::Ranked;
pub(crate) use table::Table;

/// Names a candidate between the evictor and its policy; dense, reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// The slot of this index, below `u32::MAX`.
    pub(crate) fn at(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("there are fewer candidates than block ids"))
    }

    /// The slot as an index into a table of candidates.
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Names the candidates of a namespace that has a quota; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Group(NonZeroU32);

impl Group {
    /// The group of this index, below `u32::MAX`.
    pub(crate) fn at(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("there are fewer namespaces than ids"))
    }
}

/// What stays the same for as long as a candidate is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Of equal standings the smaller one goes first; no two candidates have the same.
    pub(crate) serial: u64,
    /// Its namespace, if that has a quota; it may get one later.
    pub(crate) group: Option<Group>,
}

/// What is known of a candidate when it is filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// When it was last touched, in units of the cache's clock.
    pub(crate) last: u64,
    /// Requests that inserted or matched it.
    pub(crate) hits: u64,
    /// When its run was inserted.
    pub(crate) born: u64,
    /// How many runs lie above it, itself included.
    pub(crate) level: u32,
    /// Its priority at this moment.
    pub(crate) priority: u8,
    /// It was demoted and not used since: it goes before all that was not, whatever the policy.
    pub(crate) demoted: bool,
}

/// The order in which idle prefixes are evicted; those that were demoted go before all others.
///
/// A candidate is an idle end of a run: nothing hangs on it and nobody leases it. The evictor files a candidate once,
/// re-files it when its standing has changed, and removes it before it trims it or when it is leased.
pub(crate) trait Policy: fmt::Debug + Send {
    /// Files `slot`, or files it anew under its present standing.
    fn file(&mut self, slot: Slot, standing: Standing, entry: Entry);

    /// Takes `slot` out; it may not be filed.
    fn remove(&mut self, slot: Slot);

    /// The candidate to evict from next; it stays filed.
    fn choose(&mut self) -> Option<Slot>;

    /// The candidates that would be chosen after the next one.
    fn following(&self) -> [Option<Slot>; 6];

    /// Asks for what there is about `slot` ahead of its use.
    fn prefetch(&self, slot: Slot);

    /// The first of a group's candidates; it stays filed.
    fn choose_of(&self, group: Group) -> Option<Slot>;

    /// Candidates that are filed.
    fn len(&self) -> usize;

    /// Frees up to so many candidates' share of a structure that nothing is asked of any more; whether all is freed.
    fn discard(&mut self, candidates: usize) -> bool;

    /// Whether `slot` is filed under `standing`; for `validate`.
    fn is_filed(&self, slot: Slot, standing: Standing, entry: Entry) -> bool;

    /// Whether the structure's own invariants hold; for `validate`.
    fn is_sound(&self) -> bool;
}

/// The built-in policies. Of equals in every respect goes first what was inserted first.
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
    /// What was used once before what was used again, the least recent first.
    Slru,
    /// The deepest first: the run with the most runs above it, the least recent of equals.
    Level,
    /// Lowest [`Priority`](crate::Priority) first, the least recent of equals.
    Priority,
}

impl PolicyKind {
    /// Every built-in policy.
    pub const ALL: &[Self] =
        &[Self::Lru, Self::Lfu, Self::Fifo, Self::Mru, Self::Filo, Self::Slru, Self::Level, Self::Priority];

    /// The name that `FromStr` reads.
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
            Self::Lru => Box::new(Ranked::by(|s| (s.last, 0))),
            Self::Lfu => Box::new(Ranked::by(|s| (s.hits, s.last))),
            Self::Fifo => Box::new(Ranked::by(|s| (s.born, 0))),
            Self::Mru => Box::new(Ranked::by(|s| (!s.last, 0))),
            Self::Filo => Box::new(Ranked::by(|s| (!s.born, 0))),
            Self::Slru => Box::new(Ranked::by(|s| (u64::from(s.hits >= 2), s.last))),
            Self::Level => Box::new(Ranked::by(|s| (u64::from(!s.level), s.last))),
            Self::Priority => Box::new(Ranked::by(|s| (u64::from(s.priority), s.last))),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A policy's name that is not known.
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
