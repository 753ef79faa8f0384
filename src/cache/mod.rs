//! The cache: composes tree, pool and policy, and is the only place with effects across them.
//!
//! | file or folder | holds |
//! |---|---|
//! | `prefix_cache`, `inner` | the public handle, and what all handles share |
//! | `api` | the public methods of each handle, in the order of its page |
//! | `builder`, `settings` | configuration and its checks; what can change at run time |
//! | `session`, `participant` | what the verbs of one scheduler thread share; its part in the epochs |
//! | `insert` | publishing what was computed |
//! | `matching` | what lookups find, and what is counted of them |
//! | `leases` | leases, and what may be asked for the prefix of one |
//! | `blocks`, `line` | taking blocks and holding them; waiting for them |
//! | `evictor` | accounts, ranking, trimming, and who is told of them |
//! | `eviction` | the verbs, the thread and the sink around it |
//! | `namespaces` | trees that never share, and their limits |
//! | `listening` | events, and listings of one moment |
//! | `numbers`, `clock`, `spans` | what is counted, time, what the crate `tracing` is told |
//! | `checks` | the check of every invariant, and what it reports |

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

pub use blocks::acquire::Acquired;
pub use blocks::block_request::BlockRequest;
pub use blocks::external::{AdoptError, ExternalPool};
pub use blocks::fork::PendingCopy;
pub use blocks::growing::GrowError;
pub use blocks::reservation::{Reservation, ReserveError};
pub use builder::{BuildError, Builder};
#[cfg(feature = "diagnostics")]
pub use checks::diagnostics;
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
