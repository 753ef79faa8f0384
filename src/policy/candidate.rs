//! Candidates, as the evictor files them.

use std::num::NonZeroU32;

/// Id of a candidate, shared by the evictor and its policy; dense, reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CandidateId(NonZeroU32);

impl CandidateId {
    /// The id of this index, below `u32::MAX`.
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
    /// The group of this index, below `u32::MAX`.
    pub(crate) fn at(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("there are fewer namespaces than ids"))
    }
}

/// The attributes of a candidate that never change while it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CandidateEntry {
    /// Of equal standings the smaller one goes first; no two candidates have the same.
    pub(crate) serial: u64,
    /// The group of its namespace, if that has a quota; a namespace may get a quota later.
    pub(crate) group: Option<QuotaGroup>,
}

/// The attributes of a candidate that policies rank by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// When it was last touched, in units of the cache's clock.
    pub(crate) last: u64,
    /// Requests that inserted or matched it.
    pub(crate) hits: u64,
    /// When its run was inserted.
    pub(crate) born: u64,
    /// Runs from the root to it, itself included.
    pub(crate) level: u32,
    /// Its priority at this moment.
    pub(crate) priority: i64,
    /// It was demoted and not used since: under every policy it goes before all candidates that were not.
    pub(crate) demoted: bool,
}
