//! All figures of the performance budget. Lookups are given as ratios to memcmp of the same tokens,
//! which is measured alternately in the same process.
//!
//! `cargo bench --bench ratios [-- NAME...]` prints one row per figure: its nanoseconds and, for
//! ratios, the nanoseconds of the limit and the median of the ratios of all rounds with its
//! quartiles. A lookup's answer is checked before it is timed.

mod common;
#[path = "ratios/lookups.rs"]
mod lookups;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::{Aligned, Spread, fill_with_leaves, insert, memcmp, sequence, time, together};
use lookups::{BLOCK, ROUNDS, cache, one_run, past_branches, rotating, turns};
use radixkv::{Clock, Eviction, PolicyKind, PrefixCache, Token, Watermarks};

fn row(name: &str, [ours, limit, ratio]: [Spread; 3]) {
    println!(
        "{name:<44} {:>10.1} {:>10.1} {:>7.2} [{:.2} {:.2}]",
        ours.median, limit.median, ratio.median, ratio.low, ratio.high
    );
}

/// Resumes a match from a held lease when no further token is cached.
fn resume() -> f64 {
    let cache = cache(2_496 / BLOCK);
    let session = cache.session();
    let space = cache.default_namespace();
    let prompt = sequence(1, 2_496);
    let mut held = Some(insert(&session, &space, &cache, &prompt));
    let mut blocks = Vec::new();
    let times = (0..ROUNDS).map(|_| {
        time(100_000, || {
            let lease = held.take().expect("held");
            held = Some(session.resume_into(lease, black_box(&prompt), &mut blocks));
        })
    });
    Spread::of(times.collect()).median
}

fn reserve() -> f64 {
    let cache = cache(4096);
    let session = cache.session();
    let times = (0..ROUNDS).map(|_| {
        time(100_000, || {
            black_box(session.reserve(16).expect("free").blocks());
        })
    });
    Spread::of(times.collect()).median
}

fn sessions() -> f64 {
    let cache = cache(64);
    let times = (0..ROUNDS).map(|_| {
        time(100_000, || {
            black_box(cache.session());
        })
    });
    Spread::of(times.collect()).median
}

/// Inserts 256-token tails after a leased prefix, each with its own blocks.
fn tails() -> f64 {
    let tails = 2_000;
    let cache = cache(tails * 16 + 2_496 / BLOCK);
    let session = cache.session();
    let space = cache.default_namespace();
    let prompt = sequence(1, 2_496);
    let held = insert(&session, &space, &cache, &prompt);
    let all: Vec<Vec<Token>> = (0..tails).map(|i| [&prompt[..], &sequence(7 + i as u32, 256)].concat()).collect();
    let times = (0..ROUNDS).map(|_| {
        let mut reserved: Vec<_> = all.iter().map(|_| session.reserve(16).ok()).collect();
        let mut samples: Vec<f64> = Vec::with_capacity(tails);
        for (tail, blocks) in all.iter().zip(&mut reserved) {
            let blocks = blocks.take().expect("reserved");
            let start = std::time::Instant::now();
            let inserted = session.insert(&held, tail, blocks).expect("sound");
            samples.push(start.elapsed().as_nanos() as f64);
            drop(inserted);
        }
        cache.evict(tails * 16);
        Spread::of(samples).median
    });
    Spread::of(times.collect()).median
}

/// Evicts all of `leaves` leaves, `each` per call, in several rounds: nanoseconds per leaf.
fn evict(leaves: usize, each: usize) -> f64 {
    let cache =
        PrefixCache::builder(BLOCK, leaves).clock(Clock::Logical).policy(PolicyKind::Lru).build().expect("sound");
    let times = (0..(1_000_000 / leaves).clamp(3, ROUNDS)).map(|_| {
        fill_with_leaves(&cache, leaves);
        time(leaves / each, || assert_eq!(black_box(cache.evict(each)), each)) / each as f64
    });
    Spread::of(times.collect()).median
}

/// The slowest of many single evictions from a million leaves while the background evictor runs:
/// after the leaves were inserted, or after all were matched again.
fn worst_evict(matched_again: bool) -> f64 {
    let leaves = 1_000_000;
    let watermarks = Watermarks::new(1, 2);
    let builder = PrefixCache::builder(BLOCK, leaves + 64).eviction(Eviction::Background(watermarks));
    let cache = builder.build().expect("sound");
    let session = cache.session();
    let space = cache.default_namespace();
    for i in 0..leaves as u32 {
        drop(insert(&session, &space, &cache, &sequence(i, BLOCK)));
    }
    if matched_again {
        let mut blocks = Vec::new();
        (0..leaves as u32).for_each(|i| drop(session.match_prefix_into(&space, &sequence(i, BLOCK), &mut blocks)));
    }
    let evict_one = |_| time(1, || assert_eq!(black_box(cache.evict(1)), 1));
    (0..1_000).map(evict_one).fold(0.0, f64::max)
}

/// The slowest call while the background evictor exchanges the policy of a million leaves: of
/// `set_policy`, which begins the exchange, and the single evictions until it ends.
fn worst_while_exchanged() -> f64 {
    let leaves = 1_000_000;
    let builder = PrefixCache::builder(BLOCK, leaves + 64).eviction(Eviction::Background(Watermarks::new(1, 2)));
    let cache = builder.build().expect("sound");
    let session = cache.session();
    let space = cache.default_namespace();
    (0..leaves as u32).for_each(|i| drop(insert(&session, &space, &cache, &sequence(i, BLOCK))));
    cache.settle();
    let mut worst = time(1, || cache.settings().set_policy(PolicyKind::Lfu));
    while cache.settings().policy() != PolicyKind::Lfu {
        worst = worst.max(time(1, || assert_eq!(black_box(cache.evict(1)), 1)));
    }
    worst
}

/// The speedup of two threads over one when they match one hot prompt, divided by the same speedup
/// of memcmp.
fn hot_prefix() -> Spread {
    let prompt = Aligned::new(&sequence(1, 2_496));
    let copy = Aligned::new(prompt.tokens());
    let cache = cache(2_496 / BLOCK);
    let space = cache.default_namespace();
    let _held = insert(&cache.session(), &space, &cache, prompt.tokens());
    let calls = 100_000;
    let compare = |threads| together(threads, calls, || || memcmp(prompt.tokens(), copy.tokens()));
    let look_up = |threads| {
        together(threads, calls, || {
            let (session, mut blocks) = (cache.session(), Vec::new());
            let (space, prompt) = (&space, &prompt);
            move || {
                black_box(session.match_prefix_into(space, black_box(prompt.tokens()), &mut blocks));
            }
        })
    };
    // Each of two threads does all the work of one: twice the work, in the time that is measured.
    let scaling = |run: &dyn Fn(usize) -> f64| 2.0 * run(1) / run(2);
    Spread::of((0..9).map(|_| scaling(&look_up) / scaling(&compare)).collect())
}

/// The 99th percentile of a match in nanoseconds, while another thread repeats `beside`.
fn p99_beside(cache: &PrefixCache, prompt: &Aligned, beside: impl Fn() + Sync) -> f64 {
    let matches = 100_000;
    let (session, space, mut blocks) = (cache.session(), cache.default_namespace(), Vec::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                beside();
            }
        });
        let mut one = || time(1, || drop(session.match_prefix_into(&space, black_box(prompt.tokens()), &mut blocks)));
        (0..1_000).for_each(|_| _ = one());
        let mut all: Vec<f64> = (0..matches).map(|_| one()).collect();
        stop.store(true, Relaxed);
        all.sort_by(f64::total_cmp);
        all[matches * 99 / 100]
    })
}

/// Compares the 99th percentile of a match while another thread inserts and evicts leaves without a
/// pause, with that while another thread runs memcmp.
fn beside_evictions() -> [Spread; 3] {
    let leaves = 4_096;
    let cache = cache(2_496 / BLOCK + leaves);
    let (space, prompt) = (cache.default_namespace(), Aligned::new(&sequence(1, 2_496)));
    let _held = insert(&cache.session(), &space, &cache, prompt.tokens());
    let others: Vec<Vec<Token>> = (0..leaves as u32).map(|i| sequence(7 + i, BLOCK)).collect();
    let churn = || {
        let session = cache.session();
        others.iter().for_each(|tokens| drop(insert(&session, &space, &cache, tokens)));
        (0..leaves).for_each(|_| assert_eq!(cache.evict(1), 1));
    };
    let copy = Aligned::new(prompt.tokens());
    let compare = || (0..1_000).for_each(|_| memcmp(prompt.tokens(), copy.tokens()));
    let mut measured = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..9 {
        let without = p99_beside(&cache, &prompt, compare);
        let with = p99_beside(&cache, &prompt, churn);
        measured[0].push(with);
        measured[1].push(without);
        measured[2].push(with / without);
    }
    measured.map(Spread::of)
}

type Paired = Box<dyn Fn() -> [Spread; 3]>;
type Plain = Box<dyn Fn() -> f64>;

/// Measures all figures, or those whose names contain an argument.
pub fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let on = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    println!("{:<44} {:>10} {:>10} {:>7} [quartiles]", "match, lease, block ids, release", "ns", "memcmp", "ratio");
    let table: [(&str, Paired); 7] = [
        ("2,496 tokens in one run, held", Box::new(|| one_run(2_496, true))),
        ("2,496 tokens in one run, idle", Box::new(|| one_run(2_496, false))),
        ("2,496 tokens past 8 branches", Box::new(|| past_branches(2_496, 8))),
        ("32,768 tokens past 64 branches", Box::new(|| past_branches(32_768, 64))),
        ("32,768 tokens in one run", Box::new(|| one_run(32_768, false))),
        ("32,768 tokens in 64 turns", Box::new(|| turns(32_768, 64))),
        ("2,496 tokens, rotating over 1,000 prompts", Box::new(|| rotating(1_000))),
    ];
    for (name, measure) in table {
        if on(name) {
            row(name, measure());
        }
    }
    let hot = "hot prefix, 2 threads over 1, of memcmp's";
    if on(hot) {
        let Spread { low, median, high } = hot_prefix();
        println!("{hot:<44} {:>10} {:>10} {median:>7.2} [{low:.2} {high:.2}]", "", "");
    }
    let beside = "p99 of a match beside evictions, over without";
    if on(beside) {
        row(beside, beside_evictions());
    }
    println!("{:<44} {:>10}", "", "ns");
    let plain: [(&str, Plain); 13] = [
        ("resume, nothing new", Box::new(resume)),
        ("session made and dropped", Box::new(sessions)),
        ("reserve and return 16 blocks", Box::new(reserve)),
        ("insert of a 256-token tail, p50", Box::new(tails)),
        ("evict 1 of 1,000 leaves, per leaf", Box::new(|| evict(1_000, 1))),
        ("evict 1 of 100,000 leaves, per leaf", Box::new(|| evict(100_000, 1))),
        ("evict 1 of 1,000,000 leaves, per leaf", Box::new(|| evict(1_000_000, 1))),
        ("evict 100 of 1,000 leaves, per leaf", Box::new(|| evict(1_000, 100))),
        ("evict 100 of 100,000 leaves, per leaf", Box::new(|| evict(100_000, 100))),
        ("evict 100 of 1,000,000 leaves, per leaf", Box::new(|| evict(1_000_000, 100))),
        ("worst evict of 1 after 1 M inserts", Box::new(|| worst_evict(false))),
        ("worst evict of 1 after 1 M matches", Box::new(|| worst_evict(true))),
        ("worst evict of 1 while 1 M are exchanged", Box::new(worst_while_exchanged)),
    ];
    for (name, measure) in plain {
        if on(name) {
            println!("{name:<44} {:>10.1}", measure());
        }
    }
}
