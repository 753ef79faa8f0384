//! Taking blocks and holding them.
//!
//! | file | holds |
//! |---|---|
//! | `allocate` | taking blocks: from the pool, by evicting, by waiting |
//! | `acquire` | matching and taking what is missing, in one |
//! | `block_request` | how many blocks are asked for, which namespace pays, and in which lane it waits |
//! | `reservation` | blocks that were taken, given back when it is dropped |
//! | `shared_blocks`, `fork` | blocks that several reservations hold |
//! | `external` | the engine's own pool: its ids in, evicted ids out |
//! | `growing` | more blocks while the cache runs |

pub(in crate::cache) mod acquire;
pub(in crate::cache) mod allocate;
pub(in crate::cache) mod block_request;
pub(in crate::cache) mod external;
pub(in crate::cache) mod fork;
pub(in crate::cache) mod growing;
pub(in crate::cache) mod reservation;
pub(in crate::cache) mod shared_blocks;
