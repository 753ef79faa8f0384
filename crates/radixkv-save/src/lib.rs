#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod block_bytes;
mod cached;
mod copying;
mod error;
mod folder;
mod format;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod host;
mod opened;
mod order;
mod plan;
mod restore;
mod save;
mod saved;
mod saved_host;

pub use block_bytes::{BlockBytes, TreeOnly};
pub use error::{BlockShape, OpenError, RestoreError, SaveError};
pub use host::{HostSave, HostSaveReport};
#[cfg(feature = "encryption")]
pub use radixkv_tiers::SealKey;
pub use radixkv_tiers::{Layout, LayoutError};
pub use restore::Restored;
pub use save::{Save, SaveReport};
pub use saved::Saved;
pub use saved_host::{HostRestored, SavedHost};
