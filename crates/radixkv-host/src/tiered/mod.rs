//! A cache over a host tier.
//!
//! Evicted blocks are copied to the host before the device blocks are written again. The host's
//! blocks of a prompt are copied back into device blocks that were reserved for it. The cache's own
//! methods do not use the tier: a lookup that the device answers never takes the tier's lock.
//!
//! Onboarding a prompt: match it on the device (a lease), match the rest in the host (pins),
//! reserve blocks, copy, insert the whole blocks. The thread that waits for a copy holds both of
//! its ends: a lease or a reservation on the device, pins or an arrival in the host. The eviction
//! sink is called after the evictor's lock is released, perhaps after a clear, so each batch is
//! marked under that lock with the host's clear epoch.
//!
//! # Exclusive tiers are one cache
//!
//! With `lru` the device evicts blocks in the order of their last use, the oldest first. So the
//! host's order, by arrival, is the order of last use, and both tiers together hold what one cache
//! with the sum of their capacities would hold. Blocks that are being copied to the device are
//! pinned and do not count towards the host's capacity: they leave the host before the blocks that
//! they displace arrive. The reference model of two tiers is computed this way, and the replay
//! equals it request by request.

mod copies;
mod hints;
mod matching;
mod offloading;
mod onboarding;
mod session;
mod sink;
mod sizes;
mod start;
mod stats;

use std::{fmt, io, sync::Arc};

use radixkv::{Acquired, Namespace, PrefixCache, ReserveError, Token};
use radixkv_tiers::caught;

pub use matching::TieredMatch;
pub use onboarding::Onboarding;
pub use session::TieredSession;
pub use start::TieredStart;
pub use stats::TieredStats;

use crate::{
    fetch::RemoteWait,
    mover::{MoveError, Mover},
    tier::HostTier,
    write_policy::WritePolicy,
};
use copies::Copies;
use session::Request;
use sink::TierSink;
use sizes::Sizes;
use stats::Counters;

/// Whether a block may be in both tiers at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TierMode {
    /// Exclusive: a block is in one tier, and a hit moves it from the host to the device. The two
    /// tiers hold the sum of their capacities. For a tier with one cache.
    #[default]
    Exclusive,
    /// Shared: a hit is copied to the device and stays in the host, where other caches also find
    /// it.
    Shared,
}

/// A [`PrefixCache`] on the device with a [`HostTier`] below it. A handle: clones share both.
///
/// It is the cache's [eviction sink](radixkv::EvictionSink): blocks that are evicted for a request,
/// by the background thread ([`Eviction::Background`](radixkv::Eviction::Background)), for a quota
/// or for their age are copied to the host.
#[derive(Clone)]
pub struct TieredCache {
    /// Dropped first: the cache offers nothing more after the last handle is dropped.
    sink: Arc<SinkHandle>,
    shared: Arc<Shared>,
}

/// Removes the eviction sink when the last handle is dropped, even while copies in flight keep
/// [`Shared`] alive.
struct SinkHandle(PrefixCache);

struct Shared {
    cache: PrefixCache,
    host: HostTier,
    mover: Box<dyn Mover>,
    mode: TierMode,
    write: WritePolicy,
    remote_wait: RemoteWait,
    sizes: Sizes,
    counters: Counters,
    /// The queue of the mover's thread, if there is one.
    copies: Option<Copies>,
}

/// Configures a [`TieredCache`].
#[must_use]
pub struct TieredBuilder {
    cache: PrefixCache,
    host: HostTier,
    mover: Box<dyn Mover>,
    mode: TierMode,
    write: WritePolicy,
    remote_wait: RemoteWait,
    in_flight: Option<usize>,
}

/// Why a [`TieredCache`] could not be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TieredBuildError {
    /// Neither block size is a multiple of the other.
    #[error("device blocks of {device} tokens and host blocks of {host}: one size must be a multiple of the other")]
    BlockSizes {
        /// Tokens in a block of the cache.
        device: usize,
        /// Tokens in a block of the tier.
        host: usize,
    },
    /// The host's blocks are larger than the device's: use smaller ones, or [`TierMode::Shared`].
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
    /// The bytes of a host block do not divide into its device blocks.
    #[error("host blocks of {bytes} bytes do not divide into {parts} device blocks")]
    UnevenBytes {
        /// Bytes of a host block.
        bytes: usize,
        /// Device blocks in a host block.
        parts: usize,
    },
    /// Exclusive tiers cannot write through: use [`TierMode::Shared`] or [`WritePolicy::Back`].
    #[error("write-through keeps each block in both tiers: use shared tiers, or write-back")]
    ExclusiveThrough,
    /// The number of blocks in flight is zero.
    #[error("0 blocks in flight requested: at least 1 is needed")]
    NothingInFlight,
    /// The system could not start a thread.
    #[error("starting a thread for the tiers failed: {kind}")]
    NoThread {
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
    /// The cache has an external pool: build it with its own pool.
    #[error("the cache has an external pool: a host tier needs a cache that owns its pool")]
    External,
    /// The cache already has an eviction sink: another tiered cache, or one that it was built with.
    #[error("the cache has an eviction sink already: build it without one, and one tiered cache over it")]
    HasSink,
}

impl TieredCache {
    /// Configures `cache` with `host` below it; `mover` copies blocks between them.
    pub fn builder(cache: &PrefixCache, host: &HostTier, mover: impl Mover + 'static) -> TieredBuilder {
        TieredBuilder {
            cache: cache.clone(),
            host: host.clone(),
            mover: Box::new(mover),
            mode: TierMode::default(),
            write: WritePolicy::default(),
            remote_wait: RemoteWait::default(),
            in_flight: None,
        }
    }

    /// The cache of the device.
    pub fn cache(&self) -> &PrefixCache {
        &self.shared.cache
    }

    /// The host tier below the cache.
    pub fn host(&self) -> &HostTier {
        &self.shared.host
    }

    /// Whether a block may be in both tiers at once.
    pub fn mode(&self) -> TierMode {
        self.shared.mode
    }

    /// Creates a session for the calling thread.
    pub fn session(&self) -> TieredSession {
        TieredSession::new(&self.sink, &self.shared)
    }

    /// [`TieredSession::acquire_until`] without a deadline, as a future. It waits for its turn as
    /// [`PrefixCache::acquire_async`] does, and then for the mover's thread, if there is one. It
    /// does not wait for remote tiers: it uses the blocks that have arrived from them by its turn.
    ///
    /// Without a mover's thread, the polling thread copies. A poll that evicts waits until the
    /// evicted blocks are copied, even if the mover's thread copies them. Dropping the future
    /// cancels the request; copies that have begun are completed, and stay cached.
    ///
    /// # Errors
    ///
    /// As [`PrefixCache::acquire_async`].
    ///
    /// # Panics
    ///
    /// As [`PrefixCache::acquire_async`].
    pub fn acquire_async(
        &self,
        namespace: &Namespace,
        tokens: impl Into<Box<[Token]>>,
        room: usize,
    ) -> impl Future<Output = Result<TieredStart, ReserveError>> + Send + 'static {
        let (tiers, namespace, tokens) = (self.clone(), namespace.clone(), tokens.into());
        async move {
            drop(tiers.session().find(&namespace, &tokens));
            let Acquired { hit, blocks, .. } = tiers.cache().acquire_async(&namespace, &tokens[..], room).await?;
            let onboarding = {
                let (session, request) = (tiers.session(), Request { namespace: &namespace, tokens: &tokens, room });
                session.onboard(request, session.prepared(request, hit, blocks, 0))
            };
            Ok(onboarding.done_by_mover().await)
        }
    }

    /// Evicts up to `blocks` device blocks as [`PrefixCache::evict`] does, and waits until they are
    /// copied to the host and free, even if the [`mover_thread`](TieredBuilder::mover_thread) is
    /// busy. Returns how many were evicted.
    pub fn evict(&self, blocks: usize) -> usize {
        self.shared.evict(blocks)
    }

    /// Clears all namespaces on the device and in the host. Once it returns, no block that was
    /// computed before the call is found in either, or comes back from remote tiers. Other
    /// processes still find the blocks that were stored in remote tiers before. A request that
    /// began earlier keeps its blocks, and publishes none of them.
    ///
    /// With other caches over the same tier, hold [`HostTier::keep_all_out`] during the clears of
    /// all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::PrefixCache;
    /// use radixkv_host::{HostTier, NoCopies, TieredCache};
    ///
    /// let cache = PrefixCache::builder(2, 8).build()?;
    /// let host = HostTier::builder(2, 8).build()?;
    /// let tiers = TieredCache::builder(&cache, &host, NoCopies).build()?;
    /// let (session, space) = (tiers.session(), cache.default_namespace());
    /// let start = session.acquire(&space, &[1, 2, 3, 4], 0)?;
    /// drop(session.insert(&space, &start.lease, &[1, 2, 3, 4], start.blocks)?);
    /// tiers.evict(1); // one block is in the host now, one on the device
    /// tiers.clear(); // other weights: all that was computed is of no use
    /// assert_eq!(session.match_prefix(&space, &[1, 2, 3, 4]).len_tokens(), 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) {
        let _kept_out = self.shared.host.keep_all_out();
        self.shared.cache.clear();
    }

    /// Clears a namespace on the device and in the host, as [`clear`](Self::clear) does for all.
    ///
    /// With other caches over the same tier, hold [`HostTier::keep_out`] during the clears of all
    /// of them.
    pub fn clear_namespace(&self, namespace: &Namespace) {
        let _kept_out = self.shared.host.keep_out(&namespace.name());
        namespace.clear();
    }

    /// Removes a namespace on the device, and clears it in the host, as
    /// [`clear_namespace`](Self::clear_namespace) does.
    pub fn drop_namespace(&self, namespace: &Namespace) {
        let _kept_out = self.shared.host.keep_out(&namespace.name());
        namespace.remove();
    }

    /// The statistics of the copies between the tiers since the cache was built.
    pub fn stats(&self) -> TieredStats {
        self.shared.counters.read()
    }
}

impl Shared {
    /// Whether the mover completed its copies; a mover that panics did not.
    fn is_moved(&self, copy: impl FnOnce(&dyn Mover) -> Result<(), MoveError>) -> bool {
        caught(|| copy(&*self.mover).is_ok()) == Some(true)
    }
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        self.0.settings().remove_eviction_sink();
    }
}

impl TieredBuilder {
    /// Sets whether a block may be in both tiers at once. Default: [`TierMode::Exclusive`].
    pub fn mode(self, mode: TierMode) -> Self {
        Self { mode, ..self }
    }

    /// Sets when a block is copied to the host. Default: [`WritePolicy::Back`].
    pub fn write_policy(self, write: WritePolicy) -> Self {
        Self { write, ..self }
    }

    /// Sets how long a request waits for blocks of its prompt from the remote tiers below the host.
    /// Default: [`RemoteWait::BestEffort`].
    pub fn remote_wait(self, remote_wait: RemoteWait) -> Self {
        Self { remote_wait, ..self }
    }

    /// Copies on a separate thread, with at most `blocks` blocks in flight.
    /// [`TieredSession::begin`] and a [`TieredSession::insert`] that writes through then do not
    /// wait for copies, only for room in the queue, in the order of the requests. A copy of more
    /// than `blocks` blocks runs when no other is in flight. The mover may use the tiers itself:
    /// such calls copy before they return. Default: the calling thread copies.
    pub fn mover_thread(self, blocks: usize) -> Self {
        Self { in_flight: Some(blocks), ..self }
    }

    /// Builds the tiered cache.
    ///
    /// # Errors
    ///
    /// [`TieredBuildError`].
    pub fn build(self) -> Result<TieredCache, TieredBuildError> {
        self.check()?;
        let Self { cache, host, mover, mode, write, remote_wait, in_flight } = self;
        let no_thread = |error: io::Error| TieredBuildError::NoThread { kind: error.kind() };
        let copies = in_flight.map(Copies::start).transpose().map_err(no_thread)?;
        let shared = Arc::new(Shared {
            sizes: Sizes { device: cache.block_size(), host: host.block_size() },
            cache,
            host,
            mover,
            mode,
            write,
            remote_wait,
            counters: Counters::default(),
            copies,
        });
        let sink = TierSink { host: shared.host.clone(), shared: Arc::downgrade(&shared) };
        shared.cache.settings().set_eviction_sink(sink).map_err(|_| TieredBuildError::HasSink)?;
        Ok(TieredCache { sink: Arc::new(SinkHandle(shared.cache.clone())), shared })
    }

    fn check(&self) -> Result<(), TieredBuildError> {
        let Self { cache, host, mode, write, in_flight, .. } = self;
        let sizes = Sizes { device: cache.block_size(), host: host.block_size() };
        let Sizes { device, host: host_size } = sizes;
        if !sizes.are_multiples() {
            return Err(TieredBuildError::BlockSizes { device, host: host_size });
        }
        if *mode == TierMode::Exclusive && host_size > device {
            return Err(TieredBuildError::ExclusiveInPieces { device, host: host_size });
        }
        if *mode == TierMode::Exclusive && *write == WritePolicy::Through {
            return Err(TieredBuildError::ExclusiveThrough);
        }
        let parts = (host_size / device).max(1);
        if host.block_bytes() % parts != 0 {
            return Err(TieredBuildError::UnevenBytes { bytes: host.block_bytes(), parts });
        }
        if cache.external().is_some() {
            return Err(TieredBuildError::External);
        }
        if *in_flight == Some(0) {
            return Err(TieredBuildError::NothingInFlight);
        }
        Ok(())
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
