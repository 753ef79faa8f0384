//! Configuring and building a cache.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::clock::{Clock, Time};
use super::eviction::background::work::turn;
use super::eviction::background::{Background, Eviction, Watermarks};
use super::eviction::eviction_sink::{EvictionSink, Sink};
use super::eviction::kept::KeptBlocks;
use super::eviction::outlet;
use super::evictor::{Heads, Live, LiveSettings, Shards};
use super::inner::Inner;
use super::insert::MAX_TOKENS;
use super::line::publications::Publications;
use super::line::wait_list::WaitList;
use super::matching::ghost_table::GhostTable;
use super::namespaces::namespace::Registry;
use super::prefix_cache::PrefixCache;
use super::session::OWN_PARTICIPANTS;
use crate::block::{BlockId, BlockLayout, Pool};
use crate::policy::PolicyKind;
use crate::reclaim::{Domain, Idle};
use crate::sync::gauge::AtomicUsize;
use crate::sync::{Arc, OnceLock, model_size, thread};
use crate::tree::{Demotions, HotPoints, MOST_SHARDS, Queues, ShardCount};

/// Configures a [`PrefixCache`]; [`build`](Builder::build) checks everything.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use radixkv::{Eviction, PolicyKind, PrefixCache, Watermarks};
///
/// let cache = PrefixCache::builder(16, 4096) // blocks of 16 tokens, 4,096 of them
///     .policy(PolicyKind::Slru)
///     .eviction(Eviction::Background(Watermarks::for_capacity(4096)))
///     .time_to_idle(Duration::from_secs(600))
///     .build()?;
/// assert_eq!(cache.settings().policy(), PolicyKind::Slru);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    block_size: usize,
    capacity: usize,
    policy: PolicyKind,
    clock: Clock,
    eviction: Eviction,
    time_to_idle: Option<Duration>,
    external: bool,
    sink: Option<Sink>,
    /// The maximum number of blocks, after growing.
    limit: usize,
    /// The maximum number of points that can be hot at once.
    pub(crate) hot_points: usize,
    /// Whether waiting for blocks is possible.
    pub(crate) waiting: bool,
    /// Whether a thread publishes its request even if no other thread waits for the evictor: for
    /// tests and models.
    pub(crate) publishing: bool,
    /// The number of the evictor's shards.
    pub(crate) shards: usize,
}

/// Why a cache could not be built.
///
/// # Examples
///
/// ```
/// use radixkv::{BuildError, Eviction, PrefixCache, Watermarks};
///
/// let builder = PrefixCache::builder(16, 64).eviction(Eviction::Background(Watermarks::new(8, 4)));
/// assert_eq!(builder.build().unwrap_err(), BuildError::Watermarks { low: 8, high: 4, capacity: 64 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The block size is zero.
    ZeroBlockSize,
    /// The capacity is zero.
    ZeroCapacity,
    /// The capacity exceeds the block ids of `u32`: build several caches.
    CapacityTooLarge {
        /// Blocks requested.
        capacity: usize,
    },
    /// The low watermark is above the high one, or the high one is above the capacity.
    Watermarks {
        /// The low watermark.
        low: usize,
        /// The high watermark.
        high: usize,
        /// Blocks requested.
        capacity: usize,
    },
    /// There are no shards, or too many.
    Shards {
        /// Shards requested.
        shards: usize,
        /// The most that a cache may have.
        most: usize,
    },
    /// The system could not start the evictor's thread.
    NoThread {
        /// The kind of the system's error.
        kind: std::io::ErrorKind,
    },
    /// The block size exceeds the length of the longest sequence.
    BlockSizeTooLarge {
        /// Tokens requested.
        block_size: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroBlockSize => f.write_str("the block size is 0 tokens: it must be at least 1"),
            Self::ZeroCapacity => f.write_str("the capacity is 0 blocks: it must be at least 1, now or by growing"),
            Self::CapacityTooLarge { capacity } => {
                write!(f, "a capacity of {capacity} blocks exceeds the {} that block ids can name", BlockId::MAX)
            }
            Self::Watermarks { low, high, capacity } => {
                write!(
                    f,
                    "watermarks: low ({low} blocks) must not exceed high ({high}), nor high the capacity ({capacity})"
                )
            }
            Self::Shards { shards, most } => {
                write!(f, "{shards} shards: there must be at least 1, and at most {most}")
            }
            Self::NoThread { kind } => write!(f, "the background thread could not be started: {kind}"),
            Self::BlockSizeTooLarge { block_size } => {
                write!(f, "a block size of {block_size} tokens exceeds the longest sequence of {MAX_TOKENS}")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// The maximum number of points that can be hot at once; none in loom's models, except those about
/// hot points.
const HOT_POINTS: usize = if cfg!(radixkv_loom) { 0 } else { model_size(63, 1) };

/// Number of stripes of a hot point: one for each core. Two in models, which make many caches and
/// would otherwise query the system each time; 16 where `benches/instructions/lines.sh` counts for
/// 16 cores.
fn stripes() -> usize {
    match if cfg!(radixkv_lines) { 16 } else { model_size(0, 2) } {
        0 => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        stripes => stripes,
    }
}

impl Builder {
    pub(super) fn new(block_size: usize, capacity: usize) -> Self {
        Self {
            block_size,
            capacity,
            policy: PolicyKind::default(),
            clock: Clock::default(),
            eviction: Eviction::Inline,
            time_to_idle: None,
            external: false,
            sink: None,
            limit: 0,
            hot_points: HOT_POINTS,
            waiting: !cfg!(radixkv_loom),
            publishing: cfg!(any(radixkv_failpoints, radixkv_chaos, radixkv_tsan)),
            shards: if cfg!(radixkv_shards) { 3 } else { 1 },
        }
    }

    /// Sets the eviction policy: which idle prefix is evicted first. Default: [`PolicyKind::Lru`].
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PolicyKind, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).policy(PolicyKind::Slru).build()?;
    /// assert_eq!(cache.settings().policy(), PolicyKind::Slru);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the source of time for matches and inserts. Default: [`Clock::Monotonic`].
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{Clock, PrefixCache};
    ///
    /// let cache = PrefixCache::builder(16, 1024).clock(Clock::Logical).build()?;
    /// cache.set_time(7); // nothing else moves the time on
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets which thread evicts. Default: [`Eviction::Inline`], and no thread is started.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{Eviction, PrefixCache, Watermarks};
    ///
    /// // A thread of the cache's own keeps some blocks free.
    /// let eviction = Eviction::Background(Watermarks::for_capacity(1024));
    /// let cache = PrefixCache::builder(16, 1024).eviction(eviction).build()?;
    /// # drop(cache);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.eviction = eviction;
        self
    }

    /// Removes prefixes that were not used for `duration`, even if their blocks are not needed;
    /// counted as [`Stats::aged_blocks`](crate::Stats::aged_blocks). Default: never.
    ///
    /// Matches, resumes and inserts are uses; a leased prefix stays until its leases are dropped. A
    /// background evictor checks at intervals of an eighth of the shortest time in force (this one
    /// or a [namespace's](crate::Quota::time_to_idle)), at least a millisecond and at most a
    /// second, so a prefix is removed at most one interval late. With inline eviction
    /// [`PrefixCache::run_once`] and [`PrefixCache::settle`] remove prefixes. Under
    /// [`Clock::Logical`] a nanosecond is one unit, and [`PrefixCache::set_time`] calls the
    /// background evictor. The cost is a second order of the candidates: about 70 bytes for each
    /// idle end of a run, and the time to maintain it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// use radixkv::{Clock, PrefixCache};
    ///
    /// let builder = PrefixCache::builder(2, 8).clock(Clock::Logical).time_to_idle(Duration::from_nanos(10));
    /// let cache = builder.build()?;
    /// let (session, space) = (cache.session(), cache.default_namespace());
    /// drop(session.insert(session.match_prefix(&space, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
    /// cache.set_time(10);
    /// cache.settle();
    /// assert_eq!((session.peek(&space, &[1, 2]), cache.stats().aged_blocks), (0, 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_to_idle(mut self, duration: Duration) -> Self {
        self.time_to_idle = Some(duration);
        self
    }

    /// Sets the sink that receives evicted blocks before they are used again. Default: none.
    ///
    /// See [`EvictionSink`] for what it receives and when.
    /// [`Settings::set_eviction_sink`](super::Settings::set_eviction_sink) sets it while the cache
    /// runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{EvictedBatch, PrefixCache};
    ///
    /// let print = |batch: EvictedBatch| batch.pieces.iter().for_each(|piece| println!("{:?}", piece.tokens));
    /// let cache = PrefixCache::builder(16, 1024).eviction_sink(print).build()?;
    /// # drop(cache);
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn eviction_sink(mut self, sink: impl EvictionSink + 'static) -> Self {
        self.sink = Some(Sink::new(sink));
        self
    }

    /// Lets the engine own the pool: it passes ids of its blocks to the cache, and takes evicted
    /// ids back. Default: the cache owns the pool.
    ///
    /// Ids are `0..capacity_blocks`, and the engine has all of them at first.
    /// [`ExternalPool::adopt`](super::ExternalPool::adopt) passes some to the cache for an insert;
    /// [`reserve`](super::Session::reserve) is refused. Blocks that are evicted, cleared or given
    /// back wait for [`take_evicted`](super::ExternalPool::take_evicted). The cache cannot know
    /// when the engine is short of blocks: it evicts when [`PrefixCache::evict`] is called, for a
    /// quota, for a time to idle, and, with [`Eviction::Background`], to keep the number of evicted
    /// ids between the watermarks.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PrefixCache, ReserveError};
    ///
    /// let cache = PrefixCache::builder(16, 1024).external().build()?;
    /// let session = cache.session();
    /// assert_eq!(session.reserve(1).unwrap_err(), ReserveError::External);
    /// let filled = cache.external().expect("an external pool").adopt(&[7])?; // a block that the engine has filled
    /// # drop(filled);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn external(mut self) -> Self {
        self.external = true;
        self
    }

    /// Divides the evictor into `shards` shards (1 to 256, default 1): sessions of different shards
    /// evict at the same time.
    ///
    /// A session first evicts prefixes that sessions of its own shard inserted. So the order of
    /// evictions is exact only within a shard: a prefix may be evicted before one of another shard
    /// that was used a little earlier. With a subscriber, a sink, a quota on cached blocks or a time
    /// to idle (even if removed since), a background evictor, or a policy other than `lru` and
    /// `fifo`, all evictions follow one order, and are no faster than with one shard.
    ///
    /// Use one for each thread that inserts. Each costs about two kilobytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::PrefixCache;
    ///
    /// let cache = PrefixCache::builder(16, 1024).shards(8).build()?;
    /// assert!(PrefixCache::builder(16, 1024).shards(0).build().is_err());
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Lets the cache [grow](PrefixCache::grow) to this many blocks while it is in use. Default: it
    /// does not grow.
    ///
    /// Each block up to the limit costs one bit from the start, or two with an external pool. The
    /// initial capacity may then be zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::PrefixCache;
    ///
    /// // An engine with an allocator of its own, which does not know yet how many blocks it will have.
    /// let cache = PrefixCache::builder(16, 0).external().growable_to(1 << 20).build()?;
    /// assert_eq!(cache.grow(512)?, 0..512);
    /// let filled = cache.external().expect("an external pool").adopt(&[511])?;
    /// # drop(filled);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn growable_to(mut self, blocks: usize) -> Self {
        self.limit = blocks;
        self
    }

    fn most_blocks(&self) -> usize {
        self.capacity.max(self.limit)
    }

    /// Builds the cache, with all blocks free.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if block size, capacity, watermarks or shards are out of range, or if the
    /// system does not start the evictor's thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{BuildError, PrefixCache};
    ///
    /// assert_eq!(PrefixCache::builder(0, 1024).build().unwrap_err(), BuildError::ZeroBlockSize);
    /// ```
    pub fn build(self) -> Result<PrefixCache, BuildError> {
        self.check()?;
        let watermarks = match self.eviction {
            Eviction::Inline => None,
            Eviction::Background(watermarks) => Some(watermarks),
        };
        let shards = ShardCount::new(self.shards);
        let bays = if shards.get() > 1 { OWN_PARTICIPANTS } else { 0 };
        let domain = Domain::with_bays(bays);
        let layout = BlockLayout::new(self.block_size as u32);
        let (idle, participant) = (Idle::new(), domain.register());
        let namespaces = Registry::new(layout, domain.records().row(), &participant);
        // The list is empty, so it has room.
        drop(idle.put(participant));
        let live = Arc::new(Live { watermarks, time_to_idle: self.time_to_idle, ..Live::default() });
        let inner = Inner {
            layout,
            queues: Queues::new(shards),
            shards,
            heads: Heads::new(shards),
            hot: HotPoints::new(self.hot_points, stripes()),
            wait_list: WaitList::new(self.waiting),
            stripes: AtomicUsize::new(0),
            own_participants: AtomicUsize::new(0),
            pool: Pool::new(self.capacity, self.most_blocks()),
            returned: self.external.then(|| Pool::empty(self.most_blocks())),
            time: Time::new(self.clock),
            demotions: Demotions::default(),
            settings: LiveSettings::new(&live),
            retentions: CachePadded::default(),
            seen: GhostTable::new(self.most_blocks()),
            namespaces,
            background: OnceLock::new(),
            publications: Publications::new(self.publishing),
            evictor: Shards::new(shards, self.policy, live),
            kept: KeptBlocks::default(),
            idle,
            domain,
        };
        let inner = Arc::new(inner);
        inner.namespaces.join(&inner);
        if let Some(sink) = self.sink {
            let outlet = Some(outlet::to_sink(&inner, sink));
            inner.change(|live| live.outlet = outlet);
        }
        if watermarks.is_some() {
            let weak = Arc::downgrade(&inner);
            let background =
                Background::start(move || turn(&weak)).map_err(|error| BuildError::NoThread { kind: error.kind() })?;
            inner.background.get_or_init(|| background);
        }
        Ok(PrefixCache { inner })
    }

    fn check(&self) -> Result<(), BuildError> {
        let (block_size, capacity) = (self.block_size, self.capacity);
        if block_size == 0 {
            return Err(BuildError::ZeroBlockSize);
        }
        let most = self.most_blocks();
        if most == 0 {
            return Err(BuildError::ZeroCapacity);
        }
        if most > BlockId::MAX as usize {
            return Err(BuildError::CapacityTooLarge { capacity: most });
        }
        if block_size > MAX_TOKENS {
            return Err(BuildError::BlockSizeTooLarge { block_size });
        }
        if !(1..=MOST_SHARDS).contains(&self.shards) {
            return Err(BuildError::Shards { shards: self.shards, most: MOST_SHARDS });
        }
        match self.eviction {
            Eviction::Background(Watermarks { low, high }) if low > high || high > capacity => {
                Err(BuildError::Watermarks { low, high, capacity })
            }
            _ => Ok(()),
        }
    }
}
