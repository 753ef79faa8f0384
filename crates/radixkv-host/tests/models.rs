//! Models of blocks on their way between the tiers (R14): against lookups, inserts, clears, other
//! evictions, and whoever takes their place.
//!
//! Property: a block of the device is not written to before its copy to the host is done, a host
//! block not while it is filled or read; each is free exactly once; what is found is what its
//! tokens ask for; nothing comes back that was cleared.
//!
//! Every order of the tiers' and the cache's steps with up to two preemptions. The cache's own
//! orderings have models of their own.
//!
//! Seeded bugs: `seeded_bugs.py` of the package.
#![cfg(radixkv_loom)]
#![allow(unsafe_code)]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use loom::{cell::UnsafeCell, thread::JoinHandle};
use radixkv::{
    Clock, Namespace, PrefixCache, Token,
    internals::{Loads, at_rest, explore_loads, track},
};
use radixkv_host::{HostTier, MoveError, Mover, TieredCache, ToDevice, ToHost};

/// The evictor's frames do not fit the checker's own stacks.
const STACK: usize = 1 << 18;
const PREEMPTIONS: usize = 2;

fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.map_or(PREEMPTIONS, |most| most.min(PREEMPTIONS)));
    builder.max_branches = 50_000;
    explore_loads(Loads::Exact);
    let (model, executions, began) = (Arc::new(model), Arc::new(AtomicU64::new(0)), std::time::Instant::now());
    let counted = Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        track::begin();
        let model = Arc::clone(&model);
        spawn(move || model()).join().unwrap();
        track::end();
    });
    println!("MODEL {name:<40} {:>8} executions {:>6.2} s", executions.load(Relaxed), began.elapsed().as_secs_f64());
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    loom::thread::Builder::new().stack_size(STACK).spawn(body).unwrap()
}

/// The memory of blocks: loom reports an access that is not ordered with a write.
struct Stamps(Box<[UnsafeCell<u64>]>);

// SAFETY: the threads of a model share one thread of the system; loom tracks the accesses of its
// cells.
unsafe impl Sync for Stamps {}
// SAFETY: as above.
unsafe impl Send for Stamps {}

impl Stamps {
    fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| UnsafeCell::new(0)).collect())
    }

    fn write(&self, block: u32, stamp: u64) {
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        self.0[block as usize].with_mut(|cell| unsafe { *cell = stamp });
    }

    fn read(&self, block: u32) -> u64 {
        // SAFETY: as above.
        self.0[block as usize].with(|cell| unsafe { *cell })
    }
}

/// A number for a prefix, on which the keys and values of its last block depend.
fn stamp(prefix: &[Token]) -> u64 {
    prefix.iter().fold(1, |hash, &token| (hash ^ u64::from(token) ^ 0x55).wrapping_mul(0x0100_0000_01b3))
}

/// A mover between the memories of a device and of a host.
struct Memories {
    device: Stamps,
    host: Stamps,
    /// Whether copies to the host fail, after they wrote.
    fails: bool,
}

impl Mover for Memories {
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        copies.iter().for_each(|copy| self.host.write(copy.host_block, self.device.read(copy.block)));
        if self.fails { Err(MoveError::new("planned")) } else { Ok(()) }
    }

    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        copies.iter().for_each(|copy| self.device.write(copy.block, self.host.read(copy.host_block)));
        Ok(())
    }
}

/// A cache over a tier, with blocks of one token.
struct World {
    tiers: TieredCache,
    space: Namespace,
    memories: Arc<Memories>,
}

impl World {
    /// With so many blocks, and prompts that are cached on the device.
    fn with(device: usize, host: usize, prompts: &[&[Token]]) -> Arc<Self> {
        Self::build(device, host, prompts, false)
    }

    fn build(device: usize, host: usize, prompts: &[&[Token]], fails: bool) -> Arc<Self> {
        let cache = PrefixCache::builder(1, device).clock(Clock::Logical).build().unwrap();
        let tier = HostTier::builder(1, host).build().unwrap();
        let memories = Arc::new(Memories { device: Stamps::new(device), host: Stamps::new(host), fails });
        let tiers = TieredCache::builder(&cache, &tier, Arc::clone(&memories)).build().unwrap();
        let world = Arc::new(Self { tiers, space: cache.default_namespace(), memories });
        at_rest(|| prompts.iter().for_each(|prompt| assert!(world.serve(prompt), "there is room")));
        world
    }

    /// Serves a request: reads what is found, and computes the rest. False if there was no room.
    fn serve(&self, prompt: &[Token]) -> bool {
        let session = self.tiers.session();
        let Ok(start) = session.acquire(&self.space, prompt, 0) else { return false };
        let own = start.blocks.blocks().to_vec();
        let table: Vec<u32> = start.cached.iter().copied().chain(own).collect();
        let found = start.len_tokens();
        (0..found).for_each(|at| self.check(prompt, at, table[at]));
        (found..prompt.len()).for_each(|at| self.memories.device.write(table[at], stamp(&prompt[..=at])));
        let first = start.lease.len_tokens();
        let inserted = session.insert(&self.space, &start.lease, prompt, start.blocks).unwrap();
        (first..).zip(&inserted.blocks).for_each(|(at, &block)| self.check(prompt, at, block));
        true
    }

    fn check(&self, prompt: &[Token], at: usize, block: u32) {
        assert_eq!(self.memories.device.read(block), stamp(&prompt[..=at]), "token {at} of {prompt:?}, block {block}");
    }

    /// Serves a request beside those that were started before, and waits for it.
    fn beside<T: Send + 'static>(self: &Arc<Self>, body: impl FnOnce(&Self) -> T + Send + 'static) -> T {
        let world = Arc::clone(self);
        spawn(move || body(&world)).join().unwrap()
    }

    /// Starts a thread that does this.
    fn start<T: Send + 'static>(self: &Arc<Self>, body: impl FnOnce(&Self) -> T + Send + 'static) -> JoinHandle<T> {
        let world = Arc::clone(self);
        spawn(move || body(&world))
    }

    /// Which of the prompts' blocks are on the device, and which in the host.
    fn places(&self, prompt: &[Token]) -> [usize; 2] {
        let device = self.tiers.session().device().peek(&self.space, prompt);
        [device, self.tiers.host().peek(&self.space.name(), prompt, device)]
    }

    /// Checks that nothing is held in either tier, and that all that is found of `prompts` is
    /// right; their places before.
    fn rest<const N: usize>(&self, prompts: [&[Token]; N]) -> [[usize; 2]; N] {
        at_rest(|| {
            let cache = self.tiers.cache();
            cache.settle();
            cache.validate().unwrap();
            let (device, host, tiers) = (cache.stats(), self.tiers.host().stats(), self.tiers.stats());
            assert_eq!(device.free_blocks + device.evictable_blocks, device.capacity_blocks, "{device:?}");
            self.tiers.host().validate().unwrap();
            assert_eq!((host.pinned_blocks, host.reserved_blocks), (0, 0), "{host:?}");
            assert_eq!(host.free_blocks + host.cached_blocks, self.tiers.host().capacity_blocks(), "{host:?}");
            // What loom reports in the mover is taken for its failure.
            assert_eq!((tiers.failed_onboard_tokens, tiers.failed_offload_blocks > 0), (0, self.memories.fails));
            let places = prompts.map(|prompt| self.places(prompt));
            prompts.iter().for_each(|prompt| _ = self.serve(prompt));
            places
        })
    }
}

const A: &[Token] = &[1];
const B: &[Token] = &[2];

#[test]
fn a_block_on_its_way_is_looked_for() {
    explore("evict 1 vs serve the same", || {
        let world = World::with(2, 2, &[A]);
        let evicts = world.start(|world| world.tiers.evict(1));
        assert!(world.beside(|world| world.serve(A)));
        evicts.join().unwrap();
        let [places] = world.rest([A]);
        assert!(places.contains(&1), "it is in one of the tiers at least: {places:?}");
    });
}

// Holds: HT28.
#[test]
fn the_place_of_a_block_on_its_way_is_wanted() {
    explore("evict 1 vs serve another", || {
        let world = World::with(1, 2, &[A]);
        let evicts = world.start(|world| world.tiers.evict(1));
        let served = world.beside(|world| world.serve(B));
        evicts.join().unwrap();
        let [a, b] = world.rest([A, B]);
        assert_eq!(a, [0, 1], "it left the device, and is in the host");
        assert_eq!(b.contains(&1), served, "{b:?}");
    });
}

// Holds: HT28.
#[test]
fn what_follows_a_block_on_its_way_is_inserted() {
    explore("evict 2 vs serve 1,2,3", || {
        let world = World::with(3, 3, &[&[1, 2]]);
        let evicts = world.start(|world| world.tiers.evict(2));
        world.beside(|world| world.serve(&[1, 2, 3]));
        evicts.join().unwrap();
        let [[device, host]] = world.rest([&[1, 2, 3]]);
        assert!(device + host >= 2, "{device} on the device, then {host} in the host");
    });
}

// Holds: HT28.
#[test]
fn the_namespace_of_a_block_on_its_way_is_cleared() {
    explore("evict 1 vs clear", || {
        let world = World::with(1, 2, &[A]);
        let evicts = world.start(|world| world.tiers.evict(1));
        world.beside(|world| world.tiers.clear_namespace(&world.space));
        evicts.join().unwrap();
        assert_eq!(world.rest([A]), [[0, 0]], "what was computed before the clear is nowhere");
    });
}

/// The cache evicts by itself, and its sink is called after the lock: the clear may be over by
/// then.
#[test]
fn the_namespace_of_a_block_that_the_cache_has_evicted_is_cleared() {
    explore("the cache evicts 1 vs clear", || {
        let world = World::with(1, 2, &[A]);
        let evicts = world.start(|world| world.tiers.cache().evict(1));
        world.beside(|world| world.tiers.clear_namespace(&world.space));
        evicts.join().unwrap();
        assert_eq!(world.rest([A]), [[0, 0]], "what was computed before the clear is nowhere");
    });
}

#[test]
fn a_block_that_the_cache_has_evicted_is_looked_for() {
    explore("the cache evicts 1 vs serve the same", || {
        let world = World::with(2, 2, &[A]);
        let evicts = world.start(|world| world.tiers.cache().evict(1));
        assert!(world.beside(|world| world.serve(A)));
        evicts.join().unwrap();
        let [places] = world.rest([A]);
        assert!(places.contains(&1), "it is in one of the tiers at least: {places:?}");
    });
}

#[test]
fn two_blocks_on_their_way_to_one_place() {
    explore("evict 1 vs evict 1", || {
        let world = World::with(2, 1, &[A, B]);
        let evicts = world.start(|world| world.tiers.evict(1));
        let evicted = world.beside(|world| world.tiers.evict(1)) + evicts.join().unwrap();
        assert_eq!(evicted, 2);
        let places = world.rest([A, B]);
        assert_eq!(places.concat().iter().sum::<usize>(), 1, "the host has room for one: {places:?}");
    });
}

// Holds: HT28.
#[test]
fn the_place_in_the_host_that_is_read_is_wanted() {
    explore("serve from the host vs evict 1", || {
        let world = World::with(2, 1, &[A]);
        at_rest(|| assert!(world.tiers.evict(1) == 1 && world.serve(B)));
        let evicts = world.start(|world| world.tiers.evict(1));
        assert!(world.beside(|world| world.serve(A)));
        evicts.join().unwrap();
        let [a, _] = world.rest([A, B]);
        assert!(a.contains(&1), "{a:?}");
    });
}

#[test]
fn a_block_on_its_way_up_is_cleared_in_the_host() {
    explore("serve from the host vs clear the host", || {
        let world = World::with(2, 1, &[A]);
        at_rest(|| assert_eq!(world.tiers.evict(1), 1));
        let clears = world.start(|world| world.tiers.host().clear());
        assert!(world.beside(|world| world.serve(A)));
        clears.join().unwrap();
        assert_eq!(world.rest([A]), [[1, 0]]);
    });
}

#[test]
fn a_block_that_was_not_copied_is_looked_for() {
    explore("evict 1, not copied, vs serve the same", || {
        let world = World::build(2, 1, &[A], true);
        let evicts = world.start(|world| world.tiers.evict(1));
        assert!(world.beside(|world| world.serve(A)));
        let evicted = evicts.join().unwrap();
        let fails = at_rest(|| world.tiers.stats().failed_offload_blocks);
        assert_eq!(fails, evicted as u64);
        let host = at_rest(|| world.tiers.host().stats());
        assert_eq!((host.cached_blocks, host.reserved_blocks, host.free_blocks), (0, 0, 1));
    });
}
