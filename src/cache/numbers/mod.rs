//! The statistics of a cache, and their counters.
//!
//! | file | holds |
//! |---|---|
//! | `stats` | the statistics of a cache |
//! | `counters` | the counters of sessions and calls, and their sums |

pub(in crate::cache) mod counters;
pub(in crate::cache) mod stats;
