//! Lookups and their statistics.
//!
//! | file | holds |
//! |---|---|
//! | `lookup`, `partial` | matching whole blocks, and the beginning of a block |
//! | `lookups`, `lookup_stats` | the statistics, for each namespace |
//! | `ghost_table` | marks of cached and evicted blocks, which tell the reason of a miss |
//! | `walk` | visiting the cached runs |

pub(in crate::cache) mod ghost_table;
pub(in crate::cache) mod lookup;
pub(in crate::cache) mod lookup_stats;
pub(in crate::cache) mod lookups;
pub(in crate::cache) mod partial;
pub(in crate::cache) mod walk;
