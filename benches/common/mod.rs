//! Helpers that the benches share: aligned tokens, filled caches, paired measurements.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use radixkv::{Lease, Namespace, PrefixCache, Session, Token};

/// Tokens that begin on a cache line, where memcmp is fastest.
pub struct Aligned {
    memory: Vec<Token>,
    skip: usize,
    len: usize,
}

const LINE: usize = 64 / size_of::<Token>();

impl Aligned {
    pub fn new(tokens: &[Token]) -> Self {
        let mut memory = vec![0; tokens.len() + LINE];
        let skip = memory.as_ptr().align_offset(64) % LINE;
        memory[skip..skip + tokens.len()].copy_from_slice(tokens);
        Self { memory, skip, len: tokens.len() }
    }

    pub fn tokens(&self) -> &[Token] {
        &self.memory[self.skip..self.skip + self.len]
    }
}

/// A sequence of tokens. Those of different seeds differ from the first token on.
pub fn sequence(seed: u32, len: usize) -> Vec<Token> {
    (0..len as u32).map(|i| (seed.wrapping_mul(0x9e37_79b9) ^ i.wrapping_mul(0x85eb_ca6b)) | 1).collect()
}

/// Caches the whole blocks of `tokens`. The returned lease keeps them.
pub fn insert(session: &Session, space: &Namespace, cache: &PrefixCache, tokens: &[Token]) -> Lease {
    let hit = session.match_prefix(space, tokens);
    let need = tokens.len() / cache.block_size() - hit.blocks().len();
    let blocks = session.reserve(need).expect("the bench's cache is large enough");
    session.insert(hit.lease(), tokens, blocks).expect("the bench's insert is sound").lease
}

/// Caches `leaves` sequences of one block each, with times of last use in a scattered order, and
/// settles.
pub fn fill_with_leaves(cache: &PrefixCache, leaves: usize) {
    fill(cache, leaves, cache.block_size());
}

/// Caches `count` sequences of `len` tokens each, with 32-bit times of last use in a scattered
/// order, and settles.
pub fn fill(cache: &PrefixCache, count: usize, len: usize) {
    let (session, space) = (cache.session(), cache.default_namespace());
    for i in 0..count as u32 {
        cache.set_time(u64::from(i.wrapping_mul(0x9e37_79b9)));
        drop(insert(&session, &space, cache, &sequence(i, len)));
    }
    cache.settle();
}
/// Median and quartiles of a set of measurements.
#[derive(Clone, Copy)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        Self { low: at(0.25), median: at(0.5), high: at(0.75) }
    }
}

/// Average nanoseconds of a call of `work`, over `calls` calls.
pub fn time(calls: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        work();
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Measures `work` and `limit` alternately. Returns the nanoseconds of each and their ratio, all
/// over rounds.
pub fn paired(rounds: usize, calls: usize, mut work: impl FnMut(), mut limit: impl FnMut()) -> [Spread; 3] {
    time(calls, &mut work);
    time(calls, &mut limit);
    let mut measured = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let bound = time(calls, &mut limit);
        let ours = time(calls, &mut work);
        measured[0].push(ours);
        measured[1].push(bound);
        measured[2].push(ours / bound);
    }
    measured.map(Spread::of)
}

/// memcmp of two equal arrays, whose content is opaque to the compiler.
pub fn memcmp(a: &[Token], b: &[Token]) {
    assert!(black_box(black_box(a) == black_box(b)));
}

/// Average nanoseconds of a call of the slowest thread, when `threads` threads start together and
/// make `calls` calls each.
pub fn together<W: FnMut()>(threads: usize, calls: u64, make: impl Fn() -> W + Sync) -> f64 {
    let start = Barrier::new(threads);
    let slowest = thread::scope(|scope| {
        let run = || {
            let mut work = make();
            start.wait();
            let begun = Instant::now();
            (0..calls).for_each(|_| work());
            begun.elapsed()
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).max().unwrap_or_default()
    });
    slowest.as_nanos() as f64 / calls as f64
}
