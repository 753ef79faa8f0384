#![doc = include_str!("../README.md")]

mod block;
mod cache;
#[doc = include_str!("../docs/matching.md")]
pub mod guide {}
#[cfg(any(radixkv_loom, radixkv_shuttle))]
#[doc(hidden)]
pub mod internals;
pub mod key;
mod policy;
mod reclaim;
pub mod reference;
mod sync;
#[cfg(feature = "trace")]
pub mod trace;
mod tree;

pub use block::BlockId;
pub use cache::{
    BuildError, Builder, Clock, Eviction, InsertError, InsertErrorKind, Inserted, Lease, Mismatch, Namespace, PointAt,
    PrefixCache, PrefixMatch, Reservation, ReserveError, RunAt, Session, Stats, Violation, Watermarks,
};
pub use key::Token;
pub use policy::{PolicyKind, UnknownPolicy};
