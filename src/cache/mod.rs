//! The cache: combines the index tree, the block pool and the eviction policy. No other module
//! changes more than one of them.
//!
//! | file or folder | holds |
//! |---|---|
//! | `prefix_cache`, `inner` | the public handle, and the state that all handles share |
//! | `turn` | bounded holds of the evictor's locks |
//! | `api` | the public methods of each handle, in the order of its documentation page |
//! | `builder`, `settings` | configuration and its checks; settings that can change at run time |
//! | `session`, `participant` | the state of one scheduler thread; its registration with the epochs |
//! | `insert` | publishing computed blocks |
//! | `matching` | lookups and their statistics |
//! | `leases` | leases; priority and retention of a leased prefix |
//! | `blocks`, `line` | reserving blocks; waiting for blocks |
//! | `evictor` | block accounts, the order of victims, trimming, and the listeners for these changes |
//! | `eviction` | operations that evict, the background thread, the eviction sink |
//! | `namespaces` | separate trees, which share no blocks, and their limits |
//! | `listening` | event channels, and snapshots |
//! | `numbers`, `clock`, `spans` | statistics, time, spans for the crate `tracing` |
//! | `checks` | validation of every invariant, and its report |

mod api;
mod blocks;
mod builder;
mod checks;
mod clock;
mod eviction;
mod evictor;
mod inner;
mod insert;
mod leases;
mod line;
mod listening;
mod matching;
mod namespaces;
mod numbers;
mod participant;
mod prefix_cache;
mod session;
mod settings;
mod spans;
mod turn;

pub use blocks::acquire::Acquired;
pub use blocks::block_request::BlockRequest;
pub use blocks::external::{AdoptError, ExternalPool};
pub use blocks::fork::PendingCopy;
pub use blocks::growing::GrowError;
pub use blocks::reservation::{Reservation, ReserveError};
pub use builder::{BuildError, Builder};
pub use checks::violation::Violation;
pub use clock::Clock;
pub use eviction::background::{Eviction, Watermarks};
pub use eviction::evicted::Evicted;
pub use eviction::eviction_sink::{EvictedBatch, EvictionSink};
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use eviction::kept::KeptBlocks;
#[cfg(test)]
pub(crate) use insert::MAX_TOKENS;
pub use insert::{InsertError, InsertErrorKind, Inserted};
pub use leases::lease::{Lease, PrefixMatch, TooManyLeases};
pub use leases::priority::Priority;
pub use leases::retention::RetainError;
pub use leases::sharing::SharedSpan;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use leases::strong_ref::{StrongRef, StrongRefs};
pub use leases::weak_lease::WeakLease;
#[cfg(feature = "async")]
pub use line::acquiring::Acquiring;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use line::publications::{Publication, Publications};
#[cfg(feature = "async")]
pub use line::waiting::Reserving;
pub use listening::events::{CacheEvent, EventBatch, EvictionReason};
pub use listening::subscribing::Subscription;
pub use matching::lookup_stats::{LookupStats, NamespaceLookups};
pub use matching::partial::PartialHit;
pub use matching::walk::CachedRun;
pub use namespaces::namespace::{Namespace, NamespaceInUse};
pub use namespaces::quota::{NamespaceStats, Quota};
pub use numbers::stats::Stats;
pub use prefix_cache::PrefixCache;
pub use session::Session;
pub use settings::{SettingError, Settings};

#[cfg(test)]
mod stalled_reader;
