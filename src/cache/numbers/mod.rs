//! What is counted.
//!
//! | file | holds |
//! |---|---|
//! | `stats` | the numbers of a cache |
//! | `counters` | what sessions and calls count |

pub(in crate::cache) mod counters;
pub(in crate::cache) mod stats;
