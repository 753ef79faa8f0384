//! Admits requests to a step: each tried request becomes a running sequence or keeps waiting.
//!
//! [`Scheduler::schedule`] calls [`Scheduler::admit`]. To try a request, within a turn: match the
//! cached prefix, claim the prompt, reserve blocks, and let a lower tier fill some of them.

use radixkv::{PrefixMatch, Reservation, ReserveError};

use super::abort::AbortState;
use super::admission::{Admission, Claim};
use super::batch::BlockCopy;
use super::copies::Holder;
use super::lifecycle::Scheduler;
use super::request::Waiting;
use super::sequence::Sequence;
use super::tier::Filled;
use crate::sync::{Arc, model_size};

/// Why a tried request was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skipped {
    /// It now waits for a claim or its namespace's quota, or was aborted: try the next request.
    Aside,
    /// It waits behind other requests for its namespace's quota. This cost no lookup.
    Behind,
    /// There are no blocks for it: try no other request before it.
    Refused,
}

/// How many requests one step may skip, or a sixteenth of those it has looked at if that is more:
/// looking costs more than skipping.
const MAX_SKIPPED: usize = model_size(64, 4);
/// This many requests that join a line count as one skipped request: they cost no lookup.
const BEHIND: usize = 64;

impl Scheduler {
    /// Admits requests to the step while `budget` tokens and slots are left.
    pub(super) fn admit(&mut self, budget: &mut usize) {
        self.pick.begin();
        if *budget > 0 && self.workspace.slots.free() > 0 {
            self.admission.note_room();
            // Requests from the lines may use half of the skips; the rest is for the other ready
            // ones.
            if self.lines_seen != self.seen {
                (self.lines_seen, self.untried_lines) = (self.seen, self.admission.lines());
            }
            self.admission.let_out(MAX_SKIPPED / 2);
            self.untried_lines = self.untried_lines.saturating_sub(MAX_SKIPPED / 2);
            self.cut_short |= self.untried_lines > 0;
        }
        let (mut skipped, mut behind) = (0, 0);
        while *budget > 0 && self.workspace.slots.free() > 0 {
            if skipped >= MAX_SKIPPED.max(self.pick.looked_at() / 16) {
                self.cut_short = true;
                return;
            }
            self.pick.look(&self.admission, &self.workspace.session);
            match self.try_next() {
                Some(Ok(sequence)) => {
                    let chunk = sequence.missing().min(self.config.max_chunk_tokens).min(*budget);
                    *budget -= chunk;
                    sequence.push_to(&mut self.batch, chunk, &self.workspace);
                    self.insert_running(sequence);
                }
                Some(Err(Skipped::Aside)) => skipped += 1,
                Some(Err(Skipped::Behind)) => {
                    behind += 1;
                    skipped += usize::from(behind % BEHIND == 0);
                }
                Some(Err(Skipped::Refused)) | None => return,
            }
        }
    }

    /// Tries to admit the next request, in a turn. `None` if there is no request or this thread
    /// already has the turn.
    fn try_next(&mut self) -> Option<Result<Sequence, Skipped>> {
        let admission = Arc::clone(&self.admission);
        let Some(_turn) = admission.turn() else {
            // A waker called this inside another scheduler's turn: the next step tries again.
            self.cut_short = true;
            return None;
        };
        let waiting = self.pick.next(&admission)?;
        let tried = self.admit_one(&waiting);
        if let (Ok(_), Some((overdue, arrived))) = (&tried, self.pick.overdue) {
            admission.overdue_was_served(overdue, arrived);
        }
        Some(tried)
    }

    /// Admits a request: match, claim, reserve. If one of them is refused, everything is given
    /// back.
    ///
    /// So no request waits for blocks that its own match protects, or for a claim whose owner waits
    /// for blocks. The claim comes before the blocks, so that two requests never hold blocks for
    /// one prefix.
    fn admit_one(&mut self, waiting: &Arc<Waiting>) -> Result<Sequence, Skipped> {
        if self.admission.join_line(waiting) {
            return Err(Skipped::Behind);
        }
        let look_up = || self.workspace.session.match_prefix_untouched(&waiting.ticket.namespace, waiting.matchable());
        let before = look_up();
        let Some(claim) = Admission::claim(&self.admission, waiting, before.len_tokens()) else {
            return Err(Skipped::Aside);
        };
        // Finds blocks that were committed before the claim was granted (C4), so that none are
        // reserved for them.
        let hit = look_up();
        let needed = waiting.tokens.len().div_ceil(self.workspace.block_size) - hit.blocks().len();
        let own = self.reserve_for(waiting, needed)?;
        let (hit, own) = self.fill(waiting, hit, own, &claim)?;
        let Some(abort) = self.admission.admit(waiting.ticket.id, self.id) else {
            return Err(Skipped::Aside);
        };
        Ok(self.serve(waiting, abort, hit, own, claim))
    }

    /// Reserves blocks for a request. If the quota refuses them, the request moves to its namespace's
    /// line.
    fn reserve_for(&self, waiting: &Waiting, blocks: usize) -> Result<Reservation, Skipped> {
        self.workspace.reserve(blocks, &waiting.ticket.namespace).map_err(|refused| match refused {
            ReserveError::OverQuota { .. } => {
                self.admission.hold_back(waiting);
                Skipped::Aside
            }
            _ => Skipped::Refused,
        })
    }

    /// Lets the lower tier fill the first blocks of a request. The request is not admitted yet: if
    /// the tier panics, it keeps waiting.
    fn fill(
        &mut self,
        waiting: &Waiting,
        hit: PrefixMatch,
        mut own: Reservation,
        claim: &Claim,
    ) -> Result<(PrefixMatch, Reservation), Skipped> {
        let Some(fill) = &mut self.below.0 else { return Ok((hit, own)) };
        let (namespace, tokens, before) = (&waiting.ticket.namespace, waiting.matchable(), hit.len_tokens());
        let payer = own.split(0);
        let Filled { lease, blocks: mut own } = fill(namespace, tokens, hit, own);
        assert!(
            own.is_of(&self.admission.cache) && own.has_payer_of(&payer),
            "`fill` returned blocks of another cache or payer: it must return the blocks that it was given"
        );
        let hit = self.workspace.session.match_prefix_untouched(namespace, tokens);
        drop(lease);
        let needed = waiting.tokens.len().div_ceil(self.workspace.block_size) - hit.blocks().len();
        // Other sequences may have published more of the prompt, or the filled blocks were
        // invalidated.
        match own.len().checked_sub(needed) {
            Some(surplus) => drop(own.split(surplus)),
            None => own.append(self.reserve_for(waiting, needed - own.len())?),
        }
        if hit.len_tokens() > before {
            claim.commit(hit.len_tokens());
        }
        Ok((hit, own))
    }

    /// Makes the sequence of an admitted request.
    fn serve(
        &mut self,
        waiting: &Waiting,
        abort: Arc<AbortState>,
        hit: PrefixMatch,
        own: Reservation,
        claim: Claim,
    ) -> Sequence {
        let slot = self.workspace.slots.take(1).expect("admission looks for a free slot first")[0];
        self.workspace.slots.write(slot, 0, hit.blocks());
        self.workspace.slots.write(slot, hit.blocks().len(), own.blocks());
        let mut sequence = Sequence {
            ticket: waiting.ticket.clone(),
            abort,
            tokens: waiting.tokens.clone(),
            admitted: waiting.tokens.len(),
            computed: hit.len_tokens(),
            slot,
            blocks: hit.blocks().len() + own.len(),
            lease: Some(hit.into_lease()),
            own,
            claim: Some(claim),
            refused: false,
        };
        // Also counts as a use of the matched blocks, which the lookups did not.
        sequence.catch_up(&mut self.workspace);
        self.copy_partial_hit(&mut sequence);
        let cached = sequence.computed;
        sequence.ticket.cached.get_or_insert(cached);
        sequence
    }

    /// If a cached block starts with some of the next tokens, adds a copy of their keys and values
    /// to the sequence's first own block.
    fn copy_partial_hit(&mut self, sequence: &mut Sequence) {
        let Some(min_tokens) = self.config.min_copied_tokens else { return };
        let Some(hit) = sequence.partial_hit(min_tokens, &self.workspace) else { return };
        // If the whole block agrees, it was published after the match. One token less is copied: a
        // whole block would count as computed, and could be published before the copy is made.
        let tokens = hit.len_tokens().min(self.workspace.block_size - 1);
        self.copies.push(BlockCopy { source: hit.block(), destination: sequence.own.blocks()[0], tokens });
        self.copies.keep(vec![hit.block()], Holder::Partial(hit));
        sequence.computed += tokens;
    }
}
