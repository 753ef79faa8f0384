//! Forks: sequences that go on from one prefix, each in its own way.

use std::fmt;

use super::batch::{BlockCopy, SequenceId};
use super::copies::Holder;
use super::fate::Fate;
use super::lifecycle::Scheduler;
use super::sequence::Sequence;
use crate::block::BlockId;
use crate::cache::{Lease, Reservation, ReserveError};
use crate::key::Token;
use crate::sync::Arc;

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

/// What forks start from.
struct Start {
    tokens: Vec<Token>,
    /// How many of them have keys and values, in blocks that are shared or copied.
    computed: usize,
    /// On the blocks that are shared.
    lease: Lease,
    shared: Vec<BlockId>,
    /// The blocks behind them: where the content of each is now, and how many tokens of it are copied.
    copied: Vec<(BlockId, usize)>,
}

impl Scheduler {
    /// Starts `n` sequences with the first `len` tokens of one that is served here, each with a slot; all or none.
    ///
    /// They share its whole blocks and copy the last one in part, with the next step. Forks at the prompt's end compute
    /// its last token once more, and sample from its logits. Each may become as long as the parent may.
    ///
    /// Where whole blocks of the parent are not published (it opted out, was aborted, or its namespace was cleared or
    /// dropped since), they are copied too, and such forks publish nothing.
    ///
    /// # Errors
    ///
    /// [`ForkError`], and nothing has changed.
    pub fn fork(&mut self, id: SequenceId, len: usize, n: usize) -> Result<Vec<SequenceId>, ForkError> {
        self.discard();
        let at = self.find(id).ok_or(ForkError::NotServed)?;
        let tokens = self.running[at].tokens.len();
        if len == 0 || len > tokens {
            return Err(ForkError::BadLength { len, tokens });
        }
        let free = self.free_slots();
        if n > free {
            return Err(ForkError::NoSlots { requested: n, free });
        }
        if n == 0 {
            return Ok(Vec::new());
        }
        let parent = &mut self.running[at];
        parent.publish(parent.computed, &mut self.site);
        let start = self.start(at, len);
        let each = len.div_ceil(self.site.block_size) - start.shared.len();
        let mut own = self.site.session.reserve(n * each).map_err(ForkError::NoBlocks)?;
        self.keep_leased(at, &start);
        let named = self.desk.name_served(n, self.name);
        let ids = named.iter().map(|&(id, _)| id).collect();
        let fork = |(id, fate)| self.fork_one(at, &start, id, fate, own.split(each));
        let forks: Vec<Sequence> = named.into_iter().map(fork).collect();
        forks.into_iter().for_each(|fork| self.enlist(fork));
        Ok(ids)
    }

    /// What forks of the sequence at `at` with its first `len` tokens share, and what they copy.
    fn start(&self, at: usize, len: usize) -> Start {
        let (parent, size) = (&self.running[at], self.site.block_size);
        let computed = parent.computed.min(len - 1);
        let lease = self.share(parent, computed);
        let shared = lease.len_tokens() / size;
        let table = parent.table(&self.site);
        // What is to be copied into is not there yet: its source is.
        let origins = self.copies.origins();
        let copied = |i: usize| (*origins.get(&table[i]).unwrap_or(&table[i]), size.min(computed - i * size));
        let copied = (shared..computed.div_ceil(size)).map(copied).collect();
        let tokens = parent.tokens[..len].to_vec();
        Start { tokens, computed, lease, shared: table[..shared].to_vec(), copied }
    }

    /// A lease on those of a sequence's first `computed` tokens whose blocks forks may share.
    ///
    /// They must be the blocks of its own table: if the namespace was cleared since it took its lease, others may be
    /// cached for the same tokens. Then nothing is shared.
    fn share(&self, parent: &Sequence, computed: usize) -> Lease {
        if parent.leased() <= computed {
            return parent.lease_again();
        }
        let (session, namespace) = (&self.site.session, &parent.ticket.namespace);
        let hit = session.match_prefix_untouched(namespace, &parent.tokens[..computed]);
        let whole = computed / self.site.block_size;
        if hit.blocks() == &parent.table(&self.site)[..whole] {
            return hit.into_lease();
        }
        session.match_prefix_untouched(namespace, &[]).into_lease()
    }

    /// Keeps those blocks that forks copy from which the sequence at `at` has leased.
    fn keep_leased(&mut self, at: usize, start: &Start) {
        let leased = self.running[at].leased() / self.site.block_size;
        let copied = leased.saturating_sub(start.shared.len()).min(start.copied.len());
        if copied > 0 {
            let sources = start.copied[..copied].iter().map(|&(source, _)| source).collect();
            self.copies.keep(sources, Holder::Lease(self.running[at].lease_again()));
        }
    }

    /// A fork of the sequence at `at`: it shares what is leased, and has blocks of its own for the rest.
    fn fork_one(&mut self, at: usize, start: &Start, id: SequenceId, fate: Arc<Fate>, own: Reservation) -> Sequence {
        let (len, size, shared) = (start.tokens.len(), self.site.block_size, start.shared.len());
        for (&(source, tokens), &destination) in start.copied.iter().zip(own.blocks()) {
            self.copies.push(BlockCopy { source, destination, tokens });
        }
        let mut ticket = self.running[at].ticket.clone();
        ticket.id = id;
        ticket.prompt_len = ticket.prompt_len.min(len);
        // A whole block that is to be copied looks computed, and is not until the step that copies it.
        ticket.publish &= start.copied.iter().all(|&(_, tokens)| tokens < size);
        (ticket.cached, ticket.computed) = (Some(start.computed), 0);
        let slot = self.site.slots.take(1).expect("enough are free")[0];
        self.site.slots.write(slot, 0, &start.shared);
        self.site.slots.write(slot, shared, own.blocks());
        Sequence {
            ticket,
            fate,
            tokens: start.tokens.clone(),
            admitted: len,
            computed: start.computed,
            slot,
            blocks: shared + own.len(),
            lease: Some(start.lease.clone()),
            own,
            claim: None,
        }
    }
}
