//! Claims: each prefix is computed by one sequence at a time, and whoever needs it waits for that one.
//!
//! A *claim* says that its owner is computing its prompt's blocks from where they were cached up to the prompt's last
//! whole block. Whoever asks for a claim on a prompt that shares blocks with a pending one beyond what is cached for it
//! waits: for the deepest block shared, and no longer. The tree of pending prompts holds tokens and names, no blocks.
//!
//! # Invariants
//!
//! - **C1** A waiter waits for a depth that its claim covers and has not committed.
//! - **C2** A claim that has committed all that it covers, or was given up, is not in the board, and nobody waits for
//!   it.
//! - **C3** Asking and waiting are one step, as are committing and waking: both under the queue's lock.
//! - **C4** A claim is committed when its blocks are published, never before; who is granted a claim looks into the
//!   cache again *afterwards*. So what was committed before the grant is found, and nothing is computed twice.

use std::collections::{BTreeMap, HashMap};

use super::prompts::Prompts;
use super::request::Waiting;
use crate::sync::Arc;

/// A pending claim.
#[derive(Debug)]
struct Pending {
    /// Tokens of the owner's prompt that are published.
    committed: usize,
    /// Tokens that will be: whole blocks.
    covers: usize,
    /// Who waits, by how many tokens it waits for and by name.
    waiters: BTreeMap<(usize, u64), Arc<Waiting>>,
}

/// All pending claims.
#[derive(Debug, Default)]
pub(super) struct PrefixClaims {
    prompts: Prompts,
    pending: HashMap<u64, Pending>,
    /// For each waiter what it waits for: whose claim, and how many tokens of it.
    waits: HashMap<u64, (u64, usize)>,
}

/// What became of asking for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Asked {
    /// Nobody else computes what is asked for.
    Granted,
    /// Somebody does: the request waits until he has committed it or given up.
    Waits,
}

impl PrefixClaims {
    /// Claims a prompt's whole blocks, unless somebody is computing more of them than those of the first `cached`
    /// tokens: then it waits.
    ///
    /// A request that publishes nothing waits as the others do, and is granted a claim that nobody can wait for.
    pub(super) fn claim(&mut self, name: u64, prompt: &Arc<Waiting>, cached: usize, block_size: usize) -> Asked {
        if let Some((depth, owner)) = self.deepest(prompt, cached, block_size) {
            let pending = self.pending.get_mut(&owner).expect("named claims are pending");
            let waiter = prompt.ticket.id.0;
            pending.waiters.insert((depth, waiter), Arc::clone(prompt));
            self.waits.insert(waiter, (owner, depth));
            return Asked::Waits;
        }
        let covers = prompt.tokens.len() / block_size * block_size;
        if covers > cached && prompt.ticket.publish {
            self.prompts.insert(name, prompt, covers);
            self.pending.insert(name, Pending { committed: cached, covers, waiters: BTreeMap::new() });
        }
        Asked::Granted
    }

    /// The deepest block of the prompt beyond what is cached that a pending claim has not committed: its end, and
    /// whose.
    fn deepest(&self, prompt: &Waiting, cached: usize, block_size: usize) -> Option<(usize, u64)> {
        let mut deepest = None;
        let shared = self.prompts.walk(&prompt.ticket.namespace, prompt.matchable());
        self.prompts.sharers(&shared, |owner, agreed| {
            let depth = agreed / block_size * block_size;
            if depth > cached.max(self.pending[&owner].committed) && Some((depth, owner)) > deepest {
                deepest = Some((depth, owner));
            }
        });
        deepest
    }

    /// The first `tokens` of a claim's prompt are published; whom to wake.
    #[must_use = "whoever waited is to be handed out again"]
    pub(super) fn commit(&mut self, name: u64, tokens: usize) -> Vec<Arc<Waiting>> {
        let Some(pending) = self.pending.get_mut(&name) else { return Vec::new() };
        pending.committed = pending.committed.max(tokens);
        if pending.committed >= pending.covers {
            return self.give_up(name);
        }
        let waiters = pending.waiters.split_off(&(tokens + 1, 0));
        let woken = std::mem::replace(&mut pending.waiters, waiters);
        self.wake(woken)
    }

    /// A claim's owner computes no more; whom to wake.
    #[must_use = "whoever waited is to be handed out again"]
    pub(super) fn give_up(&mut self, name: u64) -> Vec<Arc<Waiting>> {
        self.prompts.remove(name);
        let pending = self.pending.remove(&name);
        self.wake(pending.map(|pending| pending.waiters).unwrap_or_default())
    }

    fn wake(&mut self, woken: BTreeMap<(usize, u64), Arc<Waiting>>) -> Vec<Arc<Waiting>> {
        for (_, waiter) in woken.keys() {
            self.waits.remove(waiter);
        }
        woken.into_values().collect()
    }

    /// Takes a waiter out, wherever it waits.
    pub(super) fn forget(&mut self, waiter: u64) {
        let Some((owner, depth)) = self.waits.remove(&waiter) else { return };
        if let Some(pending) = self.pending.get_mut(&owner) {
            pending.waiters.remove(&(depth, waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Token;
    use crate::scheduler::request::testing::named;
    use crate::{Namespace, PrefixCache};

    const BLOCK: usize = 4;

    fn space() -> (PrefixCache, Namespace) {
        let cache = PrefixCache::builder(BLOCK, 1).build().expect("sound");
        let space = cache.default_namespace();
        (cache, space)
    }

    /// `shared` tokens of a common prompt, and `own` others.
    fn prompt(shared: Token, own: Token) -> Vec<Token> {
        (0..shared).chain(1_000..1_000 + own).collect()
    }

    #[test]
    fn a_waiter_waits_for_the_deepest_block_shared_and_no_longer() {
        let (_cache, space) = space();
        let mut claims = PrefixClaims::default();
        assert_eq!(claims.claim(1, &named(1, &space, &prompt(40, 0)), 0, BLOCK), Asked::Granted);
        let mut name = 9;
        let mut waits = |claims: &mut PrefixClaims, shared, own, cached| {
            name += 1;
            let asks = named(name, &space, &prompt(shared, own));
            let asked = claims.claim(99, &asks, cached, BLOCK);
            assert!(claims.give_up(99).is_empty());
            (asked == Asked::Waits).then_some(asks)
        };
        assert!(waits(&mut claims, 3, 9, 0).is_none(), "less than a block is shared");
        assert!(waits(&mut claims, 18, 9, 16).is_none(), "what is shared is cached");
        let [short, long] = [(18, 9), (40, 1)].map(|(shared, own)| waits(&mut claims, shared, own, 0).expect("waits"));
        // The last token is always computed: nine blocks of the ten are of use.
        let equal = waits(&mut claims, 40, 0, 0).expect("waits");
        assert!(claims.commit(1, 12).is_empty());
        assert!(Arc::ptr_eq(&claims.commit(1, 16)[0], &short));
        assert!(waits(&mut claims, 18, 9, 0).is_none(), "what is shared is committed");
        assert!(Arc::ptr_eq(&claims.commit(1, 36)[0], &equal));
        assert!(Arc::ptr_eq(&claims.commit(1, 40)[0], &long));
        assert!(waits(&mut claims, 40, 4, 0).is_none(), "the claim is done");
        assert!(claims.pending.is_empty() && claims.waits.is_empty());
    }

    #[test]
    fn claims_that_nobody_can_use_keep_nobody_waiting() {
        let (cache, space) = space();
        let mut claims = PrefixClaims::default();
        let mut secret = named(1, &space, &prompt(40, 0));
        Arc::get_mut(&mut secret).expect("alone").ticket.publish = false;
        assert_eq!(claims.claim(1, &secret, 0, BLOCK), Asked::Granted);
        let other = cache.namespace(&["other"]);
        assert_eq!(claims.claim(2, &named(2, &other, &prompt(40, 0)), 0, BLOCK), Asked::Granted);
        assert_eq!(claims.claim(3, &named(3, &space, &prompt(40, 0)), 0, BLOCK), Asked::Granted);
        // It waits as everybody does.
        assert_eq!(claims.claim(4, &secret, 0, BLOCK), Asked::Waits);
        assert_eq!(claims.give_up(3).len(), 1);
        claims.forget(secret.ticket.id.0);
    }

    #[test]
    fn a_claim_given_up_wakes_all_but_those_that_are_gone() {
        let (_cache, space) = space();
        let mut claims = PrefixClaims::default();
        assert_eq!(claims.claim(1, &named(1, &space, &prompt(40, 0)), 0, BLOCK), Asked::Granted);
        let asks: Vec<_> = (0..3).map(|own| named(2 + u64::from(own), &space, &prompt(20, own))).collect();
        for asks in &asks {
            assert_eq!(claims.claim(2, asks, 0, BLOCK), Asked::Waits);
        }
        claims.forget(asks[1].ticket.id.0);
        claims.forget(99);
        let woken = claims.give_up(1);
        assert!(woken.len() == 2 && Arc::ptr_eq(&woken[0], &asks[0]) && Arc::ptr_eq(&woken[1], &asks[2]));
        assert!(claims.give_up(1).is_empty());
    }
}
