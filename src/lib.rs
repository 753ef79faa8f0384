#![doc = include_str!("../README.md")]

mod block;
mod cache;
pub mod compare;
#[doc = include_str!("../docs/matching.md")]
pub mod guide {
    #[doc = include_str!("../docs/retention.md")]
    pub mod retention {}
}
#[cfg(any(radixkv_loom, radixkv_shuttle))]
#[doc(hidden)]
pub mod internals;
pub mod key;
mod policy;
mod prefetch;
mod reclaim;
#[cfg(feature = "reference")]
pub mod reference;
#[cfg(feature = "scheduler")]
pub mod scheduler;
mod sync;
mod tree;

pub use block::BlockId;
#[cfg(feature = "async")]
pub use cache::Reserving;
pub use cache::{
    AdoptError, BlockCopy, BuildError, Builder, Clock, Eviction, InsertError, InsertErrorKind, Inserted, Keys, Lease,
    Mismatch, Namespace, NamespaceStats, PartialHit, PointAt, PrefixCache, PrefixMatch, Priority, PriorityError, Quota,
    Reservation, ReserveError, RetainError, RunAt, Session, Stats, Violation, Watermarks,
};
pub use key::Token;
pub use policy::{PolicyKind, UnknownPolicy};
