//! Forks: sequences that go on from one prefix, each in its own way.

use std::fmt;

use super::batch::{BlockCopy, SequenceId};
use super::lifecycle::Scheduler;
use super::sequence::Sequence;
use crate::cache::{Lease, Reservation, ReserveError};

/// Why a sequence was not forked; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkError {
    /// This scheduler does not serve it.
    NotServed,
    /// A fork has at least one token, and no more than its parent.
    BadLength {
        /// Tokens asked for.
        len: usize,
        /// Tokens of the parent.
        tokens: usize,
    },
    /// Too few request slots are free: finish something, or fork less.
    NoSlots {
        /// Forks asked for.
        requested: usize,
        /// Slots that are free.
        free: usize,
    },
    /// The blocks that the forks copy into are not to be had.
    NoBlocks(ReserveError),
}

impl fmt::Display for ForkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => f.write_str("the sequence is not served here"),
            Self::BadLength { len, tokens } => write!(f, "a fork at {len} of {tokens} tokens"),
            Self::NoSlots { requested, free } => write!(f, "{requested} forks asked for, {free} slots free"),
            Self::NoBlocks(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for ForkError {}

impl Scheduler {
    /// Starts `n` sequences with the first `len` tokens of one that is served here, each with a slot; all or none.
    ///
    /// They share its whole blocks and copy the last one in part, with the next step. Forks at the prompt's end compute
    /// its last token once more, and sample from its logits. Each may become as long as the parent may.
    ///
    /// # Errors
    ///
    /// [`ForkError`], and nothing has changed.
    pub fn fork(&mut self, id: SequenceId, len: usize, n: usize) -> Result<Vec<SequenceId>, ForkError> {
        let at = self.find(id).ok_or(ForkError::NotServed)?;
        let tokens = self.running[at].tokens.len();
        if len == 0 || len > tokens {
            return Err(ForkError::BadLength { len, tokens });
        }
        let free = self.free_slots();
        if n > free {
            return Err(ForkError::NoSlots { requested: n, free });
        }
        let parent = &mut self.running[at];
        parent.publish(parent.computed, &mut self.site);
        let computed = parent.computed.min(len - 1);
        let shared = if parent.leased() <= computed {
            parent.lease_again()
        } else {
            self.site.session.lease_prefix(&parent.ticket.namespace, &parent.tokens[..computed]).into_lease()
        };
        let each = len.div_ceil(self.site.block_size) - shared.len_tokens() / self.site.block_size;
        let mut own = self.site.session.reserve(n * each).map_err(ForkError::NoBlocks)?;
        self.kept.leases.push(parent.lease_again());
        let ids = self.desk.name_served(n);
        let fork = |&id| self.fork_one(at, id, len, shared.clone(), own.split(each));
        let forks: Vec<Sequence> = ids.iter().map(fork).collect();
        forks.into_iter().for_each(|fork| self.enlist(fork));
        Ok(ids)
    }

    /// A fork of the sequence at `at`: it shares what is leased, and has blocks of its own for the rest.
    fn fork_one(&mut self, at: usize, id: SequenceId, len: usize, lease: Lease, own: Reservation) -> Sequence {
        let (parent, size) = (&self.running[at], self.site.block_size);
        let computed = parent.computed.min(len - 1);
        let shared = lease.len_tokens() / size;
        let table = parent.table(&self.site).to_vec();
        for (i, &source) in table.iter().enumerate().take(computed.div_ceil(size)).skip(shared) {
            // What is to be copied into is not there yet: its source is.
            let earlier = self.copies.iter().find(|copy| copy.destination == source);
            let source = earlier.map_or(source, |copy| copy.source);
            let tokens = size.min(computed - i * size);
            self.copies.push(BlockCopy { source, destination: own.blocks()[i - shared], tokens });
        }
        let mut ticket = parent.ticket.clone();
        ticket.id = id;
        ticket.prompt_len = ticket.prompt_len.min(len);
        (ticket.cached, ticket.computed) = (Some(computed), 0);
        let tokens = parent.tokens[..len].to_vec();
        let slot = self.site.slots.take(1).expect("enough are free")[0];
        self.site.slots.write(slot, 0, &table[..shared]);
        self.site.slots.write(slot, shared, own.blocks());
        let blocks = shared + own.len();
        Sequence { ticket, tokens, admitted: len, computed, slot, blocks, lease: Some(lease), own, claim: None }
    }
}
