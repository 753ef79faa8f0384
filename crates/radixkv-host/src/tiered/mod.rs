//! A cache over a host tier.
//!
//! What the cache evicts is copied to the host before its blocks are written to again; what a prompt finds there is copied back
//! into blocks that were reserved for it. The cache's own verbs know nothing of it: a lookup that is answered by the device
//! never takes the tier's lock.

mod copies;
mod hints;
mod keeping_free;
mod matching;
mod offloading;
mod onboarding;
mod session;
mod sizes;
mod start;
mod stats;

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicUsize},
};

use radixkv::{Namespace, PrefixCache};

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
use keeping_free::{KeepingFree, Marks};
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

/// A [`PrefixCache`] over a [`HostTier`]. A handle: clones share both.
///
/// Evict through it ([`evict`](Self::evict)), or by [`TieredSession::acquire`]: what the cache evicts by itself (a plain
/// [`reserve`](radixkv::Session::reserve), its background thread, a quota) is not offloaded, and counted
/// ([`TieredStats::bypassed_blocks`]).
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
    remote_wait: RemoteWait,
    sizes: Sizes,
    counters: Counters,
    /// Blocks that the cache had evicted when this was built.
    evicted_before: u64,
    /// The mover's thread, if it has one.
    copies: Option<Copies>,
    keeping_free: Option<KeepingFree>,
    /// Blocks that are evicted, and not free yet.
    leaving: AtomicUsize,
}

/// Puts a cache over a tier.
#[must_use]
pub struct TieredBuilder {
    cache: PrefixCache,
    host: HostTier,
    mover: Box<dyn Mover>,
    mode: TierMode,
    write: WritePolicy,
    remote_wait: RemoteWait,
    in_flight: Option<usize>,
    marks: Option<Marks>,
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
    /// Blocks in flight are at least one.
    #[error("no block may be in flight, so that none can be copied")]
    NothingInFlight,
    /// The low mark is not above the high one, nor the high one above the capacity.
    #[error("blocks kept free: low ({low}) must not exceed high ({high}), nor high the capacity ({capacity})")]
    Marks {
        /// The low one.
        low: usize,
        /// The high one.
        high: usize,
        /// Blocks of the cache.
        capacity: usize,
    },
    /// The system refused to start a thread.
    #[error("the system did not start a thread for the tiers: {kind}")]
    NoThread {
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
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
            remote_wait: RemoteWait::default(),
            in_flight: None,
            marks: None,
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

    /// Clears everything on the device and in the host. Once it returns, nothing that was computed before it was called is found on
    /// either, and nothing of it comes back, from remote tiers neither; other processes find there what was put before. A
    /// request that began earlier keeps what it has, and publishes nothing of it.
    ///
    /// With other caches over the same tier: [`HostTier::keep_all_out`] around the clears of all of them.
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

    /// Clears a namespace on the device and in the host. What was evicted from this cache before does not come back, from remote tiers
    /// neither; other processes find there what was put before.
    ///
    /// With other caches over the same tier: [`HostTier::keep_out`] around the clears of all of them.
    pub fn clear_namespace(&self, namespace: &Namespace) {
        let _kept_out = self.shared.host.keep_out(&namespace.name());
        self.shared.cache.clear_namespace(namespace);
    }

    /// Drops a namespace on the device, and clears it in the host, as [`clear_namespace`](Self::clear_namespace) does.
    pub fn drop_namespace(&self, namespace: &Namespace) {
        let _kept_out = self.shared.host.keep_out(&namespace.name());
        self.shared.cache.drop_namespace(namespace);
    }

    /// Counts since it was built.
    pub fn stats(&self) -> TieredStats {
        let shared = &self.shared;
        // First: what is evicted through it meanwhile counts there already.
        let evicted = shared.cache.stats().evicted_blocks - shared.evicted_before;
        let counts = shared.counters.read();
        TieredStats { bypassed_blocks: evicted.saturating_sub(counts.evicted_blocks), ..counts }
    }
}

impl Shared {
    /// Whether the mover made its copies; one that panics did not.
    fn is_moved(&self, copy: impl FnOnce(&dyn Mover) -> Result<(), MoveError>) -> bool {
        matches!(catch_unwind(AssertUnwindSafe(|| copy(&*self.mover))), Ok(Ok(())))
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

    /// How long a request waits for what remote tiers below the host have of its prompt. Default: [`RemoteWait::BestEffort`].
    pub fn remote_wait(self, remote_wait: RemoteWait) -> Self {
        Self { remote_wait, ..self }
    }

    /// Copies on a thread of their own, with at most `blocks` blocks on their way: [`TieredSession::begin`] and a
    /// [`TieredSession::insert`] that writes through do not wait for copies, but for room where that many are on their way, in the
    /// order in which they came; a request of more blocks goes alone. The mover may use the tiers itself: what that copies is copied
    /// before the call returns. Default: the thread that asks copies.
    pub fn mover_thread(self, blocks: usize) -> Self {
        Self { in_flight: Some(blocks), ..self }
    }

    /// Evicts on a thread of its own when fewer than `low` blocks of the device are free, until `high` are free or on their way to the
    /// host: so a request finds free blocks. Where the mover's thread has too much to do, blocks are evicted and not copied
    /// ([`TieredStats::dropped_blocks`]). Default: the request that needs blocks evicts.
    pub fn keep_free(self, low: usize, high: usize) -> Self {
        Self { marks: Some(Marks { low, high }), ..self }
    }

    /// Puts them together.
    ///
    /// # Errors
    ///
    /// [`TieredBuildError`].
    pub fn build(self) -> Result<TieredCache, TieredBuildError> {
        self.check()?;
        let Self { cache, host, mover, mode, write, remote_wait, in_flight, marks } = self;
        let no_thread = |error: io::Error| TieredBuildError::NoThread { kind: error.kind() };
        let copies = in_flight.map(Copies::start).transpose().map_err(no_thread)?;
        let shared = Arc::new(Shared {
            evicted_before: cache.stats().evicted_blocks,
            sizes: Sizes { device: cache.block_size(), host: host.block_size() },
            cache,
            host,
            mover,
            mode,
            write,
            remote_wait,
            counters: Counters::default(),
            copies,
            keeping_free: marks.map(KeepingFree::new),
            leaving: AtomicUsize::new(0),
        });
        if let Some(keeping_free) = &shared.keeping_free {
            keeping_free.start(Arc::downgrade(&shared)).map_err(no_thread)?;
        }
        Ok(TieredCache { shared })
    }

    fn check(&self) -> Result<(), TieredBuildError> {
        let Self { cache, host, mode, write, in_flight, marks, .. } = self;
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
        if cache.is_external() {
            return Err(TieredBuildError::External);
        }
        if *in_flight == Some(0) {
            return Err(TieredBuildError::NothingInFlight);
        }
        let capacity = cache.capacity_blocks();
        match *marks {
            Some(Marks { low, high }) if low > high || high > capacity => {
                Err(TieredBuildError::Marks { low, high, capacity })
            }
            _ => Ok(()),
        }
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
