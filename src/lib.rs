#![doc = include_str!("../README.md")]

#[cfg(feature = "attention")]
pub mod attention;
mod block;
mod cache;
pub mod compare;
#[doc = include_str!("../docs/matching.md")]
pub mod guide {
    #[doc = include_str!("../docs/replay.md")]
    pub mod replay {}
    #[doc = include_str!("../docs/retention.md")]
    pub mod retention {}
}
#[cfg(all(feature = "cuda", not(any(radixkv_loom, radixkv_shuttle))))]
pub mod gpu;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
#[doc(hidden)]
pub mod internals;
pub mod key;
mod policy;
mod prefetch;
mod reclaim;
pub mod reference;
#[cfg(feature = "scheduler")]
pub mod scheduler;
mod sync;
#[cfg(feature = "trace")]
pub mod trace;
mod tree;

pub use block::BlockId;
#[cfg(feature = "async")]
pub use cache::Reserving;
pub use cache::diagnostics;
pub use cache::{
    AdoptError, BuildError, Builder, Clock, Eviction, InsertError, InsertErrorKind, Inserted, Keys, Lease, Namespace,
    NamespaceStats, PartialHit, PendingCopy, PrefixCache, PrefixMatch, Priority, PriorityError, Quota, Reservation,
    ReserveError, RetainError, Session, Stats, Watermarks,
};
pub use key::Token;
pub use policy::{PolicyKind, UnknownPolicy};
