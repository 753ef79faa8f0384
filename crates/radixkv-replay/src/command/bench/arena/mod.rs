//! Compares prefix caches: the same loads for each of them, measured in turn in one process.
//!
//! `radixkv bench` and the peers' table (`benches/peers`, outside the workspace) use this module:
//! each [`Contender`] is measured in [`rows`], round by round beside its limit and the other
//! contenders, and [`table`] shows medians with quartiles.

pub(crate) mod contender;
pub(crate) mod measure;
pub(crate) mod mutexed;
pub(crate) mod own;
pub(crate) mod row;
pub(crate) mod rows;
pub(crate) mod settings;
pub(crate) mod strawman;
pub(crate) mod table;
pub(crate) mod team;
pub(crate) mod tokens;

/// Tokens per block, for every contender.
pub(crate) const BLOCK: usize = 16;
/// Length in tokens of the prefix that every thread matches.
pub(crate) const HOT: usize = 2_496;
