//! What a verb costs over four decades of something that it should not depend on.
//!
//! `cargo bench --bench growth [-- NAME...]`. Each row is one dimension; its baseline is the smallest size of it. Medians, in
//! nanoseconds; the waits are the longest of all.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::{Namespace, PrefixCache, Session, Token};

struct Bench {
    session: Session,
    cache: PrefixCache,
    space: Namespace,
}

impl Bench {
    fn new(blocks: usize) -> Self {
        let cache = PrefixCache::builder(1, blocks).build().expect("a sound setting");
        Self { session: cache.session(), space: cache.default_namespace(), cache }
    }

    /// A cache full of sequences of one block.
    fn of_leaves(leaves: usize) -> Self {
        let bench = Self::new(leaves);
        let mut keys: Vec<Token> = (0..leaves as Token).collect();
        // The order of use is not that of the ids.
        Rng::with_seed(1).shuffle(&mut keys);
        keys.iter().for_each(|key| bench.insert(&[*key]));
        Rng::with_seed(2).shuffle(&mut keys);
        keys.iter().for_each(|key| drop(bench.session.match_prefix(&bench.space, &[*key])));
        bench.cache.settle();
        bench
    }

    fn insert(&self, tokens: &[Token]) {
        let found = self.session.match_prefix(&self.space, tokens);
        let missing = tokens.len() - found.len_tokens();
        let blocks = self.session.reserve(missing).expect("nothing is leased");
        drop(self.session.insert(found.lease(), tokens, blocks).expect("it fits"));
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64
}

/// The longest that another thread waits for its turn while `verb` runs.
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

/// `reserve(16)` in a full pool: evicts 16 sequences whose ids lie anywhere.
fn reserving(blocks: usize) -> f64 {
    let bench = Bench::of_leaves(blocks);
    let mut times = Vec::new();
    for round in 0..500 {
        let began = Instant::now();
        let reserved = bench.session.reserve(16).expect("nothing is leased");
        times.push(began.elapsed());
        drop(reserved);
        (0..16).for_each(|i| bench.insert(&[1 << 31 | round << 4 | i]));
    }
    median(times)
}

/// Evicting a run with a branch at each depth, for each block.
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
    let began = Instant::now();
    let evicted = bench.cache.evict(usize::MAX);
    began.elapsed().as_nanos() as f64 / evicted as f64
}

/// A block more on a chain that was made block by block, in a full pool.
fn appending(depth: usize) -> f64 {
    let bench = Bench::new(depth + 2_048);
    // Older than the chain: they go first.
    (0..2_048).for_each(|key| bench.insert(&[1 << 31 | key]));
    let mut lease = bench.session.match_prefix(&bench.space, &[]).into_lease();
    let (mut tokens, mut times) = (Vec::new(), Vec::new());
    for at in 0..depth + 500 {
        tokens.push(at as Token);
        let began = Instant::now();
        let block = bench.session.reserve(1).expect("older sequences can go");
        lease = bench.session.insert(&lease, &tokens, block).expect("it fits").lease;
        if at >= depth {
            times.push(began.elapsed());
        }
    }
    median(times)
}

fn clearing(leaves: usize) -> f64 {
    let bench = Bench::of_leaves(leaves);
    longest_wait(&bench.cache, || bench.cache.clear())
}

fn evicting(leaves: usize) -> f64 {
    let bench = Bench::of_leaves(leaves);
    longest_wait(&bench.cache, || _ = bench.cache.evict(usize::MAX))
}

/// One eviction after as many leases were dropped.
fn backlog(leases: usize) -> f64 {
    let bench = Bench::of_leaves(leases);
    let matched = |key| bench.session.match_prefix(&bench.space, &[key]).into_lease();
    drop((0..leases as Token).map(matched).collect::<Vec<_>>());
    longest_wait(&bench.cache, || _ = bench.session.reserve(1).expect("nothing is leased"))
}

/// Matching beside idle sessions.
fn sessions(sessions: usize) -> f64 {
    let bench = Bench::of_leaves(64);
    let _idle: Vec<_> = (0..sessions).map(|_| bench.cache.session()).collect();
    let rounds = (0..200).map(|_| {
        let began = Instant::now();
        (0..256).for_each(|key| drop(black_box(bench.session.match_prefix(&bench.space, &[key % 64]))));
        began.elapsed() / 256
    });
    median(rounds.collect())
}

type Row = (&'static str, [usize; 4], fn(usize) -> f64);

const ROWS: [Row; 7] = [
    ("reserve(16), blocks of a full pool", [1_000, 10_000, 100_000, 1_000_000], reserving),
    ("evict a block, points of its run", [10, 100, 1_000, 10_000], points),
    ("append a block, depth of the chain", [32, 256, 2_048, 16_384], appending),
    ("longest wait beside clear, leaves", [1_000, 10_000, 100_000, 1_000_000], clearing),
    ("longest wait beside evict(all), leaves", [1_000, 10_000, 100_000, 1_000_000], evicting),
    ("longest wait beside reserve(1), leases dropped before", [1_000, 10_000, 100_000, 1_000_000], backlog),
    ("match, idle sessions", [10, 100, 1_000, 10_000], sessions),
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
