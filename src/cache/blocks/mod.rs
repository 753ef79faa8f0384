//! Reserving blocks and holding them. Sessions call this module; it uses the pool and the evictor.
//!
//! | file | holds |
//! |---|---|
//! | `allocate` | taking blocks: from the pool, by evicting, by waiting |
//! | `acquire` | matching a prompt and taking the missing blocks, in one operation |
//! | `block_request` | a request: how many blocks, which namespace pays, how urgent it is |
//! | `reservation` | reserved blocks; dropping it gives them back |
//! | `shared_blocks`, `fork` | blocks that several reservations hold |
//! | `external` | the engine's own pool: passes its ids to the cache, and evicted ids back |
//! | `growing` | the error of adding blocks while the cache runs |

pub(in crate::cache) mod acquire;
pub(in crate::cache) mod allocate;
pub(in crate::cache) mod block_request;
pub(in crate::cache) mod external;
pub(in crate::cache) mod fork;
pub(in crate::cache) mod growing;
pub(in crate::cache) mod reservation;
pub(in crate::cache) mod shared_blocks;
