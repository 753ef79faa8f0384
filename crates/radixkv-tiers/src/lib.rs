#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod aligned;
mod caught;
mod files;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod key;
mod layout;
mod object;
#[cfg(feature = "object-store")]
mod objects;
mod open;
mod opened;
mod queue;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "region")]
mod region;
#[cfg(feature = "encryption")]
mod seal {
    pub(crate) use radixkv_region::{SEAL_BYTES, SealKey};
}
#[cfg(not(feature = "encryption"))]
#[path = "unsealed.rs"]
mod seal;
mod stats;
mod tier;
mod worker;

// For `radixkv-host`, which calls tiers and movers of others.
#[doc(hidden)]
pub use caught::caught;
pub use files::FileTier;
pub use key::{Block, BlockKey, KeyChain, Token};
pub use layout::{Layout, LayoutDifference, LayoutError};
pub use object::Miss;
#[cfg(feature = "object-store")]
pub use object_store;
#[cfg(feature = "object-store")]
pub use objects::ObjectTier;
pub use open::OpenError;
pub use opened::Tier;
#[cfg(feature = "region")]
pub use radixkv_region;
#[cfg(feature = "encryption")]
pub use radixkv_region::SealKey;
#[cfg(feature = "redis")]
pub use redis::RedisTier;
#[cfg(feature = "region")]
pub use region::{DigestTier, RegionTier};
pub use stats::{Errors, Misses, Stats};
pub use tier::{Buffer, Completion, Failure, Get, NotGot, Outcome, Put, Refusal, Refused, RemoteTier, Ticket};
