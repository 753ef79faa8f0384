//! The cost of operations over four sizes, mostly decades, of a dimension that they should not
//! depend on.
//!
//! `cargo bench --bench growth [-- NAME...]`. Each row is one dimension, and its baseline is that
//! dimension's smallest size. Times are nanoseconds: medians for operations, the maximum for waits.

#[allow(dead_code)]
mod common;
#[path = "growth/dimensions.rs"]
mod dimensions;

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{Spread, sequence, time};
use dimensions::{Bench, Made, appending, matching_beside, reserving};
use radixkv::{PrefixCache, Token};

const ROUNDS: usize = 11;
/// Calls in a round.
const CALLS: usize = 100;

/// The median of [`ROUNDS`] rounds, after one warm-up round.
fn rounds(mut round: impl FnMut() -> f64) -> f64 {
    round();
    Spread::of((0..ROUNDS).map(|_| round()).collect()).median
}

/// The longest time that another thread waits for its turn while `verb` runs, in nanoseconds.
fn longest_wait(cache: &PrefixCache, verb: impl FnOnce()) -> f64 {
    let (over, ready) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            ready.wait();
            while !over.load(Relaxed) {
                let began = Instant::now();
                _ = black_box(cache.run_once());
                longest = longest.max(began.elapsed());
            }
            longest
        });
        ready.wait();
        verb();
        over.store(true, Relaxed);
        waiting.join().expect("no panic").as_nanos() as f64
    })
}

/// Nanoseconds per evicted block, for a run with a branch at each depth.
fn points(points: usize) -> f64 {
    let bench = Bench::new(2 * points + 2);
    let mut tokens: Vec<Token> = (0..points as Token).collect();
    bench.insert(&tokens);
    for depth in (1..points).rev() {
        tokens.truncate(depth);
        tokens.push(1 << 31);
        bench.insert(&tokens);
    }
    bench.cache.settle();
    let mut evicted = 0;
    time(1, || evicted = bench.cache.evict(usize::MAX)) / evicted as f64
}

fn clearing(leaves: usize) -> f64 {
    let bench = Bench::of_leaves(leaves);
    longest_wait(&bench.cache, || bench.cache.clear())
}

fn evicting(leaves: usize) -> f64 {
    let bench = Bench::of_leaves(leaves);
    longest_wait(&bench.cache, || _ = bench.cache.evict(usize::MAX))
}

/// The longest wait beside one eviction that follows the drop of `leases` leases.
fn backlog(leases: usize) -> f64 {
    let bench = Bench::of_leaves(leases);
    let matched = |seed| bench.session.match_prefix(&bench.space, &sequence(seed, 1)).into_lease();
    drop((0..leases as u32).map(matched).collect::<Vec<_>>());
    longest_wait(&bench.cache, || _ = bench.session.reserve(1).expect("nothing is leased"))
}

type Row = (&'static str, [usize; 4], fn(usize) -> f64);

const ROWS: [Row; 8] = [
    ("reserve(16), blocks of a full pool", [1_000, 10_000, 100_000, 1_000_000], |n| rounds(reserving(n, 1, CALLS))),
    ("evict a block, points of its run", [10, 100, 1_000, 10_000], points),
    ("append a block, depth of the chain", [32, 256, 2_048, 16_384], |n| rounds(appending(n, CALLS))),
    ("longest wait beside clear, leaves", [1_000, 10_000, 100_000, 1_000_000], clearing),
    ("longest wait beside evict(all), leaves", [1_000, 10_000, 100_000, 1_000_000], evicting),
    ("longest wait beside reserve(1), leases dropped before", [1_000, 10_000, 100_000, 1_000_000], backlog),
    ("match, idle sessions made later", [10, 100, 1_000, 10_000], |n| {
        rounds(matching_beside(n, Made::BeforeIdle, CALLS))
    }),
    ("match, idle sessions made before", [10, 100, 1_000, 10_000], |n| {
        rounds(matching_beside(n, Made::AfterIdle, CALLS))
    }),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    println!("{:<54} {:>44} {:>12}", "dimension", "ns at each size", "last / first");
    for (name, sizes, measure) in ROWS {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            let [first, second, third, last] = sizes.map(measure);
            println!("{name:<54} {first:>10.0} {second:>10.0} {third:>10.0} {last:>11.0} {:>12.2}", last / first);
        }
    }
}
