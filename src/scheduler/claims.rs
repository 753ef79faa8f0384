//! Claims: each prefix is computed by one sequence at a time, and requests that need it wait for that sequence.
//!
//! A *claim* says that its owner is computing its prompt's blocks, from where they were cached up to the prompt's last
//! whole block. A request asks for a claim before it is admitted. If its prompt shares blocks with a pending claim,
//! beyond what is cached for it, the request waits until the deepest shared block is published, and no longer. The tree
//! of pending prompts holds tokens and ids of requests, no blocks.
//!
//! # Invariants
//!
//! - **C1** A request waits for a depth that the claim covers and has not committed.
//! - **C2** A claim that has committed all that it covers, or was given up, is not pending, and no request waits for
//!   it.
//! - **C3** Asking and waiting are one step, as are committing and waking: both under the queue's lock.
//! - **C4** A claim is committed when its blocks are published, never before; after a claim is granted, its scheduler
//!   looks into the cache *again*. So what was committed before the grant is found, and nothing is computed twice.

use std::collections::{BTreeMap, HashMap};

use super::prompts::Prompts;
use super::request::{SequenceId, Waiting};
use crate::sync::Arc;

/// A pending claim.
#[derive(Debug)]
struct Pending {
    /// Tokens of the owner's prompt that are published.
    committed: usize,
    /// Tokens that are published when the claim is done: whole blocks.
    covers: usize,
    /// The requests that wait, by how many tokens each waits for and by id.
    waiters: BTreeMap<(usize, SequenceId), Arc<Waiting>>,
}

/// All pending claims of a queue, by the ids of their owners.
#[derive(Debug, Default)]
pub(super) struct PrefixClaims {
    prompts: Prompts,
    pending: HashMap<SequenceId, Pending>,
    /// For each waiting request the owner of the claim that it waits for, and how many tokens of that.
    waits: HashMap<SequenceId, (SequenceId, usize)>,
}

/// The answer to a request that asks for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum ClaimReply {
    /// No other sequence computes the blocks that are asked for.
    Granted,
    /// Another sequence computes them: the request waits until they are committed or that claim is given up.
    Waits,
}

impl PrefixClaims {
    /// Claims a prompt's whole blocks for the owner `id`, unless another sequence is computing more of them than the
    /// first `cached` tokens: then the request waits.
    ///
    /// A request that publishes nothing waits as others do, and is granted a claim that no request can wait for.
    pub(super) fn claim(
        &mut self,
        id: SequenceId,
        prompt: &Arc<Waiting>,
        cached: usize,
        block_size: usize,
    ) -> ClaimReply {
        if let Some((depth, owner)) = self.deepest(prompt, cached, block_size) {
            let pending = self.pending.get_mut(&owner).expect("a prompt in the tree has a pending claim");
            let waiter = prompt.ticket.id;
            pending.waiters.insert((depth, waiter), Arc::clone(prompt));
            self.waits.insert(waiter, (owner, depth));
            return ClaimReply::Waits;
        }
        let covers = prompt.tokens.len() / block_size * block_size;
        if covers > cached && prompt.ticket.publish {
            self.prompts.insert(id, prompt, covers);
            self.pending.insert(id, Pending { committed: cached, covers, waiters: BTreeMap::new() });
        }
        ClaimReply::Granted
    }

    /// The deepest block of the prompt, beyond what is cached, that a pending claim covers and has not committed: where
    /// it ends, and the claim's owner.
    fn deepest(&self, prompt: &Waiting, cached: usize, block_size: usize) -> Option<(usize, SequenceId)> {
        let mut deepest = None;
        let agreement = self.prompts.walk(&prompt.ticket.namespace, prompt.matchable());
        self.prompts.sharers(&agreement, |owner, agreed| {
            let depth = agreed / block_size * block_size;
            if depth > cached.max(self.pending[&owner].committed) && Some((depth, owner)) > deepest {
                deepest = Some((depth, owner));
            }
        });
        deepest
    }

    /// The first `tokens` tokens of the owner's prompt are published; returns the requests that waited for them.
    #[must_use = "the requests that waited are ready"]
    pub(super) fn commit(&mut self, id: SequenceId, tokens: usize) -> Vec<Arc<Waiting>> {
        let Some(pending) = self.pending.get_mut(&id) else { return Vec::new() };
        pending.committed = pending.committed.max(tokens);
        if pending.committed >= pending.covers {
            return self.give_up(id);
        }
        let waiters = pending.waiters.split_off(&(tokens + 1, SequenceId(0)));
        let woken = std::mem::replace(&mut pending.waiters, waiters);
        self.wake(woken)
    }

    /// The owner gives its claim up; returns the requests that waited for it.
    #[must_use = "the requests that waited are ready"]
    pub(super) fn give_up(&mut self, id: SequenceId) -> Vec<Arc<Waiting>> {
        self.prompts.remove(id);
        let pending = self.pending.remove(&id);
        self.wake(pending.map(|pending| pending.waiters).unwrap_or_default())
    }

    fn wake(&mut self, woken: BTreeMap<(usize, SequenceId), Arc<Waiting>>) -> Vec<Arc<Waiting>> {
        for (_, waiter) in woken.keys() {
            self.waits.remove(waiter);
        }
        woken.into_values().collect()
    }

    /// Removes a request from those that wait.
    pub(super) fn forget(&mut self, waiter: SequenceId) {
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
    use crate::scheduler::request::testing::numbered;
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
        assert_eq!(claims.claim(SequenceId(1), &numbered(1, &space, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
        let mut id = 9;
        let mut waits = |claims: &mut PrefixClaims, shared, own, cached| {
            id += 1;
            let asks = numbered(id, &space, &prompt(shared, own));
            let asked = claims.claim(SequenceId(99), &asks, cached, BLOCK);
            assert!(claims.give_up(SequenceId(99)).is_empty());
            (asked == ClaimReply::Waits).then_some(asks)
        };
        assert!(waits(&mut claims, 3, 9, 0).is_none(), "less than a block is shared");
        assert!(waits(&mut claims, 18, 9, 16).is_none(), "what is shared is cached");
        let [short, long] = [(18, 9), (40, 1)].map(|(shared, own)| waits(&mut claims, shared, own, 0).expect("waits"));
        // The last token is always computed: nine blocks of the ten are of use.
        let equal = waits(&mut claims, 40, 0, 0).expect("waits");
        assert!(claims.commit(SequenceId(1), 12).is_empty());
        assert!(Arc::ptr_eq(&claims.commit(SequenceId(1), 16)[0], &short));
        assert!(waits(&mut claims, 18, 9, 0).is_none(), "what is shared is committed");
        assert!(Arc::ptr_eq(&claims.commit(SequenceId(1), 36)[0], &equal));
        assert!(Arc::ptr_eq(&claims.commit(SequenceId(1), 40)[0], &long));
        assert!(waits(&mut claims, 40, 4, 0).is_none(), "the claim is done");
        assert!(claims.pending.is_empty() && claims.waits.is_empty());
    }

    #[test]
    fn claims_that_no_request_can_use_keep_none_waiting() {
        let (cache, space) = space();
        let mut claims = PrefixClaims::default();
        let mut secret = numbered(1, &space, &prompt(40, 0));
        Arc::get_mut(&mut secret).expect("alone").ticket.publish = false;
        assert_eq!(claims.claim(SequenceId(1), &secret, 0, BLOCK), ClaimReply::Granted);
        let other = cache.namespace(&["other"]);
        assert_eq!(claims.claim(SequenceId(2), &numbered(2, &other, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
        assert_eq!(claims.claim(SequenceId(3), &numbered(3, &space, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
        // A request that publishes nothing waits as others do.
        assert_eq!(claims.claim(SequenceId(4), &secret, 0, BLOCK), ClaimReply::Waits);
        assert_eq!(claims.give_up(SequenceId(3)).len(), 1);
        claims.forget(secret.ticket.id);
    }

    #[test]
    fn a_claim_given_up_wakes_all_but_those_that_are_gone() {
        let (_cache, space) = space();
        let mut claims = PrefixClaims::default();
        assert_eq!(claims.claim(SequenceId(1), &numbered(1, &space, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
        let asks: Vec<_> = (0..3).map(|own| numbered(2 + u64::from(own), &space, &prompt(20, own))).collect();
        for asks in &asks {
            assert_eq!(claims.claim(SequenceId(2), asks, 0, BLOCK), ClaimReply::Waits);
        }
        claims.forget(asks[1].ticket.id);
        claims.forget(SequenceId(99));
        let woken = claims.give_up(SequenceId(1));
        assert!(woken.len() == 2 && Arc::ptr_eq(&woken[0], &asks[0]) && Arc::ptr_eq(&woken[1], &asks[2]));
        assert!(claims.give_up(SequenceId(1)).is_empty());
    }
}
