//! What lookups find, and what is counted of them.
//!
//! | file | holds |
//! |---|---|
//! | `lookup`, `partial` | matching whole blocks, and a block in part |
//! | `lookups`, `lookup_stats` | what is counted of each namespace |
//! | `seen` | marks of what went, by which a miss has its reason |
//! | `walk` | what is cached, run by run |

pub(in crate::cache) mod lookup;
pub(in crate::cache) mod lookup_stats;
pub(in crate::cache) mod lookups;
pub(in crate::cache) mod partial;
pub(in crate::cache) mod seen;
pub(in crate::cache) mod walk;
