//! Operations measured over the size of something that they should not depend on. Each is prepared
//! once per size, and then measured in rounds.

use std::hint::black_box;
use std::time::Instant;

use radixkv::{Clock, Lease, Namespace, PrefixCache, Session, Token};

use super::common::{Spread, fill, insert, sequence, time};

/// A logical time later than all times that [`fill`] uses.
const LATER: u64 = 1 << 32;

/// A cache with one session.
pub struct Bench {
    pub session: Session,
    pub cache: PrefixCache,
    pub space: Namespace,
}

impl Bench {
    pub fn new(blocks: usize) -> Self {
        let builder = PrefixCache::builder(1, blocks).clock(Clock::Logical);
        let cache = builder.build().expect("a sound setting");
        Self { session: cache.session(), space: cache.default_namespace(), cache }
    }

    /// A cache full of sequences of one block each, last used in an order that differs from their
    /// ids.
    pub fn of_leaves(leaves: usize) -> Self {
        Self::of_sequences(leaves, 1)
    }

    /// A cache full of sequences of `len` blocks each.
    pub fn of_sequences(count: usize, len: usize) -> Self {
        let bench = Self::new(count * len);
        fill(&bench.cache, count, len);
        bench.cache.set_time(LATER);
        bench
    }

    pub fn insert(&self, tokens: &[Token]) {
        drop(insert(&self.session, &self.space, &self.cache, tokens));
    }

    /// Inserts the last block of `tokens`; `lease` covers all blocks before it.
    fn append(&self, lease: &Lease, tokens: &[Token]) -> Lease {
        let block = self.session.reserve(1).expect("older sequences can go");
        self.session.insert(lease, tokens, block).expect("it fits").lease
    }

    /// The number of leading tokens that are cached.
    pub fn matched(&self, tokens: &[Token]) -> usize {
        self.session.match_prefix(&self.space, tokens).len_tokens()
    }
}

/// Blocks of one reservation.
const RESERVED: usize = 16;

/// `reserve(16)` in a full pool of `blocks` blocks, cached in sequences of `len` blocks. A round is
/// the median of `calls` calls.
pub fn reserving(blocks: usize, len: usize, calls: usize) -> impl FnMut() -> f64 {
    let bench = Bench::of_sequences(blocks / len, len);
    let mut seeds = (blocks / len) as u32..;
    move || {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let began = Instant::now();
            let reserved = bench.session.reserve(RESERVED).expect("nothing is leased");
            times.push(began.elapsed().as_nanos() as f64);
            assert_eq!(reserved.blocks().len(), RESERVED);
            drop(reserved);
            for seed in seeds.by_ref().take(RESERVED.div_ceil(len)) {
                bench.insert(&sequence(seed, len));
            }
        }
        assert_eq!(bench.matched(&sequence(seeds.start - 1, len)), len, "what came last is cached");
        Spread::of(times).median
    }
}

/// Appends one block to a chain of `depth` blocks, itself built block by block, in a full pool. A
/// round is the median of `calls` calls; each round appends a new branch beside those of earlier
/// rounds.
pub fn appending(depth: usize, calls: usize) -> impl FnMut() -> f64 {
    let spare = 2_048.max(2 * calls);
    let bench = Bench::new(depth + spare);
    let chain = sequence(spare as u32, depth);
    let mut base = bench.session.match_prefix(&bench.space, &[]).into_lease();
    for len in 1..=depth {
        base = bench.append(&base, &chain[..len]);
    }
    // The sequences that are evicted first. Inserted after the chain, so that victims are equally
    // warm in the CPU's caches, however long the chain is.
    fill(&bench.cache, spare, 1);
    bench.cache.set_time(LATER);
    let mut seeds = spare as u32 + 1..;
    move || {
        let mut tokens = chain.clone();
        tokens.extend(sequence(seeds.next().expect("endless"), calls + 1));
        // Not timed: the first block makes a new branch, which is not an append.
        let mut lease = bench.append(&base, &tokens[..=depth]);
        let mut times = Vec::with_capacity(calls);
        for len in depth + 2..=depth + 1 + calls {
            let began = Instant::now();
            lease = bench.append(&lease, &tokens[..len]);
            times.push(began.elapsed().as_nanos() as f64);
        }
        // No match to check this: it would evict more of the CPU's caches the longer the chain is.
        assert_eq!(lease.len_tokens(), tokens.len(), "all of the chain is cached");
        Spread::of(times).median
    }
}

/// Whether the measured session was made before or after the idle ones.
#[derive(Clone, Copy)]
pub enum Made {
    BeforeIdle,
    AfterIdle,
}

/// A match and its release in a cache with `idle` other sessions, each of which was used once.
pub fn matching_beside(idle: usize, made: Made, calls: usize) -> impl FnMut() -> f64 {
    let bench = Bench::of_leaves(64);
    let leaf = sequence(7, 1);
    let idle: Vec<Session> = (0..idle).map(|_| bench.cache.session()).collect();
    for session in &idle {
        drop(session.match_prefix(&bench.space, &leaf));
    }
    let measured = match made {
        Made::BeforeIdle => None,
        Made::AfterIdle => Some(bench.cache.session()),
    };
    move || {
        let _ = &idle;
        let session = measured.as_ref().unwrap_or(&bench.session);
        time(calls, || assert_eq!(black_box(session.match_prefix(&bench.space, &leaf)).len_tokens(), 1))
    }
}
