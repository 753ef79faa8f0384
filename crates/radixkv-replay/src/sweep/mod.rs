//! Many caches on one trace: the hit rate by capacity, policy and block size, with reference lines.
//!
//! A [`SweepPlan`] has a point for each combination. What each line is:
//!
//! | line | is |
//! |---|---|
//! | a policy | a [replay](crate::replay()) through the cache, one thread, inline eviction; for lru one pass over the trace gives all capacities, for others but `level` a block is one token of the replay: with the hits of replays |
//! | `apc` | a flat map of block hashes with a free queue, as in vLLM's automatic prefix caching: what a tree without other merits comes to |
//! | `apc-vllm` | the same with vLLM's accounting: a last block that is not full takes a slot, the last token of a prompt is always computed |
//! | `belady` | the best that is possible for a cache that knows the future and must hold every request that it serves |
//! | `infinite` | a cache that never evicts |
//!
//! Points are computed on the threads of the current pool of `rayon`, so that they take all cores.

mod belady;
mod flat;
mod hits;
mod plan;
mod point;
mod runs;
mod stack;

pub use plan::{SweepConfig, SweepError, SweepPlan};
pub use point::{BlockSizeFigures, Line, Sweep, SweepPoint};
