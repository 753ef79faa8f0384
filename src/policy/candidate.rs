//! The candidates for eviction, as the evictor files them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// Id of a candidate, shared by the evictor and its policy; dense, reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CandidateId(NonZeroU32);

impl CandidateId {
    /// The id for this index, which is below `u32::MAX`.
    pub(crate) fn at(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("there are fewer candidates than block ids"))
    }

    /// The id as an index into a table of candidates.
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Id of a namespace with a quota, as the group of its candidates; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QuotaGroup(NonZeroU32);

impl QuotaGroup {
    /// The group for this index, which is below `u32::MAX`.
    pub(crate) fn at(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("there are fewer namespaces than ids"))
    }

    /// The group as a number, at least one.
    pub(super) fn number(self) -> u64 {
        self.0.get().into()
    }
}

/// Groups by a time and then by number, with a time; zero where there is none. All ordered tables of
/// groups have this type, because each type of key and value has its own copy of the B-tree's code.
pub(crate) type GroupTable = BTreeMap<(Duration, QuotaGroup), Duration>;

/// The attributes of a candidate that do not change while it is filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CandidateEntry {
    /// Breaks ties: among equal ranks the smallest serial is evicted first. Serials are unique.
    pub(crate) serial: u64,
    /// The group of its namespace, if that has a quota. It may get one later.
    pub(crate) group: Option<QuotaGroup>,
}

/// The attributes of a candidate that policies rank by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CandidateStats {
    /// Time of its last use, in units of the cache's clock.
    pub(crate) last: u64,
    /// Number of requests that inserted or matched it.
    pub(crate) hits: u64,
    /// Time when its run was inserted.
    pub(crate) born: u64,
    /// Number of runs and pieces from the root to it, itself included.
    pub(crate) level: u32,
    /// Its present priority.
    pub(crate) priority: i64,
    /// Whether it was demoted and not used since. Under every policy, demoted candidates are
    /// evicted before all others.
    pub(crate) demoted: bool,
}
