//! radixkv: an embeddable, lock-free, concurrent prefix cache for LLM inference engines.

mod block;
mod cache;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
#[doc(hidden)]
pub mod internals;
pub mod key;
pub mod policy;
mod reclaim;
pub mod reference;
mod sync;
#[cfg(feature = "trace")]
pub mod trace;
mod tree;

pub use block::BlockId;
pub use cache::{
    BuildError, Builder, Clock, InsertError, InsertErrorKind, Inserted, Lease, Namespace, PrefixCache, PrefixMatch,
    Reservation, ReserveError, Session, Stats, Violation,
};
pub use key::Token;
pub use policy::PolicyKind;
