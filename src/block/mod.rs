//! Blocks: the ids of KV blocks, and the pool that allocates them.

mod block_layout;
mod hints;
mod pool;
mod slots;

pub(crate) use block_layout::BlockLayout;
pub(crate) use pool::Pool;
pub use slots::write_slots;

/// The index of a KV block in the engine's KV memory. Opaque to the cache.
///
/// An alias, not a new type, so that an engine's block tables take ids without conversion or copy.
/// The price is that the compiler does not distinguish a block id from a [`Token`](crate::Token) or
/// any other `u32`.
pub type BlockId = u32;
