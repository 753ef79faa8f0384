#![doc = include_str!("../README.md")]

mod builder;
mod device_memory;
mod eras;
mod grid;
mod host_match;
mod index;
mod kept_out;
mod memory;
mod mover;
mod offload;
mod slots;
mod stats;
mod tier;
mod tiered;

pub use builder::{HostBuildError, HostBuilder};
pub use device_memory::DeviceMemory;
pub use host_match::HostMatch;
pub use kept_out::KeptOut;
pub use memory::Memory;
pub use mover::{MoveError, Mover, NoCopies, ToDevice, ToHost};
pub use offload::{Arrival, Offload};
pub use stats::{HostStats, HostViolation, Leftovers};
pub use tier::{HostBlock, HostTier};
pub use tiered::{
    Onboarding, TierMode, TieredBuildError, TieredBuilder, TieredCache, TieredMatch, TieredSession, TieredStart,
    TieredStats, WritePolicy,
};
