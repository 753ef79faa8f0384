//! The cache: composes tree, pool and policy, and is the only place with effects across them.
//!
//! | file | holds |
//! |---|---|
//! | `prefix_cache`, `inner` | the public handle, and what all handles share |
//! | `api` | the public methods of each handle, in the order of its page |
//! | `builder`, `settings`, `growing` | configuration and its checks; what can change at run time |
//! | `session` | what the verbs of one scheduler thread share |
//! | `lookup`, `insert`, `partial`, `allocate`, `acquire` | what those verbs do |
//! | `retention`, `priority`, `uses` | what a session may ask for a prefix: priorities, retaining, demoting, recency or frequency alone |
//! | `block_request` | how many blocks are asked for, which namespace pays, and in which lane it waits |
//! | `wait_list`, `waiter`, `waiting`, `acquiring` | threads and tasks that wait for blocks |
//! | `lease`, `reservation`, `fork`, `shared_blocks` | handles that give back what they hold when they are dropped |
//! | `weak_lease`, `sharing` | a prefix to be leased later; how many leases of a set hold a block |
//! | `owner` | checks of the handles that a session is given |
//! | `strong_ref` | the counted reference in each handle, which keeps the cache alive |
//! | `external` | the engine's own pool: its ids in, evicted ids out |
//! | `namespace` | trees that never share: the registry, the public handle, emptying |
//! | `evicting`, `evicted` | the verbs that evict; evicted blocks that their caller keeps for a while |
//! | `invalidating` | blocks that hold wrong keys and values |
//! | `events`, `draft`, `subscribing` | what is told to those who listen, before and after it is copied; their channels |
//! | `evictor`, `background` | accounts, ranking, trimming; the thread around them |
//! | `quota` | limits of namespaces |
//! | `clock`, `counters`, `stats` | time, what is counted, numbers |
//! | `lookups`, `lookup_stats`, `seen` | what lookups found of each namespace, and why they missed |
//! | `validate`, `violation`, `diagnostics` | the check of every invariant, and what it reports |
//! | `walk`, `listing` | what is cached, run by run; what was at one moment |
//! | `spans` | what the crate `tracing` is told |

mod acquire;
#[cfg(feature = "async")]
mod acquiring;
mod allocate;
mod api;
mod background;
mod block_request;
mod builder;
mod clock;
mod counters;
pub mod diagnostics;
mod draft;
mod events;
mod evicted;
mod evicting;
mod eviction_sink;
mod evictor;
mod external;
mod fork;
mod growing;
mod in_line;
mod inner;
mod insert;
mod invalidating;
mod kept;
mod lease;
mod listing;
mod lookup;
mod lookup_stats;
mod lookups;
mod namespace;
mod outlet;
mod owner;
mod partial;
mod participant;
mod prefix_cache;
mod priority;
mod publications;
mod quota;
mod reservation;
mod retention;
mod seen;
mod session;
mod settings;
mod shared_blocks;
mod sharing;
mod spans;
mod stats;
mod strong_ref;
mod subscribing;
mod uses;
mod validate;
mod violation;
mod wait_list;
mod waiter;
#[cfg(feature = "async")]
mod waiting;
mod walk;
mod weak_lease;

pub use acquire::Acquired;
#[cfg(feature = "async")]
pub use acquiring::Acquiring;
pub use background::{Eviction, Watermarks};
pub use block_request::BlockRequest;
pub use builder::{BuildError, Builder};
pub use clock::Clock;
pub use events::{CacheEvent, EventBatch, EvictionReason};
pub use evicted::Evicted;
pub use eviction_sink::{EvictedBatch, EvictionSink};
pub use external::{AdoptError, ExternalPool};
pub use fork::PendingCopy;
pub use growing::GrowError;
#[cfg(test)]
pub(crate) use insert::MAX_TOKENS;
pub use insert::{InsertError, InsertErrorKind, Inserted};
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use kept::KeptBlocks;
pub use lease::{Lease, PrefixMatch, TooManyLeases};
pub use lookup_stats::{LookupStats, NamespaceLookups};
pub use namespace::{Namespace, NamespaceInUse};
pub use partial::PartialHit;
pub use prefix_cache::PrefixCache;
pub use priority::Priority;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use publications::{Publication, Publications};
pub use quota::{NamespaceStats, Quota};
pub use reservation::{Reservation, ReserveError};
pub use retention::RetainError;
pub use session::Session;
pub use settings::{SettingError, Settings};
pub use sharing::SharedSpan;
pub use stats::Stats;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use strong_ref::{StrongRef, StrongRefs};
pub use subscribing::Subscription;
pub use violation::Violation;
#[cfg(feature = "async")]
pub use waiting::Reserving;
pub use walk::CachedRun;
pub use weak_lease::WeakLease;

#[cfg(test)]
mod stalled_reader;
