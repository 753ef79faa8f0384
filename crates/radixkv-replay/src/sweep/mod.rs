//! Simulates many caches on one trace: the hit rate by capacity, policy and block size, with
//! reference lines.
//!
//! A [`SweepPlan`] has a point for each combination. The lines are:
//!
//! | line | is |
//! |---|---|
//! | a policy | a [replay](crate::replay()) through the cache with one thread and inline eviction, or a computation with the same hits: for lru one pass over the trace for all capacities, for others except `level` a replay with one token per block |
//! | `apc` | a flat map of block hashes with a free queue, as in vLLM's automatic prefix caching: as many hits as a tree, but no other features of one |
//! | `apc-vllm` | the same with vLLM's accounting: a last block that is not full takes a slot, the last token of a prompt is always computed |
//! | `belady` | the optimum for a cache that knows the future and must hold every request that it serves |
//! | `infinite` | a cache that never evicts |
//!
//! Points are computed on the threads of the current `rayon` pool, by default one per core.

mod belady;
mod flat;
mod hits;
mod plan;
mod point;
mod runs;
mod stack;

pub use plan::{SweepConfig, SweepError, SweepPlan};
pub use point::{BlockSizeFigures, Line, Sweep, SweepPoint};
