//! Evicting by verbs, by the background thread, for a sink, and for what is wrong.
//!
//! | file | holds |
//! |---|---|
//! | `evicting`, `evicted` | the verbs that evict; evicted blocks that their caller keeps for a while |
//! | `background` | the thread that evicts ahead |
//! | `eviction_sink`, `outlet`, `kept` | the receiver of all that is evicted, the way to it, what it has |
//! | `invalidating` | blocks that hold wrong keys and values |

pub(in crate::cache) mod background;
pub(in crate::cache) mod evicted;
pub(in crate::cache) mod evicting;
pub(in crate::cache) mod eviction_sink;
pub(in crate::cache) mod invalidating;
pub(in crate::cache) mod kept;
pub(in crate::cache) mod outlet;
