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
mod tests;
