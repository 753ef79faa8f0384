//! A cache's events, snapshots and statistics agree at every moment, whatever other threads do.
//!
//! A listener's events up to the number of a snapshot give that snapshot. The tokens that lookups
//! found and missed add up to the whole blocks of the lookups. Each case has a seed;
//! `RADIXKV_SEEDS=100` runs 100 cases for each test.
#![cfg(not(any(radixkv_loom, radixkv_shuttle)))]

#[path = "listening/endings.rs"]
mod endings;
#[path = "listening/log.rs"]
mod log;
#[path = "listening/reasons.rs"]
mod reasons;
#[path = "listening/told.rs"]
mod told;
#[path = "listening/worker.rs"]
mod worker;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use log::Log;
use radixkv::{Clock, Eviction, PrefixCache, Watermarks};
use worker::{Asked, Worker, spaces};

/// Steps of each thread, at least.
const STEPS: usize = 400;
const THREADS: u64 = 4;
/// Snapshots that are compared while the threads are at work, at least.
const COMPARED: usize = 3;

fn seeds() -> u64 {
    std::env::var("RADIXKV_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2)
}

/// Lets the threads of a storm end when it is dropped, by a panic too.
struct Ending<'a>(&'a AtomicUsize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(COMPARED, Relaxed);
    }
}

/// Threads run all verbs; meanwhile each snapshot is held against the log up to its number.
fn storm(block: usize, eviction: Eviction, seed: u64) {
    let mut dice = Rng::with_seed(seed);
    let blocks = dice.usize(60..200);
    let builder = PrefixCache::builder(block, blocks).clock(Clock::Logical).eviction(eviction);
    let builder = if dice.bool() { builder.time_to_idle(Duration::from_nanos(300)) } else { builder };
    let cache = builder.build().expect("sound");
    let mut events = cache.subscribe(usize::MAX);
    let (mut log, compared) = (Log::new(block), AtomicUsize::new(0));
    // Listens from the middle on, beginning with a snapshot.
    let mut late = None;
    let asked = thread::scope(|scope| {
        let _ending = Ending(&compared);
        let work = |thread| {
            let (cache, compared) = (&cache, &compared);
            scope.spawn(move || {
                let mut worker = Worker::new(cache, Rng::with_seed(seed * THREADS + thread));
                let goes_on = |step: &usize| *step < STEPS || compared.load(Relaxed) < COMPARED;
                (0..).take_while(goes_on).for_each(|_| worker.step());
                worker.asked
            })
        };
        let workers: Vec<_> = (0..THREADS).map(work).collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            let snapshot = cache.snapshot();
            log.take_until(&mut events, snapshot.number());
            assert_eq!(log, Log::of(block, &snapshot), "seed {seed}, after {} batches", snapshot.number());
            if compared.fetch_add(1, Relaxed) + 1 == COMPARED {
                let events = cache.subscribe(usize::MAX);
                late = Some((Log::of(block, &snapshot), snapshot.number(), events.next_number(), events));
            }
        }
        let asked = workers.into_iter().map(|worker| worker.join().expect("no panic"));
        asked.fold(Asked::default(), Asked::and)
    });
    // So that the cache's own thread has nothing to evict between two looks at the cache.
    if let Eviction::Background(marks) = eviction {
        cache.evict(marks.high.saturating_sub(cache.free_blocks()));
    }
    cache.settle();
    let snapshot = cache.snapshot();
    log.take_until(&mut events, snapshot.number());
    assert_eq!(log, Log::of(block, &snapshot), "seed {seed}");
    let (_, _, from, mut late_events) = late.expect("the threads go on until then");
    // What it missed is in a snapshot.
    assert!(from <= snapshot.number());
    let mut late = Log::of(block, &snapshot);
    late.skip_until(&mut late_events, snapshot.number());
    late.take_until(&mut late_events, cache.snapshot().number());
    assert_eq!(late, Log::of(block, &cache.snapshot()), "seed {seed}, late");
    assert_eq!(Log::walked(&cache, &spaces(&cache)), Log::of(block, &cache.snapshot()), "seed {seed}, walked");
    asked.check(&cache, seed);
    assert_eq!((events.lost_batches(), cache.validate()), (0, Ok(())));
}

fn storms(block: usize) {
    for seed in 0..seeds() {
        storm(block, Eviction::Inline, seed);
        storm(block, Eviction::Background(Watermarks::new(8, 24)), seed + 1000);
    }
}

#[test]
fn snapshots_are_the_log_so_far_with_blocks_of_one_token() {
    storms(1);
}

// Holds: CE1, NU4.
#[test]
fn snapshots_are_the_log_so_far() {
    storms(3);
    storms(16);
}

#[test]
fn snapshots_are_the_log_so_far_with_long_blocks() {
    storms(1000);
}
