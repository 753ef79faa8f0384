#![doc = include_str!("../README.md")]

mod admission;
mod builder;
mod counter;
mod departing;
mod device_memory;
mod eras;
mod fetch;
mod grid;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod host_match;
mod index;
mod kept_out;
mod lifetimes;
mod memory;
mod mover;
mod offload;
mod remote;
mod slots;
mod snapshot;
mod stats;
mod sync;
mod through;
mod tier;
mod tiered;
mod write_policy;

pub use admission::Admission;
pub use builder::{HostBuildError, HostBuilder};
pub use device_memory::DeviceMemory;
pub use fetch::{Fetch, RemoteWait};
pub use host_match::HostMatch;
pub use kept_out::KeptOut;
pub use memory::Memory;
pub use mover::{MoveError, Mover, NoCopies, ToDevice, ToHost};
pub use offload::{Arrival, Offload};
pub use radixkv_tiers;
pub use remote::RemoteStats;
pub use snapshot::{HeldBlocks, HostPiece, HostSnapshot};
pub use stats::{HostStats, HostViolation, Leftovers};
pub use tier::{HostBlock, HostTier};
pub use tiered::{
    Onboarding, TierMode, TieredBuildError, TieredBuilder, TieredCache, TieredMatch, TieredSession, TieredStart,
    TieredStats,
};
pub use write_policy::WritePolicy;
