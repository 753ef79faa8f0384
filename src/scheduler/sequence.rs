//! One request's tokens and blocks while it is served.
//!
//! ```text
//! tokens     p p p p p p p p p p p p p p s s          prompt, then what was sampled
//!            |-- published --|               |        leased: the cache's canonical blocks
//!            |------ computed -----------|            keys and values are in place
//! blocks     [ leased ][ leased ][ own  ][ own  ]     own: a reservation, returned when it goes
//! ```
//!
//! # Invariants
//!
//! - **S1** The table's first blocks are those of the lease, the others those of the reservation, in order.
//! - **S2** What is computed is at least what is leased, and leaves at least one token.

use std::fmt;

use super::batch::SequenceId;
use super::desk::Claim;
use super::fate::Fate;
use super::request::{Ticket, Waiting};
use super::slots::Slots;
use crate::block::BlockId;
use crate::cache::{Lease, PartialHit, Reservation, Session};
use crate::key::Token;
use crate::sync::Arc;

/// A sequence that is being served.
pub struct Sequence {
    pub(super) ticket: Ticket,
    pub(super) fate: Arc<Fate>,
    pub(super) tokens: Vec<Token>,
    /// Tokens that it was admitted with: up to there it fills in, from there on it decodes.
    pub(super) admitted: usize,
    pub(super) computed: usize,
    pub(super) slot: u32,
    /// Blocks of its row that are its.
    pub(super) blocks: usize,
    /// Taken out for as long as it is exchanged.
    pub(super) lease: Option<Lease>,
    pub(super) own: Reservation,
    pub(super) claim: Option<Claim>,
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
    /// Its name.
    pub fn id(&self) -> SequenceId {
        self.ticket.id
    }

    /// Prompt and output so far.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Tokens of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.ticket.prompt_len
    }

    /// What was sampled so far.
    pub fn output(&self) -> &[Token] {
        &self.tokens[self.ticket.prompt_len..]
    }

    /// Tokens that have keys and values.
    pub fn computed_len(&self) -> usize {
        self.computed
    }

    /// Tokens that were cached when it was first admitted.
    pub fn cached_len(&self) -> usize {
        self.ticket.cached.unwrap_or(0)
    }

    /// Whether it has all the tokens that it may have: it waits to be finished.
    pub fn is_full(&self) -> bool {
        self.tokens.len() >= self.ticket.limit
    }

    /// Tokens that the next steps have to compute.
    pub(super) fn missing(&self) -> usize {
        if self.is_full() { 0 } else { self.tokens.len() - self.computed }
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a sequence has its lease")
    }

    /// Tokens whose blocks are leased.
    pub(super) fn leased(&self) -> usize {
        self.lease().len_tokens()
    }

    /// A second lease on its published blocks.
    pub(super) fn lease_again(&self) -> Lease {
        self.lease().clone()
    }

    /// The blocks of its table.
    pub(super) fn table<'s>(&self, site: &'s Site) -> &'s [BlockId] {
        &site.slots.row(self.slot)[..self.blocks]
    }

    /// Adds blocks to its own, at the end of the table.
    pub(super) fn grow(&mut self, blocks: Reservation, site: &mut Site) {
        site.slots.write(self.slot, self.blocks, blocks.blocks());
        self.blocks += blocks.len();
        self.own.append(blocks);
    }

    /// Takes over what others have published beyond the lease, in place of blocks of its own; one token stays to
    /// compute.
    pub(super) fn catch_up(&mut self, site: &mut Site) {
        let lease = self.lease.take().expect("a sequence has its lease");
        let known = lease.len_tokens() / site.block_size;
        let matchable = &self.tokens[..self.tokens.len() - 1];
        self.lease = Some(site.session.resume_into(lease, matchable, &mut site.beyond));
        site.slots.write(self.slot, known, &site.beyond);
        drop(self.own.split(site.beyond.len()));
        self.computed = self.computed.max(self.leased());
    }

    /// A cached block that agrees with what comes behind the lease for at least `min_tokens`; one token stays to
    /// compute.
    pub(super) fn partial_hit(&self, min_tokens: usize, site: &Site) -> Option<PartialHit> {
        site.session.match_partial(self.lease(), &self.tokens[..self.tokens.len() - 1], min_tokens)
    }

    /// Publishes the whole blocks of the first `len` tokens, which are computed, and points the table to the canonical
    /// ones; duplicates go back. A sequence that the cache refuses keeps its blocks and publishes no more, and so does
    /// one that was aborted.
    ///
    /// The lease that it had, if it has another one now.
    pub(super) fn publish(&mut self, len: usize, site: &mut Site) -> Option<Lease> {
        let (whole, known) = (len / site.block_size, self.leased() / site.block_size);
        if !self.ticket.publish || whole <= known {
            return None;
        }
        let fate = Arc::clone(&self.fate);
        let Some(publishing) = fate.publishing() else {
            self.claim = None;
            return None;
        };
        let filled = self.own.split(whole - known);
        let inserted = site.session.insert(self.lease(), &self.tokens[..whole * site.block_size], filled);
        drop(publishing);
        match inserted {
            Ok(inserted) => {
                site.slots.write(self.slot, known, &inserted.blocks);
                if let Some(claim) = &self.claim {
                    claim.commit(whole * site.block_size);
                }
                self.lease.replace(inserted.lease)
            }
            Err(refused) => {
                let rest = self.own.split(self.own.len());
                self.own.append(refused.reservation);
                self.own.append(rest);
                self.ticket.publish = false;
                self.claim = None;
                None
            }
        }
    }

    /// The same, and what is published goes before all that is not demoted, until it is used; what was leased does not.
    pub(super) fn publish_demoted(&mut self, len: usize, site: &mut Site) {
        if let Some(before) = self.publish(len, site) {
            site.session.demote(self.lease());
            // A use that comes after the demotion undoes it for the blocks that it passes.
            let used = &self.tokens[..before.len_tokens()];
            drop(site.session.resume_into(before, used, &mut site.beyond));
        }
    }

    /// Gives everything up but the tokens, to wait again, and its own blocks, to be dropped when nobody reads them.
    pub(super) fn release(self, site: &mut Site) -> (Waiting, Reservation) {
        site.slots.give_back(self.slot);
        (Waiting { ticket: self.ticket, tokens: self.tokens }, self.own)
    }
}

/// What a scheduler's sequences stand on.
pub(super) struct Site {
    pub(super) session: Session,
    pub(super) slots: Slots,
    pub(super) block_size: usize,
    /// For blocks beyond a lease.
    pub(super) beyond: Vec<BlockId>,
}
