//! Content: every block carries a pattern made of its tokens, and no lookup ever leads to another
//! one's bytes.
//!
//! `STRESS_SECONDS` says for how long the threads run; `ci/nightly.sh` runs a minute.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use radixkv::{Eviction, Keys, Namespace, NamespaceName, PrefixCache, Token, Watermarks};
use radixkv_host::{
    DeviceMemory, HostTier, MoveError, Mover, TierMode, TieredCache, TieredSession, ToDevice, ToHost, WritePolicy,
};

/// Tokens and bytes of a block of the device.
const SIZE: usize = 4;
const TOKEN_BYTES: usize = 16;

/// A mover that fails now and then, after it has written some bytes.
struct Failing {
    memory: Arc<DeviceMemory>,
    calls: AtomicU64,
    /// Of how many calls one fails; 0: none.
    one_in: u64,
}

impl Failing {
    fn fails(&self) -> bool {
        // Relaxed: it only counts.
        self.one_in > 0 && self.calls.fetch_add(1, Relaxed) % self.one_in == self.one_in - 1
    }
}

impl Mover for Failing {
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        if self.fails() {
            copies.iter_mut().step_by(2).for_each(|copy| copy.bytes.fill(0xee));
            if self.calls.load(Relaxed) % 2 == 0 {
                std::panic::resume_unwind(Box::new("planned"));
            }
            return Err(MoveError::new("planned"));
        }
        self.memory.offload(copies)
    }

    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        if self.fails() {
            copies.iter().step_by(2).for_each(|copy| self.memory.write(copy.block, |bytes| bytes.fill(0xdd)));
            return Err(MoveError::new("planned"));
        }
        self.memory.onboard(copies)
    }
}

/// Caches over one tier, each with a device of its own.
struct World {
    host: HostTier,
    engines: Vec<Engine>,
}

struct Engine {
    tiers: TieredCache,
    memory: Arc<DeviceMemory>,
}

#[derive(Clone, Copy)]
struct Plan {
    host_size: usize,
    mode: TierMode,
    write: WritePolicy,
    engines: usize,
    one_in: u64,
    /// Whether threads copy, and evict ahead.
    threads: bool,
}

fn world(plan: Plan) -> World {
    let host = HostTier::builder(plan.host_size, 192 / plan.host_size).staging(64 / plan.host_size);
    let host = host.block_bytes(plan.host_size * TOKEN_BYTES).build().expect("a tier");
    let engine = |_| {
        let builder = PrefixCache::builder(SIZE, 24);
        let ahead = builder.clone().eviction(Eviction::Background(Watermarks::new(4, 8)));
        let cache = if plan.threads { ahead } else { builder }.build().expect("a cache");
        let memory = Arc::new(DeviceMemory::new(SIZE, SIZE * TOKEN_BYTES, 24));
        let mover = Failing { memory: Arc::clone(&memory), calls: AtomicU64::new(0), one_in: plan.one_in };
        let tiers = TieredCache::builder(&cache, &host, mover).mode(plan.mode).write_policy(plan.write);
        let tiers = if plan.threads { tiers.mover_thread(8) } else { tiers };
        Engine { tiers: tiers.build().expect("they go together"), memory }
    };
    World { engines: (0..plan.engines).map(engine).collect(), host }
}

/// What stands for the keys and values of token number `at`: of its namespace and of all tokens
/// that it depends on.
fn pattern(namespace: &Namespace, tokens: &[Token], at: usize) -> [u8; TOKEN_BYTES] {
    let seen = at + 1 + usize::from(namespace.keys() == Keys::Bigrams);
    let name = namespace.name();
    let salt = name.parts().flat_map(str::bytes).map(u64::from);
    let words = salt.chain(tokens[..seen].iter().map(|&token| u64::from(token)));
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let hash = words.fold(name.keys() as u64, mix);
    let mut bytes = [0; TOKEN_BYTES];
    bytes[..8].copy_from_slice(&hash.to_le_bytes());
    bytes[8..].copy_from_slice(&mix(hash, 1).to_le_bytes());
    bytes
}

impl Engine {
    fn compute(&self, namespace: &Namespace, tokens: &[Token], block: u32, at: usize) {
        let own = &mut |bytes: &mut [u8]| {
            let to = at % SIZE * TOKEN_BYTES;
            bytes[to..to + TOKEN_BYTES].copy_from_slice(&pattern(namespace, tokens, at));
        };
        self.memory.write(block, own);
    }

    fn check(&self, namespace: &Namespace, tokens: &[Token], block: u32, at: usize) {
        let from = at % SIZE * TOKEN_BYTES;
        let is_right = |bytes: &[u8]| bytes[from..from + TOKEN_BYTES] == pattern(namespace, tokens, at);
        assert!(self.memory.read(block, is_right), "token {at} of {tokens:?} in {namespace:?}, block {block}");
    }

    /// Serves a request: what is found is checked token by token, the rest is computed and
    /// inserted. Returns how much was found on the device and in the host.
    fn serve(&self, session: &TieredSession, namespace: &Namespace, tokens: &[Token]) -> Option<(usize, usize)> {
        let start = session.acquire(namespace, tokens, 0).ok()?;
        assert_eq!(start.lease.len_tokens(), start.cached.len() * SIZE);
        let own = start.blocks.blocks().to_vec();
        let table: Vec<u32> = start.cached.iter().copied().chain(own).collect();
        let found = (start.device_tokens, start.host_tokens);
        for at in 0..start.len_tokens() {
            self.check(namespace, tokens, table[at / SIZE], at);
        }
        let offset = usize::from(namespace.keys() == Keys::Bigrams);
        for at in start.len_tokens()..tokens.len().saturating_sub(offset) {
            self.compute(namespace, tokens, table[at / SIZE], at);
        }
        let whole = tokens.len().saturating_sub(offset) / SIZE;
        let mut blocks = start.blocks;
        let inserted =
            session.insert(namespace, &start.lease, tokens, blocks.split(whole - start.cached.len())).ok()?;
        for (number, &block) in (start.cached.len()..).zip(&inserted.blocks) {
            (number * SIZE..(number + 1) * SIZE).for_each(|at| self.check(namespace, tokens, block, at));
        }
        Some(found)
    }

    fn check_at_rest(&self) {
        let cache = self.tiers.cache();
        // Copies may be on their way still.
        let began = Instant::now();
        loop {
            cache.settle();
            let stats = cache.stats();
            if stats.free_blocks + stats.evictable_blocks == stats.capacity_blocks {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "something is held: {stats:?}");
            std::thread::yield_now();
        }
        cache.validate().expect("a valid cache");
    }
}

/// A prompt that shares prefixes with others, and ends anywhere.
fn prompt(rng: &mut fastrand::Rng) -> Vec<Token> {
    let (root, length) = (rng.u32(0..4), rng.usize(1..40));
    (0..length as u32).map(|at| if at % 9 == 8 { rng.u32(0..2) } else { root * 1000 + at }).collect()
}

fn spaces(cache: &PrefixCache) -> [Namespace; 3] {
    [
        cache.default_namespace(),
        cache.namespace(&["tenant"]),
        cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams)),
    ]
}

fn plans() -> impl Iterator<Item = Plan> {
    let (mode, write) = (TierMode::Exclusive, WritePolicy::Back);
    let back = Plan { host_size: SIZE, mode, write, engines: 1, one_in: 0, threads: false };
    let shared = Plan { mode: TierMode::Shared, engines: 2, ..back };
    [
        back,
        Plan { host_size: 1, ..back },
        Plan { host_size: 2, one_in: 5, ..back },
        Plan { engines: 2, ..back },
        shared,
        Plan { host_size: 1, ..shared },
        Plan { host_size: 8, ..shared },
        Plan { write: WritePolicy::Through, one_in: 7, ..shared },
        Plan { write: WritePolicy::Through, host_size: 8, ..shared },
        Plan { threads: true, ..back },
        Plan { threads: true, host_size: 1, one_in: 6, ..shared },
        Plan { threads: true, host_size: 8, ..shared },
        Plan { threads: true, write: WritePolicy::Through, one_in: 7, ..shared },
    ]
    .into_iter()
}

fn check_at_rest(world: &World) {
    world.engines.iter().for_each(Engine::check_at_rest);
    world.host.validate().expect("a valid tier");
    let (began, held) = (Instant::now(), || world.host.stats().pinned_blocks + world.host.stats().reserved_blocks);
    while held() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "something is held: {:?}", world.host.stats());
        std::thread::yield_now();
    }
    world.host.clear();
    assert_eq!(world.host.stats().cached_blocks, 0);
}

// Holds: HT1.
#[test]
fn one_thread_finds_what_it_computed() {
    for (number, plan) in plans().enumerate() {
        let world = world(plan);
        let mut rng = fastrand::Rng::with_seed(7);
        let mut from_host = 0;
        for step in 0..400 {
            let engine = rng.choice(&world.engines).expect("one at least");
            let session = engine.tiers.session();
            let spaces = spaces(engine.tiers.cache());
            let (space, prompt) = (rng.choice(&spaces).expect("three"), prompt(&mut rng));
            let began = Instant::now();
            from_host += loop {
                if let Some((_, from_host)) = engine.serve(&session, space, &prompt) {
                    break from_host;
                }
                // Blocks on their way to the host count as reserved.
                assert!(
                    plan.threads && began.elapsed() < Duration::from_secs(60),
                    "plan {number}: step {step} was refused"
                );
                std::thread::yield_now();
            };
            if step % 50 == 49 {
                engine.tiers.evict(8);
                world.host.validate().expect("a valid tier");
            }
        }
        assert!(from_host > if plan.threads { 0 } else { 100 }, "plan {number}: {from_host} tokens came from the host");
        check_at_rest(&world);
    }
}

fn work(world: &World, seed: u64, until: Instant) {
    let mut rng = fastrand::Rng::with_seed(seed);
    while Instant::now() < until {
        let engine = rng.choice(&world.engines).expect("one at least");
        let session = engine.tiers.session();
        let spaces = spaces(engine.tiers.cache());
        let space = rng.choice(&spaces).expect("three");
        match rng.usize(0..100) {
            0 => engine.tiers.clear_namespace(space),
            1 => engine.tiers.drop_namespace(&spaces[1]),
            2 => world.host.clear(),
            3 => drop(world.host.keep_out(&space.name())),
            4..10 => _ = engine.tiers.evict(rng.usize(1..8)),
            10..20 => drop(session.match_prefix(space, &prompt(&mut rng))),
            20..25 => _ = session.prefetch(space, &prompt(&mut rng)),
            25 => engine.tiers.clear(),
            26..30 => _ = session.demote(space, &prompt(&mut rng)),
            30..35 => {
                // A request that is given up while its blocks are on their way.
                let (prompt, found) = (prompt(&mut rng), |prompt: &[u32]| session.match_prefix(space, prompt));
                drop(session.begin(space, &prompt, 3, found(&prompt)));
            }
            _ => _ = engine.serve(&session, space, &prompt(&mut rng)),
        }
    }
}

// Holds: HT1, HT13.
#[test]
fn four_threads_never_find_a_wrong_byte() {
    let seconds = std::env::var("STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let share = Duration::from_secs_f64(seconds / plans().count() as f64);
    for (number, plan) in plans().enumerate() {
        let world = world(plan);
        let until = Instant::now() + share;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let world = &world;
                scope.spawn(move || work(world, 100 * number as u64 + thread, until));
            }
        });
        check_at_rest(&world);
    }
}
