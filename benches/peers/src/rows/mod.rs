//! Rows that `radixkv bench` does not have.

pub(crate) mod contention;
pub(crate) mod engine;
pub(crate) mod growth;
pub(crate) mod lookups;
pub(crate) mod mixed;
pub(crate) mod replays;
pub(crate) mod writes;

/// Rounds of a row that takes seconds for each.
const FEW: usize = 3;
