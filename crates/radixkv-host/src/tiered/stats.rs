//! Statistics of a cache over a tier.

use crate::counter::Counter;

/// Statistics of a [`TieredCache`](super::TieredCache) since it was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TieredStats {
    /// Device blocks that were evicted, except those of [`bypassed_blocks`](Self::bypassed_blocks).
    pub evicted_blocks: u64,
    /// Of those, blocks that were not copied because the mover's thread had no room: they were
    /// evicted by the background thread, for a quota or for their age. A request that needs blocks
    /// waits for its copies instead.
    pub dropped_blocks: u64,
    /// Blocks that a request evicted without copying them, because other threads repeatedly took
    /// the blocks that were copied for it.
    pub bypassed_blocks: u64,
    /// Tokens that were copied to the host.
    pub offloaded_tokens: u64,
    /// Bytes that were copied to the host.
    pub offloaded_bytes: u64,
    /// Tokens that were copied to the device.
    pub onboarded_tokens: u64,
    /// Of those, tokens that came from remote tiers.
    pub remote_tokens: u64,
    /// Bytes that were copied to the device.
    pub onboarded_bytes: u64,
    /// Host blocks that were not filled because the host had no room.
    pub lacking_blocks: u64,
    /// Host blocks that were not filled because a part of them had been evicted from the device.
    pub incomplete_blocks: u64,
    /// Host blocks that were not filled, because the mover failed.
    pub failed_offload_blocks: u64,
    /// Tokens that were computed although the host had them, because the mover failed.
    pub failed_onboard_tokens: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) evicted_blocks: Counter,
    pub(super) dropped_blocks: Counter,
    pub(super) bypassed_blocks: Counter,
    pub(super) offloaded_tokens: Counter,
    pub(super) offloaded_bytes: Counter,
    pub(super) onboarded_tokens: Counter,
    pub(super) remote_tokens: Counter,
    pub(super) onboarded_bytes: Counter,
    pub(super) lacking_blocks: Counter,
    pub(super) incomplete_blocks: Counter,
    pub(super) failed_offload_blocks: Counter,
    pub(super) failed_onboard_tokens: Counter,
}

impl Counters {
    pub(super) fn read(&self) -> TieredStats {
        TieredStats {
            evicted_blocks: self.evicted_blocks.get() + self.dropped_blocks.get(),
            dropped_blocks: self.dropped_blocks.get(),
            bypassed_blocks: self.bypassed_blocks.get(),
            offloaded_tokens: self.offloaded_tokens.get(),
            offloaded_bytes: self.offloaded_bytes.get(),
            onboarded_tokens: self.onboarded_tokens.get(),
            remote_tokens: self.remote_tokens.get(),
            onboarded_bytes: self.onboarded_bytes.get(),
            lacking_blocks: self.lacking_blocks.get(),
            incomplete_blocks: self.incomplete_blocks.get(),
            failed_offload_blocks: self.failed_offload_blocks.get(),
            failed_onboard_tokens: self.failed_onboard_tokens.get(),
        }
    }
}
