//! A host tier below the cache: blocks that the cache evicts are copied to the far end of the storage, which has room for them
//! beyond the cache's blocks, and come back from there.

use std::sync::Arc;

use radixkv::{BlockId, Namespace, Token};
use radixkv_attention::Backend;
use radixkv_host::{HostBuildError, HostTier, MoveError, Mover, TieredBuildError, TieredCache, ToDevice, ToHost};

use crate::model::HostBackend;
use crate::serve::Engine;

/// Copies blocks within one storage: a host block is the block of the storage that is `first` further on.
struct WithinStorage<B: Backend> {
    backend: B,
    kv: Arc<B::Kv>,
    first: BlockId,
}

/// Why an engine is not put over a host tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostTierError {
    /// The tier cannot be built.
    #[error(transparent)]
    Host(#[from] HostBuildError),
    /// The cache and the tier do not go together.
    #[error(transparent)]
    Tiers(#[from] TieredBuildError),
}

impl<B: Backend> WithinStorage<B> {
    fn copy(&self, pairs: &[(BlockId, BlockId)]) -> Result<(), MoveError> {
        self.backend.copy_blocks(&self.kv, pairs).map_err(MoveError::new)
    }
}

impl<B> Mover for WithinStorage<B>
where
    B: Backend + Send + Sync,
    B::Kv: Send + Sync,
{
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        let pairs: Vec<_> = copies.iter().map(|copy| (copy.block, self.first + copy.host_block)).collect();
        self.copy(&pairs)
    }

    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        let pairs: Vec<_> = copies.iter().map(|copy| (self.first + copy.host_block, copy.block)).collect();
        self.copy(&pairs)
    }
}

impl<B> Engine<'_, B>
where
    B: HostBackend + Clone + Send + Sync + 'static,
    B::Kv: Send + Sync + 'static,
{
    /// Puts the engine over a host tier of [`Options::host_blocks`](crate::serve::Options::host_blocks) blocks: before a step
    /// evicts, idle blocks are copied there, and a request that is submitted finds them again. Without host blocks nothing changes.
    ///
    /// # Errors
    ///
    /// If there are more blocks than ids, or if the cache and the tier do not go together.
    pub fn over_host_tier(mut self) -> Result<Self, HostTierError> {
        if self.options().host_blocks == 0 {
            return Ok(self);
        }
        let (backend, kv) = self.storage();
        let (backend, kv, options) = (backend.clone(), Arc::clone(kv), self.options());
        let host = HostTier::builder(options.block_size, options.host_blocks).build()?;
        let mover = WithinStorage { backend, kv, first: options.blocks as BlockId };
        let tiers = TieredCache::builder(self.cache(), &host, mover).build()?;
        self.set_tiers(tiers);
        Ok(self)
    }
}

/// Copies idle blocks to the host until a quarter of the device's blocks is free, for what comes next.
pub(crate) fn make_room(tiers: &TieredCache) {
    let stats = tiers.cache().stats();
    let missing = (stats.capacity_blocks / 4).saturating_sub(stats.free_blocks);
    if missing > 0 {
        tiers.evict(missing);
    }
}

/// Copies what the host has of a prompt to the device, where it stays cached: the scheduler finds it there. What has to go for the
/// prompt is copied to the host before, for a scheduler that makes room by itself copies nothing. A hint: where the device has no room,
/// nothing is done. Waits for the copies, and takes locks. The prompt is one that the queue takes
/// ([`WaitingQueue::check`](radixkv_scheduler::WaitingQueue::check)).
///
/// The scheduler's own lookup is the one that counts: nothing here is a lookup.
pub(crate) fn bring_up(tiers: &TieredCache, namespace: &Namespace, tokens: &[Token]) {
    let session = tiers.session();
    let on_device = session.device().match_prefix_untouched(namespace, tokens);
    let missing = tokens.len().div_ceil(tiers.cache().block_size()) - on_device.blocks().len();
    let lacking = missing.saturating_sub(tiers.cache().stats().free_blocks);
    if lacking > 0 {
        tiers.evict(lacking);
    }
    session.prefetch(namespace, tokens);
}
