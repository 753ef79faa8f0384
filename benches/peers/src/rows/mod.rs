//! The rows that `radixkv bench` does not have.

pub(crate) mod contention;
pub(crate) mod engine;
pub(crate) mod growth;
pub(crate) mod lookups;
pub(crate) mod mixed;
pub(crate) mod replays;
pub(crate) mod writes;

/// Most rounds of a row whose rounds take seconds.
const FEW: usize = 3;
