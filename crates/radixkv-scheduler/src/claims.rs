//! Claims: one sequence at a time computes each prefix, and other requests that need the prefix
//! wait for it.
//!
//! A *claim* says that its owner is computing its prompt's blocks, from the end of the cached
//! prefix to the prompt's last whole block. A request asks for a claim before it is admitted. If
//! its prompt shares uncached blocks with a pending claim, the request waits only until the deepest
//! shared block is published. The tree of pending prompts holds tokens and request ids, no blocks.
//!
//! # Invariants
//!
//! - **C1** A request waits only for a depth that the claim covers and has not committed.
//! - **C2** A claim that has committed all that it covers, or was given up, is not pending, and no
//!   request waits for it.
//! - **C3** Asking for a claim and starting to wait are one critical section of the queue's lock,
//!   as are committing and waking.
//! - **C4** A claim is committed when its blocks are published, never before. After a claim is
//!   granted, its scheduler looks up the prefix *again*, so it finds every block that was committed
//!   before the grant, and nothing is computed twice.

use std::collections::{BTreeMap, HashMap};

use super::prompts::Prompts;
use super::request::{SequenceId, Waiting};
use crate::sync::Arc;

/// A pending claim.
#[derive(Debug)]
struct Pending {
    /// Number of tokens of the owner's prompt that are published.
    committed: usize,
    /// Number of tokens that will be published when the claim is done: whole blocks.
    covers: usize,
    /// The waiting requests, keyed by the number of tokens that each waits for and its id.
    waiters: BTreeMap<(usize, SequenceId), Arc<Waiting>>,
}

/// All pending claims of a queue, by the ids of their owners.
#[derive(Debug, Default)]
pub(super) struct PrefixClaims {
    prompts: Prompts,
    pending: HashMap<SequenceId, Pending>,
    /// For each waiting request, the owner of the claim and the number of tokens that it waits for.
    waits: HashMap<SequenceId, (SequenceId, usize)>,
}

/// The reply to a request that asks for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum ClaimReply {
    /// No other sequence computes the requested blocks.
    Granted,
    /// Another sequence computes them: the request waits until they are committed or the claim is
    /// given up.
    Waits,
}

impl PrefixClaims {
    /// Claims a prompt's whole blocks for the owner `id`. If another sequence is computing some of
    /// them beyond the first `cached` tokens, the request waits instead.
    ///
    /// A request that publishes nothing waits like others, but no request can wait for its claim.
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

    /// Finds the deepest block of the prompt, beyond the cached tokens, that a pending claim covers
    /// and has not committed. Returns the block's end in tokens and the claim's owner.
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

    /// Records that the first `tokens` tokens of the owner's prompt are published; returns the
    /// requests that waited for them.
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

    /// Gives up the owner's claim; returns the requests that waited for it.
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

    /// Removes a waiting request.
    pub(super) fn forget(&mut self, waiter: SequenceId) {
        let Some((owner, depth)) = self.waits.remove(&waiter) else { return };
        if let Some(pending) = self.pending.get_mut(&owner) {
            pending.waiters.remove(&(depth, waiter));
        }
    }
}

#[cfg(test)]
mod tests;
