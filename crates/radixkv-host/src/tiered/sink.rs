//! The eviction sink of a tiered cache: copies blocks to the host that the cache evicts for a
//! reservation, in its background thread, for a quota or for age.

use std::sync::Weak;

use radixkv::{EvictedBatch, EvictionSink};

use super::{Shared, offloading::Piece};
use crate::tier::HostTier;

/// The cache's eviction sink.
pub(super) struct TierSink {
    pub(super) host: HostTier,
    pub(super) shared: Weak<Shared>,
}

impl EvictionSink for TierSink {
    /// The host's clear epoch: no earlier clear concerns the blocks that are evicted now.
    fn mark(&self) -> u64 {
        self.host.inner.era()
    }

    /// A thread that needs the blocks copies them, or waits for the mover's thread. For other
    /// threads, the blocks are not copied if the mover's queue has no room.
    fn take(&self, batch: EvictedBatch) {
        // Otherwise the tiered cache is dropped, and no request of this cache uses the host.
        let Some(shared) = self.shared.upgrade() else { return };
        let blocks = batch.pieces.iter().map(|piece| piece.blocks.len()).sum();
        let offload = self.host.offload_since(batch.mark);
        let Some(copies) = shared.copies_elsewhere() else {
            shared.counters.evicted_blocks.add(blocks);
            shared.take_in(&offload, &batch.pieces.iter().map(Piece::from).collect::<Vec<_>>());
            return;
        };
        let room = if batch.is_needed { Some(copies.room(blocks)) } else { copies.try_room(blocks) };
        let Some(room) = room else { return shared.counters.dropped_blocks.add(blocks) };
        shared.counters.evicted_blocks.add(blocks);
        let is_done = shared.copy_there(room, offload, batch.pieces);
        if batch.is_needed {
            // An error means that the copying panicked: then the blocks are free as well.
            let _ = is_done.recv();
        }
    }

    fn passed_by(&self, blocks: usize) {
        if let Some(shared) = self.shared.upgrade() {
            shared.counters.bypassed_blocks.add(blocks);
        }
    }
}
