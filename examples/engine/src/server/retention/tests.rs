use radixkv::{Clock, PrefixCache};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A cache of 8 blocks of 4 tokens, whose clock only the test advances, with a session and a
/// retention.
struct Bed {
    cache: PrefixCache,
    session: Session,
    retention: Retention,
}

impl Bed {
    fn new(budget: usize) -> Self {
        let cache = PrefixCache::builder(4, 8).clock(Clock::Logical).build().expect("a cache");
        Self { session: cache.session(), cache, retention: Retention::new(budget, 4) }
    }

    /// The number of blocks that stay when all others are evicted, after a request for
    /// `tokens`.
    fn protected_after(&self, tokens: &[Token], retain: Option<(usize, Duration)>) -> usize {
        let space = self.cache.default_namespace();
        let miss = self.session.match_prefix(&space, tokens);
        let missing = tokens.len() / 4 - miss.blocks().len();
        let blocks = self.session.reserve(missing).expect("blocks");
        drop(self.session.insert(miss.lease(), tokens, blocks).expect("an insert"));
        drop(miss);
        self.retention.used(&self.session, &space, tokens, retain);
        self.cache.evict(8);
        self.cache.stats().protected_blocks
    }
}

#[test]
fn a_marked_prefix_stays_within_the_budget() {
    let bed = Bed::new(3);
    let tokens: Vec<Token> = (0..16).collect();
    assert_eq!(bed.protected_after(&tokens, None), 0);
    // Whole blocks of the first 11 tokens.
    assert_eq!(bed.protected_after(&tokens, Some((11, MINUTE))), 2);
    // A longer prefix replaces it in the budget; then there is no room for another prefix.
    assert_eq!(bed.protected_after(&tokens, Some((12, MINUTE))), 3);
    let other: Vec<Token> = (100..108).collect();
    assert_eq!(bed.protected_after(&other, Some((8, MINUTE))), 3);
}

#[test]
fn a_namespace_without_blocks_has_none_of_the_budget() {
    let bed = Bed::new(2);
    let (tokens, others): (Vec<Token>, Vec<Token>) = ((0..8).collect(), (100..108).collect());
    let tenant = bed.cache.namespace(&["tenant"]);
    bed.retention.used(&bed.session, &tenant, &tokens, Some((8, MINUTE)));
    assert_eq!(bed.protected_after(&tokens, Some((8, MINUTE))), 2, "nothing was cached in the other");
    bed.retention.forget(&bed.cache.default_namespace());
    bed.cache.clear();
    assert_eq!(bed.protected_after(&others, Some((8, MINUTE))), 2);
}

#[test]
fn a_hit_retains_anew_and_time_ends_it() {
    let bed = Bed::new(8);
    let tokens: Vec<Token> = (0..8).collect();
    let short = Duration::from_millis(200);
    assert_eq!(bed.protected_after(&tokens, Some((8, short))), 2);
    let until = |bed: &Bed| bed.retention.retained.lock().expect("no panic")[0].until;
    let first = until(&bed);
    assert_eq!(bed.protected_after(&tokens, None), 2);
    assert!(until(&bed) > first);
    std::thread::sleep(short);
    bed.cache.set_time(2 * short.as_nanos() as u64);
    let other: Vec<Token> = (100..104).collect();
    assert_eq!(bed.protected_after(&other, None), 0);
    assert!(bed.retention.retained.lock().expect("no panic").is_empty());
}
