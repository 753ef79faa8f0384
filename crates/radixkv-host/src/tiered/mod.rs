//! A cache over a host tier.
//!
//! What the cache evicts is copied to the host before its blocks are written to again; what a prompt finds there is copied back
//! into blocks that were reserved for it. The cache's own verbs know nothing of it: a lookup that is answered by the device
//! never takes the tier's lock.

mod offloading;
mod session;
mod sizes;
mod start;
mod stats;

use std::{fmt, sync::Arc};

use radixkv::{Namespace, PrefixCache};

pub use session::{TieredMatch, TieredSession};
pub use start::TieredStart;
pub use stats::TieredStats;

use crate::{mover::Mover, tier::HostTier};
use sizes::Sizes;
use stats::Counters;

/// Where a block lives that both tiers could have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TierMode {
    /// In one place: a hit moves from the host to the device. The two tiers hold the sum of their capacities; for one cache
    /// over a tier.
    #[default]
    Exclusive,
    /// A hit is copied and stays in the host, where other caches find it too.
    Shared,
}

/// When a block is copied to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WritePolicy {
    /// When the device evicts it.
    #[default]
    Back,
    /// When it is inserted: it is in the host before the device evicts it, and other caches find it at once. For
    /// [`TierMode::Shared`].
    Through,
}

/// A [`PrefixCache`] over a [`HostTier`]. A handle: clones share both.
///
/// Evict through it ([`evict`](Self::evict)), or by [`TieredSession::acquire`]: what the cache evicts by itself (a plain
/// [`reserve`](radixkv::Session::reserve), its background thread, a quota) is not offloaded.
#[derive(Clone)]
pub struct TieredCache {
    shared: Arc<Shared>,
}

struct Shared {
    cache: PrefixCache,
    host: HostTier,
    mover: Box<dyn Mover>,
    mode: TierMode,
    write: WritePolicy,
    sizes: Sizes,
    counters: Counters,
}

/// Puts a cache over a tier.
#[must_use]
pub struct TieredBuilder {
    cache: PrefixCache,
    host: HostTier,
    mover: Box<dyn Mover>,
    mode: TierMode,
    write: WritePolicy,
}

/// Why a cache and a tier do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TieredBuildError {
    /// Choose one size as a multiple of the other.
    #[error("the device's block size ({device} tokens) and the host's ({host}) are not multiples of one another")]
    BlockSizes {
        /// Tokens in a block of the cache.
        device: usize,
        /// Tokens in a block of the tier.
        host: usize,
    },
    /// Take smaller host blocks, or [`TierMode::Shared`].
    #[error(
        "exclusive tiers need host blocks that are no larger ({host} tokens) than the device's ({device}): a larger one \
         leaves the device in pieces"
    )]
    ExclusiveInPieces {
        /// Tokens in a block of the cache.
        device: usize,
        /// Tokens in a block of the tier.
        host: usize,
    },
    /// Give a host block as many bytes as its device blocks have.
    #[error("{bytes} bytes of a host block cannot be cut into {parts} device blocks")]
    UnevenBytes {
        /// Bytes of a host block.
        bytes: usize,
        /// Device blocks in a host block.
        parts: usize,
    },
    /// Take [`TierMode::Shared`], or [`WritePolicy::Back`].
    #[error("write-through keeps each block in two places, which exclusive tiers do not")]
    ExclusiveThrough,
    /// Build the cache with a pool of its own.
    #[error("the engine owns the cache's pool, so that nothing can be reserved for what comes from the host")]
    External,
}

impl TieredCache {
    /// Puts `cache` over `host`; `mover` copies between them.
    pub fn builder(cache: &PrefixCache, host: &HostTier, mover: impl Mover + 'static) -> TieredBuilder {
        TieredBuilder {
            cache: cache.clone(),
            host: host.clone(),
            mover: Box::new(mover),
            mode: TierMode::default(),
            write: WritePolicy::default(),
        }
    }

    /// The cache of the device.
    pub fn cache(&self) -> &PrefixCache {
        &self.shared.cache
    }

    /// The tier below it.
    pub fn host(&self) -> &HostTier {
        &self.shared.host
    }

    /// Where a block lives that both could have.
    pub fn mode(&self) -> TierMode {
        self.shared.mode
    }

    /// A session for the calling thread.
    pub fn session(&self) -> TieredSession {
        TieredSession::new(&self.shared)
    }

    /// Evicts up to `blocks` blocks of the device as [`PrefixCache::evict`] does, and copies them to the host first. Returns how
    /// many were evicted.
    pub fn evict(&self, blocks: usize) -> usize {
        self.shared.evict(blocks)
    }

    /// Clears a namespace on the device and in the host. What was evicted from this cache before does not come back.
    ///
    /// With other caches over the same tier: [`HostTier::keep_out`] around the clears of all of them.
    pub fn clear_namespace(&self, namespace: &Namespace) {
        let _kept_out = self.shared.host.keep_out(&namespace.name());
        self.shared.cache.clear_namespace(namespace);
    }

    /// Drops a namespace on the device, and clears it in the host.
    pub fn drop_namespace(&self, namespace: &Namespace) {
        let _kept_out = self.shared.host.keep_out(&namespace.name());
        self.shared.cache.drop_namespace(namespace);
    }

    /// Counts since it was built.
    pub fn stats(&self) -> TieredStats {
        self.shared.counters.read()
    }
}

impl TieredBuilder {
    /// Where a block lives that both could have. Default: [`TierMode::Exclusive`].
    pub fn mode(self, mode: TierMode) -> Self {
        Self { mode, ..self }
    }

    /// When a block is copied to the host. Default: [`WritePolicy::Back`].
    pub fn write_policy(self, write: WritePolicy) -> Self {
        Self { write, ..self }
    }

    /// Puts them together.
    ///
    /// # Errors
    ///
    /// [`TieredBuildError`].
    pub fn build(self) -> Result<TieredCache, TieredBuildError> {
        let Self { cache, host, mover, mode, write } = self;
        let sizes = Sizes { device: cache.block_size(), host: host.block_size() };
        let Sizes { device, host: host_size } = sizes;
        if !sizes.are_multiples() {
            return Err(TieredBuildError::BlockSizes { device, host: host_size });
        }
        if mode == TierMode::Exclusive && host_size > device {
            return Err(TieredBuildError::ExclusiveInPieces { device, host: host_size });
        }
        if mode == TierMode::Exclusive && write == WritePolicy::Through {
            return Err(TieredBuildError::ExclusiveThrough);
        }
        let parts = (host_size / device).max(1);
        if host.block_bytes() % parts != 0 {
            return Err(TieredBuildError::UnevenBytes { bytes: host.block_bytes(), parts });
        }
        if cache.is_external() {
            return Err(TieredBuildError::External);
        }
        let counters = Counters::default();
        Ok(TieredCache { shared: Arc::new(Shared { cache, host, mover, mode, write, sizes, counters }) })
    }
}

impl fmt::Debug for TieredCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { cache, host, mode, write, .. } = &*self.shared;
        f.debug_struct("TieredCache")
            .field("cache", cache)
            .field("host", host)
            .field("mode", mode)
            .field("write", write)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TieredBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredBuilder").field("mode", &self.mode).field("write", &self.write).finish_non_exhaustive()
    }
}
