//! Verbs over the size of something that they should not depend on: each is prepared once for a
//! size, and measured in rounds.

use std::hint::black_box;
use std::time::Instant;

use radixkv::{Clock, Lease, Namespace, PrefixCache, Session, Token};

use super::common::{Spread, fill, insert, sequence, time};

/// A logical time after those of [`fill`].
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

    /// A cache full of sequences of one block, used in another order than that of their ids.
    pub fn of_leaves(leaves: usize) -> Self {
        Self::of_sequences(leaves, 1)
    }

    /// A cache full of sequences of `len` blocks.
    pub fn of_sequences(count: usize, len: usize) -> Self {
        let bench = Self::new(count * len);
        fill(&bench.cache, count, len);
        bench.cache.set_time(LATER);
        bench
    }

    pub fn insert(&self, tokens: &[Token]) {
        drop(insert(&self.session, &self.space, &self.cache, tokens));
    }

    /// Inserts the last block of `tokens` after a lease on all others.
    fn append(&self, lease: &Lease, tokens: &[Token]) -> Lease {
        let block = self.session.reserve(1).expect("older sequences can go");
        self.session.insert(lease, tokens, block).expect("it fits").lease
    }

    /// Tokens that match.
    pub fn matched(&self, tokens: &[Token]) -> usize {
        self.session.match_prefix(&self.space, tokens).len_tokens()
    }
}

/// Blocks of one reservation.
const RESERVED: usize = 16;

/// `reserve(16)` in a full pool of `blocks` blocks, in sequences of `len`: a median of `calls`
/// calls in a round.
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

/// A block more on a chain of `depth` blocks that was made block by block, in a full pool: a median
/// of `calls` calls in a round, each round beside the blocks of the one before.
pub fn appending(depth: usize, calls: usize) -> impl FnMut() -> f64 {
    let spare = 2_048.max(2 * calls);
    let bench = Bench::new(depth + spare);
    let chain = sequence(spare as u32, depth);
    let mut base = bench.session.match_prefix(&bench.space, &[]).into_lease();
    for len in 1..=depth {
        base = bench.append(&base, &chain[..len]);
    }
    // What goes first. After the chain, so that victims are as warm for a long one.
    fill(&bench.cache, spare, 1);
    bench.cache.set_time(LATER);
    let mut seeds = spare as u32 + 1..;
    move || {
        let mut tokens = chain.clone();
        tokens.extend(sequence(seeds.next().expect("endless"), calls + 1));
        // The first block of a branch is no append.
        let mut lease = bench.append(&base, &tokens[..=depth]);
        let mut times = Vec::with_capacity(calls);
        for len in depth + 2..=depth + 1 + calls {
            let began = Instant::now();
            lease = bench.append(&lease, &tokens[..len]);
            times.push(began.elapsed().as_nanos() as f64);
        }
        // A match of it would leave the caches as cold as the chain is long.
        assert_eq!(lease.len_tokens(), tokens.len(), "all of the chain is cached");
        Spread::of(times).median
    }
}

/// When the session that is measured was made.
#[derive(Clone, Copy)]
pub enum Made {
    BeforeIdle,
    AfterIdle,
}

/// A match and its release beside `idle` sessions, each of which was used once.
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
