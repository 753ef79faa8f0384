//! Forks: sequences that start from a prefix of a running one, such as parallel samples and beams.

use std::fmt;

use radixkv::{BlockId, Lease, Reservation, ReserveError, Token};

use super::abort::AbortState;
use super::batch::BlockCopy;
use super::copies::Holder;
use super::lifecycle::Scheduler;
use super::request::SequenceId;
use super::sequence::Sequence;
use crate::sync::Arc;

/// Why [`Scheduler::fork`] refused; no fork was made.
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// use radixkv_scheduler::ForkError;
/// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(16, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default().max_running(4))?;
/// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
/// # scheduler.schedule().complete(&[7])?;
/// // One of four slots is in use.
/// assert_eq!(scheduler.fork(id, 3, 5), Err(ForkError::NoSlots { requested: 5, free: 3 }));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkError {
    /// This scheduler does not serve the sequence: it waits, has ended, or is served by another
    /// scheduler.
    NotServed,
    /// A fork has at least one token, and at most as many as its parent.
    BadLength {
        /// The requested number of tokens.
        len: usize,
        /// Number of tokens of the parent.
        tokens: usize,
    },
    /// Too few request slots are free: finish sequences, or make fewer forks.
    NoSlots {
        /// The requested number of forks.
        requested: usize,
        /// Number of free slots.
        free: usize,
    },
    /// There are no blocks to copy to for the forks: finish sequences, or make fewer forks.
    NoBlocks(ReserveError),
}

impl fmt::Display for ForkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => f.write_str(
                "this scheduler does not serve the sequence: it waits, has ended, or is served by another scheduler",
            ),
            Self::BadLength { len, tokens } => write!(f, "fork at {len} tokens requested, the sequence has {tokens}"),
            Self::NoSlots { requested, free } => write!(f, "{requested} forks requested, {free} slots are free"),
            Self::NoBlocks(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for ForkError {}

/// The prefix that forks start from.
struct Start {
    tokens: Vec<Token>,
    /// How many of these tokens have keys and values, in shared or copied blocks.
    computed: usize,
    /// A lease on the shared blocks.
    lease: Lease,
    /// Whether forks may publish: false if the namespace was cleared since these tokens were computed.
    publish: bool,
    shared: Vec<BlockId>,
    /// For each block after the shared ones, the block that now holds its content, and the number
    /// of tokens to copy.
    copied: Vec<(BlockId, usize)>,
}

impl Scheduler {
    /// Forks a served sequence: starts `n` sequences with its first `len` tokens, each in its own
    /// slot; all or none.
    ///
    /// Publishes the parent's whole blocks, which the forks share; the next step copies the tokens
    /// that they need from the last block. Forks at the prompt's end compute its last token again
    /// and sample from its logits. Each fork has the same maximum length as its parent. Forks
    /// differ only if the engine samples differently for each [`SequenceId`].
    ///
    /// If whole blocks of the parent are not published, they are also copied, and these forks
    /// publish nothing. If blocks of the parent were
    /// [invalidated](radixkv::PrefixCache::invalidate_blocks), its forks compute their tokens from
    /// the first such block on again. Blocks are not published if [`Request::publish`](super::Request::publish)
    /// is false, if the request was aborted, or if its namespace was cleared or removed meanwhile.
    ///
    /// # Errors
    ///
    /// [`ForkError`]; no fork was made.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(2, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3, 4], 8))?;
    /// scheduler.schedule().complete(&[7])?;
    /// // Three more samples after the prompt of four tokens.
    /// let forks = scheduler.fork(id, 4, 3)?;
    /// let step = scheduler.schedule();
    /// // The first block is shared. Token 3 is copied from the second one, token 4 is computed again.
    /// assert_eq!((step.batch().copies().len(), step.batch().copies()[0].tokens), (3, 1));
    /// assert!(step.batch().sequences().skip(1).all(|fork| fork.tokens == [4] && forks.contains(&fork.id)));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn fork(&mut self, id: SequenceId, len: usize, n: usize) -> Result<Vec<SequenceId>, ForkError> {
        self.discard_step();
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
        parent.publish(parent.computed, &mut self.workspace);
        self.announce_freed();
        let start = self.start(at, len);
        let each = len.div_ceil(self.workspace.block_size) - start.shared.len();
        let namespace = self.running[at].ticket.namespace.clone();
        // A refused reservation may hold blocks for a moment: no other scheduler looks meanwhile.
        let turn = self.admission.turn();
        let mut own = self.workspace.reserve(n * each, &namespace).map_err(ForkError::NoBlocks)?;
        drop(turn);
        self.keep_leased(at, &start);
        let served = self.admission.serve_new(n, self.id);
        let ids = served.iter().map(|&(id, _)| id).collect();
        let fork = |(id, abort)| self.fork_one(at, &start, id, abort, own.split(each));
        let forks: Vec<Sequence> = served.into_iter().map(fork).collect();
        forks.into_iter().for_each(|fork| self.insert_running(fork));
        Ok(ids)
    }

    /// Finds the blocks that are shared and copied by forks that start with the first `len` tokens
    /// of the running sequence at index `at`.
    fn start(&self, at: usize, len: usize) -> Start {
        let (parent, size) = (&self.running[at], self.workspace.block_size);
        let computed = parent.valid_len(&self.workspace).min(len - 1);
        let (lease, publish) = self.share(parent, computed);
        let shared = lease.len_tokens() / size;
        let table = parent.table(&self.workspace);
        // The content of a pending copy's destination is still in its source.
        let origins = self.copies.origins();
        let copied = |i: usize| (*origins.get(&table[i]).unwrap_or(&table[i]), size.min(computed - i * size));
        let copied = (shared..computed.div_ceil(size)).map(copied).collect();
        let tokens = parent.tokens[..len].to_vec();
        Start { tokens, computed, lease, publish, shared: table[..shared].to_vec(), copied }
    }

    /// Leases the blocks of a sequence's first `computed` tokens that forks may share. Returns also
    /// whether forks may publish.
    ///
    /// Only blocks in the sequence's own table may be shared. If the namespace was cleared after
    /// the sequence took its lease, other blocks may be cached for the same tokens: then nothing is
    /// shared, and nothing that was computed before the clear may be published.
    fn share(&self, parent: &Sequence, computed: usize) -> (Lease, bool) {
        if parent.leased() <= computed {
            // All of it is valid, and no insert beyond it succeeds after a clear.
            return (parent.lease_again(), true);
        }
        let (session, namespace, size) = (&self.workspace.session, &parent.ticket.namespace, self.workspace.block_size);
        let table = parent.table(&self.workspace);
        let cached = |len: usize| session.match_prefix_untouched(namespace, &parent.tokens[..len]);
        let hit = cached(computed);
        // Matched later than `hit`: if the last block, which is copied, is still cached, so was the
        // namespace of `hit`.
        let with_copied = cached(computed.next_multiple_of(size));
        let is_current = with_copied.blocks() == &table[..computed.div_ceil(size)];
        if is_current && hit.blocks() == &table[..computed / size] {
            return (hit.into_lease(), true);
        }
        (cached(0).into_lease(), false)
    }

    /// Keeps the source blocks that the running sequence at index `at` has leased.
    fn keep_leased(&mut self, at: usize, start: &Start) {
        let leased = self.running[at].leased() / self.workspace.block_size;
        let copied = leased.saturating_sub(start.shared.len()).min(start.copied.len());
        if copied > 0 {
            let sources = start.copied[..copied].iter().map(|&(source, _)| source).collect();
            self.copies.keep(sources, Holder::Lease(self.running[at].lease_again()));
        }
    }

    /// Makes a fork of the running sequence at index `at`. It shares the blocks of `start.lease`
    /// and owns the others, `own`.
    fn fork_one(
        &mut self,
        at: usize,
        start: &Start,
        id: SequenceId,
        abort: Arc<AbortState>,
        own: Reservation,
    ) -> Sequence {
        let (len, size, shared) = (start.tokens.len(), self.workspace.block_size, start.shared.len());
        for (&(source, tokens), &destination) in start.copied.iter().zip(own.blocks()) {
            self.copies.push(BlockCopy { source, destination, tokens });
        }
        let mut ticket = self.running[at].ticket.clone();
        ticket.id = id;
        ticket.prompt_len = ticket.prompt_len.min(len);
        // A copied whole block counts as computed, but has no content until the next step: a fork
        // with such a block must not publish.
        ticket.publish &= start.publish && start.copied.iter().all(|&(_, tokens)| tokens < size);
        (ticket.cached, ticket.computed) = (Some(start.computed), 0);
        let slot = self.workspace.slots.take(1).expect("enough are free")[0];
        self.workspace.slots.write(slot, 0, &start.shared);
        self.workspace.slots.write(slot, shared, own.blocks());
        Sequence {
            ticket,
            abort,
            tokens: start.tokens.clone(),
            admitted: len,
            computed: start.computed,
            slot,
            blocks: shared + own.len(),
            lease: Some(start.lease.try_clone().expect("a batch has fewer sequences than a prefix may have leases")),
            own,
            claim: None,
            refused: false,
        }
    }
}
