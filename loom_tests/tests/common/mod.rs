//! Shared parts of the models: functions that explore a model, and a small cache ([`World`]) in
//! which each block's memory holds a stamp of the prefix that it was written for.
#![allow(dead_code)]

use std::sync::Arc;

#[cfg(radixkv_loom)]
use radixkv::internals::at_rest;
use radixkv::{
    BlockId, Clock, Inserted, Lease, Namespace, PolicyKind, PrefixCache, PrefixMatch, Reservation, Session, Stats,
    Token,
};

#[cfg(radixkv_loom)]
#[allow(unused_imports)]
pub use explore::{explore, explore_fewer_loads, explore_less, explore_more, explore_order, spawn};

#[cfg(radixkv_loom)]
mod explore {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Instant;

    use loom::thread::{Builder, JoinHandle};
    use radixkv::internals::{Loads, explore_loads, track};

    /// Maximum preemptions of a model if `LOOM_MAX_PREEMPTIONS` is not set.
    const PREEMPTIONS: usize = 3;
    /// Maximum steps of one execution; a longer model counts as endless.
    const BRANCHES: usize = 50_000;
    /// Executions between two checks of `LOOM_MAX_DURATION`.
    const CAPPED_EVERY: usize = 250;
    /// Stack size of a thread: the evictor's frames do not fit into loom's default stacks.
    const STACK: usize = 1 << 18;

    /// Explores every order of events of `model` with up to three preemptions, and every value that
    /// weak memory allows a load to return with up to two.
    pub fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
        explore_with([0, 1], name, model);
    }

    /// Like [`explore`], with one preemption less for weak memory: for models with many old values.
    pub fn explore_fewer_loads(name: &str, model: impl Fn() + Send + Sync + 'static) {
        explore_with([0, 2], name, model);
    }

    /// Like [`explore`], with one preemption less for both: for models with three threads, which
    /// otherwise take too long.
    pub fn explore_less(name: &str, model: impl Fn() + Send + Sync + 'static) {
        explore_with([1, 2], name, model);
    }

    /// Like [`explore`], with three preemptions for both: for small models.
    pub fn explore_more(name: &str, model: impl Fn() + Send + Sync + 'static) {
        explore_with([0, 0], name, model);
    }

    /// Explores every order of events with up to two preemptions, without weak memory: for models
    /// with too many old values.
    pub fn explore_order(name: &str, model: impl Fn() + Send + Sync + 'static) {
        explore_with([1, usize::MAX], name, model);
    }

    fn explore_with(fewer: [usize; 2], name: &str, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        let most = builder.preemption_bound.unwrap_or(PREEMPTIONS);
        builder.max_branches = BRANCHES;
        // How often loom checks its limits.
        builder.checkpoint_interval = CAPPED_EVERY;
        let unbounded = std::env::var_os("RADIXKV_UNBOUNDED").is_some();
        let model = Arc::new(model);
        let only = std::env::var("RADIXKV_LOADS").unwrap_or_default();
        for (kind, loads, fewer) in [(Loads::Exact, "exact", fewer[0]), (Loads::Weak, "weak", fewer[1])] {
            if fewer == usize::MAX || (!only.is_empty() && only != loads) {
                continue;
            }
            explore_loads(kind);
            let bound = most.saturating_sub(fewer).max(1);
            builder.preemption_bound = (!unbounded).then_some(bound);
            let executions = Arc::new(AtomicU64::new(0));
            let began = Instant::now();
            let (counted, model) = (Arc::clone(&executions), Arc::clone(&model));
            builder.check(move || {
                counted.fetch_add(1, Relaxed);
                track::begin();
                let model = Arc::clone(&model);
                spawn(move || model()).join().unwrap();
                track::end();
            });
            let (executions, seconds) = (executions.load(Relaxed), began.elapsed().as_secs_f64());
            let bound = if unbounded { "all".into() } else { bound.to_string() };
            let capped = builder.max_duration.is_some_and(|cap| began.elapsed() >= cap);
            let end = if capped { ", not all of them" } else { "" };
            println!(
                "MODEL {name:<58} {loads:<5} {bound} preemptions {executions:>8} executions {seconds:>6.2} s{end}"
            );
        }
    }

    /// Starts a thread of the model. There can be at most three besides the first.
    pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        Builder::new().stack_size(STACK).spawn(body).unwrap()
    }
}

#[cfg(not(radixkv_loom))]
fn at_rest<T>(body: impl FnOnce() -> T) -> T {
    body()
}

#[cfg(radixkv_loom)]
type Cell = loom::cell::UnsafeCell<u64>;
#[cfg(not(radixkv_loom))]
type Cell = std::cell::Cell<u64>;

/// The memory of each block. It is written under a reservation and read under a lease; loom reports
/// accesses that are not ordered.
pub struct Stamps(Box<[Cell]>);

// SAFETY: the threads of a model run on one OS thread; loom tracks the accesses of its cells.
unsafe impl Sync for Stamps {}
// SAFETY: as above.
unsafe impl Send for Stamps {}

impl Stamps {
    fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| Cell::new(0)).collect())
    }

    fn write(&self, block: BlockId, stamp: u64) {
        #[cfg(radixkv_loom)]
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        self.0[block as usize].with_mut(|cell| unsafe { *cell = stamp });
        #[cfg(not(radixkv_loom))]
        self.0[block as usize].set(stamp);
    }

    fn read(&self, block: BlockId) -> u64 {
        #[cfg(radixkv_loom)]
        // SAFETY: as above.
        return self.0[block as usize].with(|cell| unsafe { *cell });
        #[cfg(not(radixkv_loom))]
        self.0[block as usize].get()
    }
}

/// A hash of a prefix, which stands for the keys and values of its last block.
fn stamp(prefix: &[Token]) -> u64 {
    prefix.iter().fold(1, |hash: u64, &token| (hash ^ u64::from(token) ^ 0x55).wrapping_mul(0x0100_0000_01b3))
}

/// A cache, the memory of its blocks, and the namespace that most models use.
pub struct World {
    pub cache: PrefixCache,
    pub space: Namespace,
    stamps: Stamps,
}

/// One thread's session. It checks the stamps of all blocks that it leases, and writes the stamps
/// of all blocks that it inserts.
pub struct Actor {
    pub world: Arc<World>,
    pub session: Session,
}

impl World {
    pub fn new(block_size: usize, capacity: usize) -> Arc<Self> {
        Self::build(PrefixCache::builder(block_size, capacity), capacity)
    }

    pub fn build(builder: radixkv::Builder, capacity: usize) -> Arc<Self> {
        let cache = builder.clock(Clock::Logical).build().unwrap();
        let space = cache.default_namespace();
        Arc::new(Self { cache, space, stamps: Stamps::new(capacity) })
    }

    /// A world in which `sequences` are cached, idle and settled.
    pub fn with(block_size: usize, capacity: usize, sequences: &[&[Token]]) -> Arc<Self> {
        Self::filled(PrefixCache::builder(block_size, capacity), capacity, sequences)
    }

    /// Like [`with`](Self::with), but without silent points, so that every lease is queued for the
    /// evictor.
    pub fn told(block_size: usize, capacity: usize, sequences: &[&[Token]]) -> Arc<Self> {
        Self::filled(PrefixCache::builder(block_size, capacity).policy(PolicyKind::Filo), capacity, sequences)
    }

    /// Like [`with`](Self::with), with another configuration of the cache.
    pub fn filled(builder: radixkv::Builder, capacity: usize, sequences: &[&[Token]]) -> Arc<Self> {
        let world = Self::build(builder, capacity);
        at_rest(|| {
            let actor = Actor::new(&world);
            sequences.iter().for_each(|tokens| drop(actor.insert(tokens)));
            world.cache.settle();
        });
        world
    }

    /// Runs `body` on a new thread, in parallel with earlier ones, and waits for it.
    #[cfg(radixkv_loom)]
    pub fn beside<T: Send + 'static>(self: &Arc<Self>, body: impl FnOnce(&Self) -> T + Send + 'static) -> T {
        let world = Arc::clone(self);
        spawn(move || body(&world)).join().unwrap()
    }

    /// Checks that every block holds the stamp of its prefix.
    pub fn check(&self, tokens: &[Token], first: usize, blocks: &[BlockId]) {
        let size = self.cache.block_size();
        for (i, &block) in blocks.iter().enumerate() {
            let prefix = &tokens[..(first + i + 1) * size];
            assert_eq!(self.stamps.read(block), stamp(prefix), "block {block} is not the one of {prefix:?}");
        }
    }

    /// Writes the stamps of `tokens` after position `from` to the reservation's blocks.
    pub fn write(&self, tokens: &[Token], from: usize, reservation: &Reservation) {
        let size = self.cache.block_size();
        for (i, &block) in reservation.blocks().iter().enumerate() {
            self.stamps.write(block, stamp(&tokens[..(from / size + i + 1) * size]));
        }
    }

    /// Settles, and checks that the block counts add up and that every invariant holds, with
    /// `protected` leased and `reserved` reserved blocks. Call it only while no other thread runs.
    pub fn rest(&self, protected: usize, reserved: usize) -> Stats {
        at_rest(|| self.rest_now(protected, reserved))
    }

    fn rest_now(&self, protected: usize, reserved: usize) -> Stats {
        self.cache.settle();
        self.cache.validate().unwrap();
        let stats = self.cache.stats();
        let cached = stats.evictable_blocks + stats.protected_blocks;
        assert_eq!(stats.protected_blocks, protected, "protected: {stats:?}");
        assert_eq!(stats.free_blocks + cached + reserved, stats.capacity_blocks, "conservation: {stats:?}");
        // Blocks that a clear frees are not counted as evicted.
        assert!(stats.inserted_blocks - stats.evicted_blocks >= cached as u64, "flow: {stats:?}");
        stats
    }

    /// Evicts everything and checks that nothing remains. There must be no leases or reservations.
    /// Returns the number of blocks that were cached.
    pub fn close(self: Arc<Self>) -> usize {
        let stats = self.rest(0, 0);
        let evicted = at_rest(|| self.cache.evict(stats.capacity_blocks));
        assert_eq!(evicted, stats.evictable_blocks, "evictable is what evicting everything frees");
        let stats = self.rest(0, 0);
        assert_eq!((stats.free_blocks, stats.runs, stats.points), (stats.capacity_blocks, 0, 0));
        assert_eq!(Arc::strong_count(&self), 1);
        evicted
    }
}

impl Actor {
    pub fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), session: world.cache.session() }
    }

    /// Leases the longest cached prefix of `tokens`, and checks the stamps of its blocks.
    pub fn find(&self, tokens: &[Token]) -> PrefixMatch {
        self.find_in(&self.world.space, tokens)
    }

    pub fn find_in(&self, space: &Namespace, tokens: &[Token]) -> PrefixMatch {
        let found = self.session.match_prefix(space, tokens);
        assert_eq!(found.blocks().len() * self.world.cache.block_size(), found.len_tokens());
        self.world.check(tokens, 0, found.blocks());
        found
    }

    /// Writes the stamps of `tokens` after position `from` to the reservation's blocks.
    pub fn fill(&self, tokens: &[Token], from: usize, reservation: &Reservation) {
        self.world.write(tokens, from, reservation);
    }

    /// Caches `tokens`, and returns their lease.
    pub fn insert(&self, tokens: &[Token]) -> Inserted {
        let found = self.find(tokens);
        self.insert_from(found.lease(), tokens)
    }

    /// Caches the blocks of `tokens` beyond `lease`.
    pub fn insert_from(&self, lease: &Lease, tokens: &[Token]) -> Inserted {
        let size = self.world.cache.block_size();
        let (from, needed) = (lease.len_tokens(), tokens.len() / size - lease.len_tokens() / size);
        let reservation = self.session.reserve(needed).expect("models leave room for what they insert");
        self.fill(tokens, from, &reservation);
        let inserted = self.session.insert(lease, tokens, reservation).expect("the namespace stands");
        assert_eq!(inserted.lease.len_tokens(), tokens.len() / size * size);
        assert_eq!(inserted.blocks.len(), needed);
        self.world.check(tokens, from / size, &inserted.blocks);
        inserted
    }
}
