//! Blocks: ids of the slots that hold keys and values, and the pool that hands them out.

mod grid;
mod hints;
mod pool;

pub(crate) use grid::Grid;
pub(crate) use pool::Pool;

/// Index of a KV block: which slot of the engine's KV memory it is. Opaque to the cache.
pub type BlockId = u32;
