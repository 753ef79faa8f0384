//! A stress test: threads run all operations on one cache at once, and check invariants that hold
//! for any interleaving.
//!
//! Each round lasts up to half a second, with a new cache and new settings: more threads than
//! cores, and far too few blocks, so that eviction never stops. A round has a background evictor, a
//! reader that never releases its leases, and workers that mix all operations: namespaces are
//! cleared and dropped while in use, or created by the thousand; leases and forks move between
//! threads; holders panic; arguments are invalid; policies and quotas change; prefixes are removed
//! by age; futures are dropped or never polled again; wakers do anything. These invariants are
//! checked:
//!
//! - a lease has exactly the blocks of its prefix, and they are not overwritten during the lease
//!   (`slots`, `held`);
//! - leased and inserted prefixes are found, unless their namespace was cleared or dropped since
//!   (`held`);
//! - reservations are all-or-nothing, and share blocks only with their forks (`held`, `forks`);
//! - a block is not written while two forks hold it, nor the source of a copy during the copy
//!   (`forks`);
//! - quotas are respected after settling (`world`);
//! - an insert returns exactly the blocks that are cached; a refused insert returns its reservation
//!   (`worker`);
//! - at the end no block is lost, all blocks can be evicted, and the index has its initial size
//!   (`rest`).
//!
//! A failure prints the settings that repeat it. The environment variables `SEED`, `SECONDS` and
//! `THREADS` are used.
#![cfg(not(any(radixkv_loom, radixkv_shuttle)))]

#[path = "stress/crowd.rs"]
mod crowd;
#[path = "stress/forks.rs"]
mod forks;
#[path = "stress/held.rs"]
mod held;
#[path = "stress/rest.rs"]
mod rest;
#[path = "stress/roles.rs"]
mod roles;
#[path = "stress/slots.rs"]
mod slots;
#[path = "stress/upkeep.rs"]
mod upkeep;
#[path = "stress/waiting.rs"]
mod waiting;
#[path = "stress/wakers.rs"]
mod wakers;
#[path = "stress/worker.rs"]
mod worker;
#[path = "stress/world.rs"]
mod world;

use std::sync::atomic::Ordering::Relaxed;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::PolicyKind;

use worker::{Tally, Worker};
use world::{Setting, World};

const LONG_ROUND: Duration = Duration::from_millis(400);
/// Most rounds end while their cache is new: its tables grow, and what went wrong in them is not
/// evicted yet.
const SHORT_ROUND: Duration = Duration::from_millis(60);

/// After the end of a round its threads come home within this, or one of them waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// An odd number: each comes with every end of a round.
const SETTINGS: [Setting; 7] = [
    Setting { block_size: 1, capacity: 96, policy: PolicyKind::Lru, longest: 24, alphabet: 2, background: false },
    Setting { block_size: 3, capacity: 72, policy: PolicyKind::Lfu, longest: 50, alphabet: 2, background: true },
    Setting { block_size: 16, capacity: 48, policy: PolicyKind::Slru, longest: 180, alphabet: 3, background: false },
    Setting { block_size: 3, capacity: 130, policy: PolicyKind::Fifo, longest: 40, alphabet: 1000, background: false },
    Setting { block_size: 1, capacity: 96, policy: PolicyKind::Priority, longest: 24, alphabet: 2, background: true },
    Setting { block_size: 3, capacity: 96, policy: PolicyKind::Level, longest: 40, alphabet: 2, background: false },
    // So many candidates that their tables grow while they are sorted.
    Setting { block_size: 1, capacity: 3000, policy: PolicyKind::Lru, longest: 8, alphabet: 1000, background: true },
];

fn from_environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Prints how to repeat a round that fails.
struct Repeat {
    seed: u64,
    threads: usize,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print();
        }
    }
}

impl Repeat {
    fn print(&self) {
        eprintln!("repeat with: SEED={} THREADS={} SECONDS=1", self.seed, self.threads);
    }
}

// Holds: MA8, LE1.
#[test]
fn whatever_the_interleaving_leases_hold_and_no_block_is_lost() {
    let seconds = from_environment("SECONDS", 2.4);
    let threads = from_environment("THREADS", 8.0).max(3.0) as usize;
    let first = from_environment("SEED", 1.0) as u64;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut tally = Tally::default();
    let mut evicted = 0;
    for seed in first.. {
        let (done, gone) = round(seed, threads);
        tally.add(done);
        evicted += gone;
        if Instant::now() >= end {
            println!("seeds {first}..={seed}: {tally:?}, {evicted} blocks evicted");
            break;
        }
    }
    assert!(tally.hit_blocks > 0 && tally.inserts > 0 && evicted > 0, "the threads did nothing: {tally:?}");
}

/// The random numbers of one of a round's threads.
fn stream(seed: u64, user: u64) -> Rng {
    Rng::with_seed(seed ^ user << 32)
}

fn length(seed: u64) -> Duration {
    if seed % 4 == 1 { LONG_ROUND } else { SHORT_ROUND.mul_f64(stream(seed, 0).f64()) }
}

/// One cache's life; blocks evicted in it.
fn round(seed: u64, threads: usize) -> (Tally, u64) {
    let repeat = Repeat { seed, threads };
    let setting = SETTINGS[(seed % SETTINGS.len() as u64) as usize];
    let world: &'static World = Box::leak(Box::new(World::new(setting)));
    let empty = world.cache.stats();
    // A sanitizer ends the process before anything else could say which round it was.
    println!("seed {seed}");
    let mut helpers = vec![
        spawn(move || roles::evict_forever(world, stream(seed, 0))),
        spawn(move || roles::hold_forever(world, stream(seed, 1))),
    ];
    let mut workers: Vec<_> =
        (2..threads as u64).map(|user| spawn(move || Worker::new(world, stream(seed, user)).run())).collect();
    let end = Instant::now() + length(seed);
    while Instant::now() < end && !workers.iter().any(JoinHandle::is_finished) {
        sleep(Duration::from_millis(5));
    }
    world.over.store(true, Relaxed);
    let mut tally = Tally::default();
    workers.drain(..).for_each(|worker| tally.add(come_home(worker, &repeat)));
    helpers.drain(..).for_each(|helper| come_home(helper, &repeat));
    let evicted = leave(world, seed, empty);
    (tally, evicted)
}

/// The end of a round; every other one drops a cache that is full, with a lease that outlives it.
fn leave(world: &'static World, seed: u64, empty: radixkv::Stats) -> u64 {
    world.let_go();
    // What is retained stays for so long.
    sleep(upkeep::LONGEST_RETAINED);
    world.check_quotas();
    rest::sound(&world.cache);
    world.lift_quotas();
    if seed % 16 == 1 {
        waiting::forget_a_future(world);
    }
    let evicted = world.cache.stats().evicted_blocks;
    let mut last = None;
    if seed % 8 < 4 {
        rest::check(&world.cache, empty);
    } else {
        let session = world.cache.session();
        last = Some(session.match_prefix_untouched(&world.namespace(0), &world.sequence(&mut stream(seed, 2))));
    }
    #[allow(unsafe_code)]
    // SAFETY: made by `Box::leak`; every thread that had it has been joined.
    drop(unsafe { Box::from_raw(std::ptr::from_ref(world).cast_mut()) });
    drop(last);
    evicted
}

/// What a thread returns, or its panic.
fn come_home<T>(thread: JoinHandle<T>, repeat: &Repeat) -> T {
    let end = Instant::now() + PATIENCE;
    while !thread.is_finished() {
        if Instant::now() > end {
            repeat.print();
            eprintln!("a thread does not come home");
            std::process::abort();
        }
        sleep(Duration::from_millis(1));
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
