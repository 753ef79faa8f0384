//! A sequence: the tokens and blocks of one request while a scheduler serves it.
//!
//! ```text
//! tokens     p p p p p p p p p p p p p p s s          prompt, then sampled tokens
//!            |-- published --|               |        leased: the cache's canonical blocks
//!            |------ computed -----------|            keys and values are in place
//! blocks     [ leased ][ leased ][ own  ][ own  ]     own: a reservation, returned when the sequence ends
//! ```
//!
//! # Invariants
//!
//! - **S1** The block table is the blocks of the lease, then those of the reservation, in order.
//! - **S2** All leased tokens are computed; at least one token is not computed yet.

use std::fmt;

use radixkv::{BlockId, BlockRequest, Lease, Namespace, PartialHit, Reservation, ReserveError, Session, Token};

use super::abort::AbortState;
use super::admission::Claim;
use super::batch::Batch;
use super::request::{SequenceId, Ticket, Waiting};
use super::slots::Slots;
use crate::sync::Arc;

/// A served request: its tokens, and how many of them have keys and values.
///
/// A scheduler lends it ([`Scheduler::sequence`](super::Scheduler::sequence),
/// [`Step::sequence`](super::Step::sequence)). Tokens are only appended, by
/// [`Step::complete`](super::Step::complete).
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(16, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
/// scheduler.schedule().complete(&[7])?;
/// let sequence = scheduler.sequence(id).expect("it is served here");
/// assert_eq!((sequence.tokens(), sequence.output()), (&[1, 2, 3, 7][..], &[7][..]));
/// // The last token was sampled, and has no keys and values yet.
/// assert_eq!((sequence.prompt_len(), sequence.computed_len(), sequence.cached_len()), (3, 3, 0));
/// assert!(!sequence.is_full());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Sequence {
    pub(super) ticket: Ticket,
    pub(super) abort: Arc<AbortState>,
    pub(super) tokens: Vec<Token>,
    /// Number of tokens at its admission: these are prefilled, later ones are decoded.
    pub(super) admitted: usize,
    pub(super) computed: usize,
    pub(super) slot: u32,
    /// Number of its blocks in its slot's row; later entries of the row are stale.
    pub(super) blocks: usize,
    /// `None` only while it is replaced.
    pub(super) lease: Option<Lease>,
    pub(super) own: Reservation,
    pub(super) claim: Option<Claim>,
    /// Whether the cache refused its last insert. Cleared by the next step that computes it, so that
    /// no block is published, and replaced, while a pending copy reads it.
    pub(super) refused: bool,
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence")
            .field("id", &self.id())
            .field("tokens", &self.tokens.len())
            .field("computed", &self.computed)
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

impl Sequence {
    /// The id of its request.
    pub fn id(&self) -> SequenceId {
        self.ticket.id
    }

    /// Prompt and output so far.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Number of tokens of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.ticket.prompt_len
    }

    /// The tokens sampled so far.
    pub fn output(&self) -> &[Token] {
        &self.tokens[self.ticket.prompt_len..]
    }

    /// Number of tokens that have keys and values.
    pub fn computed_len(&self) -> usize {
        self.computed
    }

    /// Number of tokens that were cached when the request was first admitted.
    pub fn cached_len(&self) -> usize {
        self.ticket.cached.unwrap_or(0)
    }

    /// Whether it has as many tokens as its request allows. A full sequence is no longer scheduled
    /// and waits for [`Scheduler::finish`](super::Scheduler::finish).
    pub fn is_full(&self) -> bool {
        self.tokens.len() >= self.ticket.limit
    }

    /// Number of tokens still to compute; 0 if the sequence is full.
    pub(super) fn missing(&self) -> usize {
        if self.is_full() { 0 } else { self.tokens.len() - self.computed }
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a sequence has its lease")
    }

    /// Number of tokens whose blocks are leased.
    pub(super) fn leased(&self) -> usize {
        self.lease().len_tokens()
    }

    /// Number of computed tokens before its first invalidated block: later ones were computed from
    /// wrong keys and values.
    pub(super) fn valid_len(&self, workspace: &Workspace) -> usize {
        if !self.lease().is_invalidated() {
            return self.computed;
        }
        let leased = &self.tokens[..self.leased()];
        let hit = workspace.session.match_prefix_untouched(&self.ticket.namespace, leased);
        let same = hit.blocks().iter().zip(self.table(workspace)).take_while(|(cached, own)| cached == own);
        same.count() * workspace.block_size
    }

    /// A second lease on its published blocks.
    pub(super) fn lease_again(&self) -> Lease {
        self.lease().try_clone().expect("a batch has fewer sequences than a prefix may have leases")
    }

    /// Its block table.
    pub(super) fn table<'s>(&self, workspace: &'s Workspace) -> &'s [BlockId] {
        &workspace.slots.row(self.slot)[..self.blocks]
    }

    /// Adds its next `chunk` tokens to a batch.
    pub(super) fn push_to(&self, batch: &mut Batch, chunk: usize, workspace: &Workspace) {
        let (start, end) = (self.computed, self.computed + chunk);
        let last = end == self.tokens.len();
        batch.push(self.id(), self.slot, start, &self.tokens[start..end], self.table(workspace), last);
    }

    /// Adds blocks to its reservation and to the end of its block table.
    pub(super) fn grow(&mut self, blocks: Reservation, workspace: &mut Workspace) {
        workspace.slots.write(self.slot, self.blocks, blocks.blocks());
        self.blocks += blocks.len();
        self.own.append(blocks);
    }

    /// Lists the own blocks in the table from index `at`.
    fn list_own(&mut self, at: usize, workspace: &mut Workspace) {
        workspace.slots.write(self.slot, at, self.own.blocks());
        self.blocks = at + self.own.len();
    }

    /// Extends the lease over blocks that other sequences have published meanwhile, and releases
    /// the sequence's own blocks that they replace. At least one token is left to compute.
    pub(super) fn catch_up(&mut self, workspace: &mut Workspace) {
        let lease = self.lease.take().expect("a sequence has its lease");
        let known = lease.len_tokens() / workspace.block_size;
        let matchable = &self.tokens[..self.tokens.len() - 1];
        self.lease = Some(workspace.session.resume_into(lease, matchable, &mut workspace.beyond));
        workspace.slots.write(self.slot, known, &workspace.beyond);
        self.computed = self.computed.max(self.leased());
        if workspace.beyond.is_empty() {
            return;
        }
        if let Some(claim) = &self.claim {
            claim.commit(self.leased());
        }
        workspace.freed = true;
        drop(self.own.split(workspace.beyond.len()));
    }

    /// Finds a cached block that starts with at least `min_tokens` of the tokens after the lease.
    /// At least one token is left to compute.
    pub(super) fn partial_hit(&self, min_tokens: usize, workspace: &Workspace) -> Option<PartialHit> {
        workspace.session.match_partial(self.lease(), &self.tokens[..self.tokens.len() - 1], min_tokens)
    }

    /// Publishes the whole blocks of the first `len` tokens, which are computed, and points the
    /// block table to the cache's canonical blocks; duplicates return to the pool. If the cache
    /// refuses them, the sequence keeps its blocks, and publishes again after its next step. If the
    /// request was aborted, it keeps its blocks and publishes nothing.
    pub(super) fn publish(&mut self, len: usize, workspace: &mut Workspace) {
        let (whole, known) = (len / workspace.block_size, self.leased() / workspace.block_size);
        if !self.ticket.publish || self.refused || whole <= known {
            return;
        }
        let abort = Arc::clone(&self.abort);
        let Some(publishing) = abort.publishing() else {
            self.claim = None;
            return;
        };
        let filled = self.own.split(whole - known);
        // A panic in the insert loses `filled`: until it returns, only the leased tokens count as
        // computed, and only the blocks that the sequence still has are in the table.
        let leased = self.leased();
        let computed = std::mem::replace(&mut self.computed, leased);
        self.list_own(known, workspace);
        let inserted = workspace.session.insert(self.lease(), &self.tokens[..whole * workspace.block_size], filled);
        self.computed = computed;
        drop(publishing);
        match inserted {
            Ok(inserted) => {
                workspace.freed |= !inserted.duplicates.is_empty();
                workspace.slots.write(self.slot, known, &inserted.blocks);
                self.list_own(whole, workspace);
                if let Some(claim) = &self.claim {
                    claim.commit(whole * workspace.block_size);
                }
                self.lease = Some(inserted.lease);
            }
            Err(refused) => {
                let rest = self.own.split(self.own.len());
                self.own.append(refused.reservation);
                self.own.append(rest);
                self.list_own(known, workspace);
                self.refused = true;
                self.claim = None;
            }
        }
    }

    /// Demotes the leased blocks after the prompt, whoever published them: they are evicted first.
    pub(super) fn demote_output(&self, workspace: &mut Workspace) {
        let prompt = &self.tokens[..self.ticket.prompt_len];
        if self.leased() <= prompt.len() {
            return;
        }
        workspace.session.demote(self.lease());
        // `demote` also affects the blocks of the prompt; using these again undoes it.
        let hit = workspace.session.match_prefix_untouched(&self.ticket.namespace, prompt);
        drop(workspace.session.resume_into(hit.into_lease(), prompt, &mut workspace.beyond));
    }

    /// Releases slot, lease and claim. Returns the request, which can wait again, and the
    /// reservation, to be dropped when no pending copy reads its blocks.
    pub(super) fn release(self, workspace: &mut Workspace) -> (Waiting, Reservation) {
        workspace.slots.give_back(self.slot);
        (Waiting { ticket: self.ticket, tokens: self.tokens }, self.own)
    }
}

/// The state that a scheduler's sequences share: the session and the slot table.
pub(super) struct Workspace {
    pub(super) session: Session,
    pub(super) slots: Slots,
    pub(super) block_size: usize,
    /// Scratch: the blocks added by extending a lease.
    pub(super) beyond: Vec<BlockId>,
    /// Whether sequences that continue have returned blocks to the pool, and no change was
    /// announced for them yet.
    pub(super) freed: bool,
}

impl Workspace {
    /// Reserves all of `blocks`, charged to `namespace`, or none.
    pub(super) fn reserve(&self, blocks: usize, namespace: &Namespace) -> Result<Reservation, ReserveError> {
        self.session.reserve(BlockRequest::new(blocks).paid_by(namespace))
    }
}
