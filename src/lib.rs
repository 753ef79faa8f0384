#![doc = include_str!("../README.md")]
//! # Further reading
//!
//! - [`PrefixCache`]: the methods of a cache, and what each costs; [`Session`]: the handle of one
//!   thread; [`Builder`]: the settings.
//! - [`guide`]: when prefixes match, and how to find out why a hit rate is low;
//!   [`guide::retention`]: priorities and deadlines.
#![cfg_attr(
    feature = "async",
    doc = "- [`guide::admission`]: in which order to take blocks, wait for them and give them up."
)]
//! - [`compare`] and [`key`]: comparing tokens, for schedulers and for restored blocks.

mod block;
mod cache;
pub mod compare;
#[doc = include_str!("../docs/matching.md")]
pub mod guide {
    #[doc = include_str!("../docs/retention.md")]
    pub mod retention {}
    #[cfg(feature = "async")]
    #[doc = include_str!("../docs/admission.md")]
    pub mod admission {}
}
#[cfg(any(radixkv_loom, radixkv_shuttle))]
#[doc(hidden)]
pub mod internals;
pub mod key;
mod name;
mod policy;
mod reclaim;
mod sync;
mod tree;

pub use block::{BlockId, write_slots};
pub use cache::{
    Acquired, AdoptError, BlockRequest, BuildError, Builder, CacheEvent, CachedRun, Clock, EventBatch, Evicted,
    EvictedBatch, Eviction, EvictionReason, EvictionSink, ExternalPool, GrowError, InsertError, InsertErrorKind,
    Inserted, Lease, LookupStats, Namespace, NamespaceInUse, NamespaceLookups, NamespaceStats, PartialHit, PendingCopy,
    PrefixCache, PrefixMatch, Priority, Quota, Reservation, ReserveError, RetainError, Session, SettingError, Settings,
    SharedSpan, Stats, Subscription, TooManyLeases, Violation, Watermarks, WeakLease,
};
#[cfg(feature = "async")]
pub use cache::{Acquiring, Reserving};
pub use key::Token;
pub use name::{Keys, NamespaceName};
pub use policy::{PolicyKind, UnknownPolicy};
#[cfg(feature = "holds")]
pub use sync::measure_holds;
