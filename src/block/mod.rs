//! Blocks: ids of the slots that hold keys and values, and the pool that hands them out.

mod grid;
mod hints;
mod pool;
mod slots;

pub(crate) use grid::Grid;
pub(crate) use pool::Pool;
pub use slots::write_slots;

/// The index of a KV block in the engine's KV memory. Opaque to the cache.
///
/// An alias and not a type of its own, so that the ids go into an engine's block tables without conversion or copy. The
/// price: the compiler does not tell a block id from a [`Token`](crate::Token) or from any other `u32`.
pub type BlockId = u32;
