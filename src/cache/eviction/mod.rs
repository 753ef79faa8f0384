//! The operations that evict, the background thread, the eviction sink, and invalidation.
//!
//! | file | holds |
//! |---|---|
//! | `evicting`, `evicted` | the operations that evict; evicted blocks that the caller keeps for a while |
//! | `background` | the thread that evicts ahead of need |
//! | `eviction_sink`, `outlet`, `kept` | the receiver of all evicted blocks, the path to it, the count of its blocks |
//! | `invalidating` | hiding blocks with wrong keys and values |

pub(in crate::cache) mod background;
pub(in crate::cache) mod evicted;
pub(in crate::cache) mod evicting;
pub(in crate::cache) mod eviction_sink;
pub(in crate::cache) mod invalidating;
pub(in crate::cache) mod kept;
pub(in crate::cache) mod outlet;
