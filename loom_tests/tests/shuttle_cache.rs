//! The whole cache under long random schedules (shuttle): many operations of all kinds on four
//! threads.
//!
//! Property: a leased prefix keeps its own blocks during the lease, whatever happens to its
//! namespace. No lookup returns blocks of another namespace. At the end, and after each of the
//! final evictions, all blocks are accounted for and every invariant holds. Nothing leaks. Memory
//! is sequentially consistent here; loom checks the memory orders.
//!
//! Seeded bugs: accounts that are wrong, or memory that is freed too early, only in executions that
//! are too long for loom.
//!
//! `SHUTTLE_SEED` and `SHUTTLE_ITERS` select the schedules. A failure prints its seed and a
//! schedule, which `SHUTTLE_REPLAY=<schedule>` runs again.
#![cfg(all(radixkv_shuttle, not(radixkv_loom)))]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Actor, World};
use radixkv::internals::track;
use radixkv::{BlockRequest, InsertErrorKind, Lease, PolicyKind, PrefixCache, Token};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread};

const BLOCK: usize = 2;
const CAPACITY: usize = 10;
const THREADS: usize = 4;
/// Maximum number of leases that one thread keeps.
const KEPT: usize = 2;

/// A random sequence, short and of few distinct tokens, so that threads often share prefixes,
/// branch and conflict.
fn sequence() -> Vec<Token> {
    (0..thread_rng().gen_range(0..9)).map(|_| thread_rng().gen_range(0..2)).collect()
}

/// The tokens of a lease, the lease, and its blocks.
type Kept = (Vec<Token>, Lease, Vec<u32>);

fn insert(actor: &Actor, kept: &mut Vec<Kept>) {
    let tokens = sequence();
    let found = actor.find(&tokens);
    let (from, size) = (found.len_tokens(), tokens.len() / BLOCK * BLOCK);
    let Ok(reservation) = actor.session.reserve((size - from) / BLOCK) else {
        return;
    };
    actor.fill(&tokens, from, &reservation);
    match actor.session.insert(found.lease(), &tokens, reservation) {
        Ok(inserted) => {
            assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (size, tokens.len() - size));
            actor.world.check(&tokens, from / BLOCK, &inserted.blocks);
            let blocks = [found.blocks(), &inserted.blocks].concat();
            kept.push((tokens, inserted.lease, blocks));
        }
        Err(refused) => {
            assert_eq!(refused.kind, InsertErrorKind::NamespaceDropped);
            assert_eq!(refused.reservation.len(), (size - from) / BLOCK);
        }
    }
}

fn resume(actor: &Actor, kept: &mut Vec<Kept>) {
    let Some((tokens, lease, _)) = kept.pop() else { return };
    let mut longer = tokens[..lease.len_tokens()].to_vec();
    longer.extend(sequence());
    let (before, resumed) = (lease.len_tokens(), actor.session.resume(lease, &longer));
    assert!(resumed.len_tokens() >= before);
    actor.world.check(&longer, 0, resumed.blocks());
    let blocks = resumed.blocks().to_vec();
    kept.push((longer, resumed.into_lease(), blocks));
}

fn operate(actor: &Actor, kept: &mut Vec<Kept>) {
    let (world, roll) = (&actor.world, thread_rng().gen_range(0..100));
    match roll {
        0..30 => insert(actor, kept),
        30..50 => {
            let tokens = sequence();
            let found = actor.find(&tokens);
            let blocks = found.blocks().to_vec();
            kept.push((tokens, found.into_lease(), blocks));
        }
        50..65 => resume(actor, kept),
        65..70 => {
            if let Some((tokens, lease, blocks)) = kept.first() {
                let again = (tokens.clone(), lease.try_clone().expect("few leases"), blocks.clone());
                kept.push(again);
            }
        }
        70..75 => assert!(actor.session.peek(&world.space, &sequence()) <= 8),
        75..78 => drop(actor.session.reserve(thread_rng().gen_range(1..4))),
        78..80 => {
            // A waiting thread holds no lease, and the other threads end eventually, so no thread
            // waits forever.
            kept.clear();
            let far = Instant::now() + Duration::from_secs(3600);
            let blocks = actor.session.reserve(BlockRequest::new(thread_rng().gen_range(1..=CAPACITY)).until(far));
            assert!(blocks.is_ok(), "{blocks:?}");
        }
        80..88 => assert!(world.cache.evict(thread_rng().gen_range(1..4)) <= 3),
        88..94 => drop(world.cache.run_once()),
        94..97 => world.cache.set_time(thread_rng().gen_range(0..50)),
        97..99 => world.cache.settle(),
        _ => world.space.clear(),
    }
    let_go(actor, kept);
}

/// Drops leases beyond [`KEPT`].
fn let_go(actor: &Actor, kept: &mut Vec<Kept>) {
    while kept.len() > KEPT {
        let (tokens, lease, blocks) = kept.swap_remove(thread_rng().gen_range(0..kept.len()));
        // The lease existed all the time, so the blocks must still be its own.
        actor.world.check(&tokens, 0, &blocks);
        drop(lease);
    }
}

/// Threads create, use, clear, drop and forget the same few namespaces.
mod tenants {
    use radixkv::Namespace;

    use super::*;

    /// Number of names. The stamps of blocks include the name that they are leased or inserted
    /// under.
    const NAMES: u32 = 2;

    /// A namespace handle; the namespace may have been dropped since.
    pub(super) struct Tenant {
        name: u32,
        space: Namespace,
    }

    impl Tenant {
        fn resolve(actor: &Actor) -> Self {
            let name = thread_rng().gen_range(0..NAMES);
            Self { name, space: actor.world.cache.namespace(&[["a", "b"][name as usize]]) }
        }

        /// Tokens for the stamps: they depend on `tokens` and on the name.
        fn named(&self, tokens: &[Token]) -> Vec<Token> {
            let mut named = tokens.to_vec();
            named.iter_mut().for_each(|token| *token += (self.name + 1) << 8);
            named
        }

        /// Matches a sequence, inserts the missing blocks, and keeps the lease.
        fn serve(&self, actor: &Actor, kept: &mut Vec<Kept>) {
            let tokens = sequence();
            let (named, size) = (self.named(&tokens), tokens.len() / BLOCK);
            let found = actor.session.match_prefix(&self.space, &tokens);
            actor.world.check(&named, 0, found.blocks());
            let from = found.blocks().len();
            let Ok(reservation) = actor.session.reserve(size - from) else {
                return;
            };
            actor.fill(&named, from * BLOCK, &reservation);
            match actor.session.insert(found.lease(), &tokens, reservation) {
                Ok(inserted) => {
                    actor.world.check(&named, from, &inserted.blocks);
                    kept.push((named, inserted.lease, [found.blocks(), &inserted.blocks].concat()));
                }
                Err(refused) => {
                    assert_eq!(
                        (refused.kind, refused.reservation.len()),
                        (InsertErrorKind::NamespaceDropped, size - from)
                    );
                    kept.push((named, found.lease().try_clone().expect("few leases"), found.blocks().to_vec()));
                }
            }
        }
    }

    pub(super) fn operate(actor: &Actor, tenants: &mut Vec<Tenant>, kept: &mut Vec<Kept>) {
        let cache = &actor.world.cache;
        if tenants.is_empty() {
            tenants.push(Tenant::resolve(actor));
        }
        let one = thread_rng().gen_range(0..tenants.len());
        match thread_rng().gen_range(0..100) {
            0..45 => tenants[one].serve(actor, kept),
            45..60 => tenants.push(Tenant::resolve(actor)),
            60..75 => drop(tenants.swap_remove(one)),
            75..82 => tenants[one].space.remove(),
            82..86 => tenants[one].space.clear(),
            86..92 => assert!(cache.evict(thread_rng().gen_range(1..4)) <= 3),
            92..97 => drop(cache.run_once()),
            _ => cache.settle(),
        }
        let_go(actor, kept);
    }
}

/// The function that one thread runs.
type Life = fn(&Actor, usize);

/// All operations on one namespace.
fn mixed(actor: &Actor, operations: usize) {
    let mut kept = Vec::new();
    (0..operations).for_each(|_| operate(actor, &mut kept));
    kept.iter().for_each(|(tokens, _, blocks)| actor.world.check(tokens, 0, blocks));
}

/// Operations on namespaces that are cleared and dropped meanwhile.
fn namespaces(actor: &Actor, operations: usize) {
    let (mut tenants, mut kept) = (Vec::new(), Vec::new());
    (0..operations).for_each(|_| tenants::operate(actor, &mut tenants, &mut kept));
    kept.iter().for_each(|(tokens, _, blocks)| actor.world.check(tokens, 0, blocks));
}

/// A cache's configuration, and the function of its threads.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    policy: PolicyKind,
    operations: usize,
    life: Life,
}

impl Scenario {
    fn run(self) {
        track::begin();
        let world = World::build(PrefixCache::builder(BLOCK, CAPACITY).policy(self.policy), CAPACITY);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || (self.life)(&Actor::new(&world), self.operations))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // Evicts one block at a time, and checks the cache after each.
        while world.cache.evict(1) == 1 {
            world.rest(0, 0);
        }
        world.close();
        track::end();
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(10_000_000);
    // Shuttle ignores memory orders; loom checks them.
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::Print;
    config
}

/// Runs `SHUTTLE_ITERS` schedules from seed `SHUTTLE_SEED`, random or with `depth` changes of
/// priority (PCT), or only the schedule of `SHUTTLE_REPLAY`. A long scenario runs a hundredth of
/// them.
fn explore(scenario: Scenario, depth: Option<usize>) {
    let Scenario { name, operations, .. } = scenario;
    if let Ok(schedule) = std::env::var("SHUTTLE_REPLAY") {
        shuttle::replay(move || scenario.run(), &schedule);
        return;
    }
    let share = if operations > 100 { 100 } else { 1 };
    let (seed, schedules) = (number("SHUTTLE_SEED", 1) as u64, number("SHUTTLE_ITERS", 1000).div_ceil(share));
    let kind = if depth.is_some() { "PCT" } else { "random" };
    println!(
        "SHUTTLE {name}: {schedules} {kind} schedules of {THREADS} x {operations} operations, SHUTTLE_SEED={seed}"
    );
    match depth {
        None => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config()).run(move || scenario.run()),
        Some(depth) => {
            Runner::new(PctScheduler::new_from_seed(seed, depth, schedules), config()).run(move || scenario.run())
        }
    };
}

const LRU: Scenario = Scenario { name: "lru", policy: PolicyKind::Lru, operations: 20, life: mixed };
const LFU: Scenario = Scenario { name: "lfu", policy: PolicyKind::Lfu, operations: 20, life: mixed };
const NAMESPACES: Scenario =
    Scenario { name: "namespaces", policy: PolicyKind::Slru, operations: 20, life: namespaces };
/// Many operations per thread, to find late effects of early errors.
const LONG: Scenario = Scenario { name: "long", policy: PolicyKind::Fifo, operations: 300, life: mixed };

#[test]
fn lru_random() {
    explore(LRU, None);
}

#[test]
fn lru_pct() {
    explore(LRU, Some(3));
}

#[test]
fn lfu_random() {
    explore(LFU, None);
}

#[test]
fn lfu_pct() {
    explore(LFU, Some(5));
}

#[test]
fn namespaces_random() {
    explore(NAMESPACES, None);
}

#[test]
fn namespaces_pct() {
    explore(NAMESPACES, Some(3));
}

#[test]
fn long_random() {
    explore(LONG, None);
}
