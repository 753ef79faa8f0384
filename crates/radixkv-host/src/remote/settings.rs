//! The builder's settings for remote tiers.

use std::{fmt, time::Duration};

use radixkv_tiers::RemoteTier;

use crate::write_policy::WritePolicy;

/// A remote tier whose blocks are in buffers of this package.
pub(super) type AnyTier = Box<dyn RemoteTier<Vec<u8>>>;

pub(crate) struct RemoteSettings {
    pub(crate) tiers: Vec<AnyTier>,
    pub(crate) write: WritePolicy,
    pub(crate) in_flight: usize,
    pub(crate) timeout: Duration,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self { tiers: Vec::new(), write: WritePolicy::Back, in_flight: 256, timeout: Duration::from_secs(10) }
    }
}

impl fmt::Debug for RemoteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSettings").field("tiers", &self.tiers.len()).finish_non_exhaustive()
    }
}
