//! The whole cache under long random schedules: many operations, four threads, every verb.
//!
//! Property: a leased prefix holds its own blocks for as long as it is leased; at rest every block is accounted for, all
//! of the cache can be evicted, and nothing leaks. Sequentially consistent: orderings are loom's.
//!
//! Teeth: whatever breaks the accounts or frees too early, at depths that loom does not reach.
//!
//! `SHUTTLE_SEED` and `SHUTTLE_ITERS` choose what runs; a failure prints its seed and a schedule, which
//! `SHUTTLE_REPLAY=<schedule>` runs again.
#![cfg(all(radixkv_shuttle, not(radixkv_loom)))]

mod common;

use std::sync::Arc;

use common::{Actor, World};
use radixkv::internals::track;
use radixkv::{InsertErrorKind, Lease, PolicyKind, PrefixCache, Token};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread};

const BLOCK: usize = 2;
const CAPACITY: usize = 10;
const THREADS: usize = 4;
/// Leases that one thread keeps at most.
const KEPT: usize = 2;

/// Few tokens and short sequences: everything shares, parts and collides.
fn sequence() -> Vec<Token> {
    (0..thread_rng().gen_range(0..9)).map(|_| thread_rng().gen_range(0..2)).collect()
}

/// A lease with the tokens that it was taken for.
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
                let again = (tokens.clone(), lease.clone(), blocks.clone());
                kept.push(again);
            }
        }
        70..75 => assert!(actor.session.peek(&world.space, &sequence()) <= 8),
        75..80 => drop(actor.session.reserve(thread_rng().gen_range(1..4))),
        80..88 => assert!(world.cache.evict(thread_rng().gen_range(1..4)) <= 3),
        88..94 => drop(world.cache.run_once()),
        94..97 => world.cache.set_time(thread_rng().gen_range(0..50)),
        97..99 => world.cache.settle(),
        _ => world.cache.clear_namespace(&world.space),
    }
    while kept.len() > KEPT {
        let (tokens, lease, blocks) = kept.swap_remove(thread_rng().gen_range(0..kept.len()));
        // Leased all the time: still its own blocks.
        world.check(&tokens, 0, &blocks);
        drop(lease);
    }
}

fn model(policy: PolicyKind, operations: usize) {
    track::begin();
    let world = World::build(PrefixCache::builder(BLOCK, CAPACITY).policy(policy), CAPACITY);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let actor = Actor::new(&world);
                let mut kept = Vec::new();
                (0..operations).for_each(|_| operate(&actor, &mut kept));
                kept.iter().for_each(|(tokens, _, blocks)| world.check(tokens, 0, blocks));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.close();
    track::end();
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(10_000_000);
    // Orderings are loom's.
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::Print;
    config
}

/// `SHUTTLE_ITERS` schedules from `SHUTTLE_SEED` on, or the one of `SHUTTLE_REPLAY`.
fn explore(name: &str, policy: PolicyKind, operations: usize, depth: Option<usize>) {
    let body = move || model(policy, operations);
    if let Ok(schedule) = std::env::var("SHUTTLE_REPLAY") {
        shuttle::replay(body, &schedule);
        return;
    }
    let (seed, schedules) = (number("SHUTTLE_SEED", 1) as u64, number("SHUTTLE_ITERS", 1000));
    println!("SHUTTLE {name}: {schedules} schedules of {THREADS} x {operations} operations, SHUTTLE_SEED={seed}");
    match depth {
        None => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config()).run(body),
        Some(depth) => Runner::new(PctScheduler::new_from_seed(seed, depth, schedules), config()).run(body),
    };
}

#[test]
fn random_lru() {
    explore("random_lru", PolicyKind::Lru, 30, None);
}

#[test]
fn random_lfu() {
    explore("random_lfu", PolicyKind::Lfu, 30, None);
}

#[test]
fn pct_lru() {
    explore("pct_lru", PolicyKind::Lru, 20, Some(3));
}

#[test]
fn pct_slru() {
    explore("pct_slru", PolicyKind::Slru, 20, Some(5));
}

/// A few long lives: late effects of early mistakes.
#[test]
fn long_fifo() {
    let name = "long_fifo";
    explore(name, PolicyKind::Fifo, 300, None);
}
