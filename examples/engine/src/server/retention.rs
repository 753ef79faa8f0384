//! Retains prefixes that clients mark with `cache_control`, within a budget. Every request that
//! uses a retained prefix restarts its time.
//!
//! The budget counts the whole blocks of each retained prefix. A longer prefix replaces the shorter
//! prefixes that it begins with.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use radixkv::{Namespace, Session, Token};

/// A retained prefix.
#[derive(Debug)]
struct Retained {
    namespace: Namespace,
    tokens: Vec<Token>,
    ttl: Duration,
    until: Instant,
}

/// All retained prefixes.
#[derive(Debug)]
pub(super) struct Retention {
    budget_blocks: usize,
    block_size: usize,
    retained: Mutex<Vec<Retained>>,
}

impl Retention {
    pub(super) fn new(budget_blocks: usize, block_size: usize) -> Self {
        Self { budget_blocks, block_size, retained: Mutex::default() }
    }

    /// Maximum number of retained blocks.
    pub(super) fn budget_blocks(&self) -> usize {
        self.budget_blocks
    }

    /// Called when a request has ended whose prompt and output are `tokens`. Restarts the time of
    /// retained prefixes of `tokens`, and retains the first `retain` tokens if the budget allows.
    pub(super) fn used(
        &self,
        session: &Session,
        namespace: &Namespace,
        tokens: &[Token],
        retain: Option<(usize, Duration)>,
    ) {
        let mut all = self.retained.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        all.retain_mut(|retained| {
            if retained.namespace == *namespace && tokens.starts_with(&retained.tokens) {
                retained.until = if retained.hold(session) { now + retained.ttl } else { now };
            }
            retained.until > now
        });
        let Some((len, ttl)) = retain else { return };
        let len = len / self.block_size * self.block_size;
        let new = Retained { namespace: namespace.clone(), tokens: tokens[..len].to_vec(), ttl, until: now + ttl };
        let covered = |old: &Retained| old.namespace == new.namespace && old.tokens.starts_with(&new.tokens);
        if len == 0 || all.iter().any(|old| covered(old) && old.ttl >= ttl) {
            return;
        }
        let replaced =
            |old: &Retained| old.ttl <= ttl && old.namespace == new.namespace && new.tokens.starts_with(&old.tokens);
        let blocks = |retained: &Retained| retained.tokens.len() / self.block_size;
        let others: usize = all.iter().filter(|old| !replaced(old)).map(blocks).sum();
        if others + blocks(&new) > self.budget_blocks {
            return;
        }
        if new.hold(session) {
            all.retain(|old| !replaced(old));
            all.push(new);
        }
    }

    /// Forgets the retained prefixes of a namespace that was dropped.
    pub(super) fn forget(&self, namespace: &Namespace) {
        let mut all = self.retained.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|retained| retained.namespace != *namespace);
    }
}

impl Retained {
    /// Retains the cached part of the prefix for its time. `false` if nothing is cached, for
    /// example because the namespace was dropped.
    fn hold(&self, session: &Session) -> bool {
        let hit = session.match_prefix_untouched(&self.namespace, &self.tokens);
        hit.len_tokens() > 0 && session.retain(hit.lease(), self.ttl).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use radixkv::PrefixCache;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A cache of 8 blocks of 4 tokens, with a session and a retention.
    struct Bed {
        cache: PrefixCache,
        session: Session,
        retention: Retention,
    }

    impl Bed {
        fn new(budget: usize) -> Self {
            let cache = PrefixCache::builder(4, 8).build().expect("a cache");
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
        let other: Vec<Token> = (100..104).collect();
        assert_eq!(bed.protected_after(&other, None), 0);
        assert!(bed.retention.retained.lock().expect("no panic").is_empty());
    }
}
