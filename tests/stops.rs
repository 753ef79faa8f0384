//! A thread that is stopped at any instruction does not block another thread in an operation that
//! is documented as lock-free.
//!
//! One thread, the victim, repeats one operation. At random moments a signal stops it anywhere,
//! also in the kernel and in the allocator (`arena`, which has no lock). Another thread, the
//! prober, runs all operations that are documented as lock-free; while the victim is stopped, the
//! prober must complete two rounds. The victim's operation may also be one that takes a lock, or
//! the victim may be the background evictor: a thread that is stopped with the evictor's lock
//! blocks only operations that need the lock.
//!
//! A stop that blocks the prober is reported with both operations and the victim's position. Such a
//! stop is not reproducible: `SECONDS` (default 3) is the time to try, and `VICTIM` selects victims
//! by a part of their names.
#![cfg(all(target_os = "linux", not(any(radixkv_loom, radixkv_shuttle))))]
#![allow(unsafe_code)]

#[path = "stops/arena.rs"]
mod arena;
#[path = "stops/stop.rs"]
mod stop;
#[path = "stops/verbs.rs"]
mod verbs;

use std::fmt;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::{BlockId, Builder, Eviction, PrefixCache, Watermarks};

use stop::{Stopped, Tid, this_thread, thread_named};
use verbs::{BLOCK_SIZE, CAPACITY, LOCK_FREE, LOCKING, User, Verb};

#[global_allocator]
static ARENA: arena::Arena = arena::Arena;

/// A prober that takes longer than this for two rounds of some microseconds is held up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A victim is stopped at most so long after it went on.
const LONGEST_RUN: Duration = Duration::from_micros(200);

/// A victim does its verb so often, and rests for at most so long then: the others keep up with it.
const BURST: usize = 16;
const LONGEST_REST: Duration = Duration::from_micros(10);

type Configure = fn(Builder) -> Builder;

const SETTINGS: [(&str, Configure); 4] = [
    ("inline", |builder| builder),
    ("shards", |builder| builder.shards(3)),
    ("background", |builder| builder.eviction(Eviction::Background(Watermarks::new(CAPACITY / 2, CAPACITY * 3 / 4)))),
    ("external", Builder::external),
];

/// Where the prober is.
#[derive(Default)]
struct Prober {
    rounds: AtomicU64,
    verb: AtomicUsize,
    over: AtomicBool,
}

impl Prober {
    /// Goes through all verbs until it is over.
    fn run(&self, mut user: User) -> u64 {
        while !self.over.load(Relaxed) {
            user.renew();
            for (i, verb) in LOCK_FREE.iter().enumerate() {
                self.verb.store(i, Relaxed);
                (verb.run)(&mut user);
            }
            self.rounds.fetch_add(1, Release);
        }
        user.taken
    }

    /// Waits until it has come round twice: the second round began after the call. False if it does
    /// not.
    fn comes_round(&self) -> bool {
        let (goal, end) = (self.rounds.load(Acquire) + 2, Instant::now() + PATIENCE);
        while self.rounds.load(Acquire) < goal {
            if Instant::now() > end {
                return false;
            }
            thread::sleep(Duration::from_micros(10));
        }
        true
    }
}

/// A stop that held the prober up.
struct Finding {
    setting: &'static str,
    victim: String,
    prober: &'static str,
    stops: u32,
    trace: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, victim, prober, stops, trace } = self;
        write!(f, "{setting}: {prober} stands still while a thread stands in {victim} (stop {stops}), at\n{trace}")
    }
}

/// Stops threads of one cache.
struct Stopping<'a> {
    setting: &'static str,
    cache: &'a PrefixCache,
    prober: &'a Prober,
    dice: Rng,
    stops: u32,
}

impl Stopping<'_> {
    /// Stops `victim` at random moments for so long.
    fn stop(&mut self, victim: Tid, name: &str, time: Duration) -> Result<(), Finding> {
        let end = Instant::now() + time;
        for stops in 1.. {
            self.make_room();
            spin(&mut self.dice, LONGEST_RUN);
            let stopped = Stopped::at_once(victim);
            self.stops += 1;
            if !self.prober.comes_round() {
                let prober = LOCK_FREE[self.prober.verb.load(Relaxed)].name;
                let trace = stopped.trace();
                return Err(Finding { setting: self.setting, victim: name.to_owned(), prober, stops, trace });
            }
            drop(stopped);
            if Instant::now() >= end {
                break;
            }
        }
        Ok(())
    }

    /// What threads need of blocks while one stands has to be free before.
    fn make_room(&self) {
        let stats = self.cache.stats();
        if stats.evictable_blocks > CAPACITY / 4 {
            self.cache.evict(CAPACITY / 8);
        }
    }

    /// Lets a thread do `verb` over and over, and stops it.
    fn stop_in(&mut self, verb: &Verb, user: impl FnOnce() -> User + Send, time: Duration) -> Result<(), Finding> {
        let (tid, over) = (AtomicI32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut user, mut dice) = (user(), Rng::with_seed(2));
                user.warm_up();
                tid.store(this_thread(), Release);
                while !over.load(Relaxed) {
                    user.renew();
                    (0..BURST).for_each(|_| (verb.run)(&mut user));
                    spin(&mut dice, LONGEST_REST);
                }
            });
            while tid.load(Acquire) == 0 {
                thread::yield_now();
            }
            let found = self.stop(tid.load(Relaxed), verb.name, time);
            over.store(true, Relaxed);
            found
        })
    }
}

/// Spins for a random time up to `longest`.
fn spin(dice: &mut Rng, longest: Duration) {
    let end = Instant::now() + Duration::from_nanos(dice.u64(..longest.as_nanos() as u64));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn stop_everywhere(setting: usize, seconds: f64) -> Vec<Finding> {
    let (name, build) = SETTINGS[setting];
    let is_external = name == "external";
    let only = std::env::var("VICTIM").unwrap_or_default();
    let victims: Vec<_> = LOCK_FREE.iter().chain(&LOCKING).filter(|verb| verb.name.contains(&only)).collect();
    let time = Duration::from_secs_f64(seconds / (victims.len() + 1) as f64);
    let mut findings = Vec::new();
    let cache = build(PrefixCache::builder(BLOCK_SIZE, CAPACITY)).build().expect("a sound setting");
    if is_external {
        // From now on any thread may take them.
        let all: Vec<BlockId> = (0..CAPACITY as BlockId).collect();
        drop(cache.external().expect("an external pool").adopt(&all).expect("the engine has all of them"));
    }
    let prober = Prober::default();
    let mut stopping = Stopping { setting: name, cache: &cache, prober: &prober, dice: Rng::with_seed(1), stops: 0 };
    thread::scope(|scope| {
        let probing = scope.spawn(|| prober.run(User::new(&cache, 1, is_external, CAPACITY / 4)));
        for (i, verb) in victims.iter().enumerate() {
            let user = || User::new(&cache, 2 + i as u32, is_external, CAPACITY / 2);
            findings.extend(stopping.stop_in(verb, user, time).err());
        }
        if let Some(evictor) = thread_named("radixkv-evictor") {
            findings.extend(stopping.stop(evictor, "the background evictor", 2 * time).err());
        }
        prober.over.store(true, Relaxed);
        let taken = probing.join().expect("the prober ends");
        println!("{name}: {} stops, {taken} reservations of the prober's", stopping.stops);
        assert!(taken > 0, "the prober had no blocks");
    });
    findings
}

#[test]
fn a_thread_stopped_anywhere_holds_up_no_lock_free_verb() {
    let seconds = std::env::var("SECONDS").ok().and_then(|value| value.parse().ok()).unwrap_or(3.0);
    let findings: Vec<_> =
        (0..SETTINGS.len()).flat_map(|setting| stop_everywhere(setting, seconds / SETTINGS.len() as f64)).collect();
    findings.iter().for_each(|finding| println!("{finding}"));
    assert!(findings.is_empty(), "{} victims held the prober up", findings.len());
}
