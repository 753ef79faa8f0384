//! Small named scenarios with exact expected numbers. They use only the public API.

#[path = "scenarios/aging.rs"]
mod aging;
#[path = "scenarios/appending.rs"]
mod appending;
#[path = "scenarios/bigrams.rs"]
mod bigrams;
#[path = "scenarios/clocks.rs"]
mod clocks;
#[path = "scenarios/counters.rs"]
mod counters;
#[path = "scenarios/errors.rs"]
mod errors;
#[path = "scenarios/eviction.rs"]
mod eviction;
#[path = "scenarios/eviction_sink.rs"]
mod eviction_sink;
#[path = "scenarios/external.rs"]
mod external;
#[path = "scenarios/forks.rs"]
mod forks;
#[path = "scenarios/growing.rs"]
mod growing;
#[path = "scenarios/handles.rs"]
mod handles;
#[path = "scenarios/invalidation.rs"]
mod invalidation;
#[path = "scenarios/matching.rs"]
mod matching;
#[path = "scenarios/memory.rs"]
mod memory;
#[path = "scenarios/misses.rs"]
mod misses;
#[path = "scenarios/namespaces.rs"]
mod namespaces;
#[path = "scenarios/numbers.rs"]
mod numbers;
#[path = "scenarios/order.rs"]
mod order;
#[path = "scenarios/partial.rs"]
mod partial;
#[path = "scenarios/points.rs"]
mod points;
#[path = "scenarios/quotas.rs"]
mod quotas;
#[path = "scenarios/retention.rs"]
mod retention;
#[path = "scenarios/shards.rs"]
mod shards;
#[path = "scenarios/sink_waiters.rs"]
mod sink_waiters;
#[cfg(feature = "async")]
#[path = "scenarios/tenants.rs"]
mod tenants;
#[path = "scenarios/walk.rs"]
mod walk;
#[path = "scenarios/weak.rs"]
mod weak;

use radixkv::{Clock, Inserted, Lease, Namespace, PolicyKind, PrefixCache, Session, Stats, Token};

/// A cache on a logical clock with one session, and what most scenarios do with it.
struct Bench {
    session: Session,
    cache: PrefixCache,
    space: Namespace,
}

impl Bench {
    fn new(block_size: usize, capacity: usize) -> Self {
        Self::with_policy(block_size, capacity, PolicyKind::Lru)
    }

    fn with_policy(block_size: usize, capacity: usize, policy: PolicyKind) -> Self {
        let builder = PrefixCache::builder(block_size, capacity).policy(policy);
        let cache = builder.clock(Clock::Logical).build().expect("a sound setting");
        Self { session: cache.session(), space: cache.default_namespace(), cache }
    }

    fn matched(&self, tokens: &[Token]) -> Lease {
        self.session.match_prefix(&self.space, tokens).into_lease()
    }

    fn matched_len(&self, tokens: &[Token]) -> usize {
        self.session.match_prefix(&self.space, tokens).len_tokens()
    }

    fn peek(&self, tokens: &[Token]) -> usize {
        self.session.peek(&self.space, tokens)
    }

    /// Inserts what lies beyond the lease.
    fn insert_from(&self, lease: &Lease, tokens: &[Token]) -> Inserted {
        let size = self.cache.block_size();
        let needed = tokens.len() / size - lease.len_tokens() / size;
        let reservation = self.session.reserve(needed).expect("enough blocks");
        self.session.insert(lease, tokens, reservation).expect("a fitting reservation")
    }

    /// Matches and inserts, and keeps the lease on the whole sequence.
    fn insert(&self, tokens: &[Token]) -> Lease {
        let lease = self.matched(tokens);
        self.insert_from(&lease, tokens).lease
    }

    /// One whole request at time `now` that keeps nothing.
    fn serve_at(&self, now: u64, tokens: &[Token]) {
        self.cache.set_time(now);
        drop(self.insert(tokens));
    }

    /// Free, reserved, evictable, protected: settled, and sound.
    fn accounts(&self) -> [usize; 4] {
        let stats = self.stats();
        let cached = [stats.evictable_blocks, stats.protected_blocks];
        [stats.free_blocks, stats.reserved_blocks, cached[0], cached[1]]
    }

    fn stats(&self) -> Stats {
        self.cache.settle();
        self.cache.validate().expect("sound");
        self.cache.stats()
    }
}

/// `len` tokens that share nothing with those of another `key`.
fn sequence(key: u32, len: usize) -> Vec<Token> {
    (0..len as u32).map(|i| key << 16 | i).collect()
}
