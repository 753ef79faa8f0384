//! A host tier below the engine's cache. The storage of keys and values has additional blocks after
//! the cache's blocks; evicted blocks are copied there, and back when a prompt needs them.

use std::sync::Arc;

use radixkv::{BlockId, Namespace, Token};
use radixkv_attention::Backend;
use radixkv_host::{HostBuildError, HostTier, MoveError, Mover, TieredBuildError, TieredCache, ToDevice, ToHost};

use crate::model::HostBackend;
use crate::serve::Engine;

/// A mover that copies blocks within one storage: host block `i` is block `first + i` of the
/// storage.
struct WithinStorage<B: Backend> {
    backend: B,
    kv: Arc<B::Kv>,
    first: BlockId,
}

/// Why an engine cannot have a host tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostTierError {
    /// The tier cannot be built.
    #[error(transparent)]
    Host(#[from] HostBuildError),
    /// The cache and the tier do not fit together.
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
    /// Adds a host tier of [`Options::host_blocks`](crate::serve::Options::host_blocks) blocks to
    /// the engine. Idle blocks are copied there before a step evicts, and submitted requests find
    /// them again. With 0 host blocks, nothing changes.
    ///
    /// # Errors
    ///
    /// If there are more blocks than ids, or if the cache and the tier do not fit together.
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

/// Evicts idle blocks to the host until a quarter of the device's blocks is free, so that the next
/// step finds free blocks.
pub(crate) fn make_room(tiers: &TieredCache) {
    let stats = tiers.cache().stats();
    let missing = (stats.capacity_blocks / 4).saturating_sub(stats.free_blocks);
    if missing > 0 {
        tiers.evict(missing);
    }
}

/// Copies a prompt's blocks from the host to the device, where they stay cached until the scheduler
/// finds them. First evicts blocks for the prompt to the host, because blocks that the scheduler
/// itself evicts are not copied. A hint: if the device has no room, nothing is copied. Waits for
/// the copies, and takes locks. The prompt must have passed
/// [`WaitingQueue::check`](radixkv_scheduler::WaitingQueue::check).
///
/// Not counted as a lookup: only the scheduler's own lookup is.
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
