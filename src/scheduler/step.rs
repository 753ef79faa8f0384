//! One step: what it computes is chosen, handed out as a [`Batch`], and taken in again.

use std::fmt;

use super::batch::{Batch, BlockCopy, SequenceId};
use super::copies::Holder;
use super::desk::{Claim, Desk};
use super::fate::Fate;
use super::lifecycle::Scheduler;
use super::request::Waiting;
use super::sequence::Sequence;
use crate::cache::{PrefixMatch, Reservation};
use crate::key::Token;
use crate::sync::{Arc, model_size};

/// A step that was scheduled and is being computed.
///
/// It borrows the scheduler: while it lives none of its blocks is given back, whoever aborts what. Dropping it says
/// that nothing was computed, and that nothing is being written any more: the next step schedules the same again.
#[derive(Debug)]
#[must_use = "dropping a step says that it was not computed"]
pub struct Step<'s> {
    scheduler: &'s mut Scheduler,
}

/// Why a step was not taken in; nothing of it counts as computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteError {
    /// One token is needed for each of [`Batch::logits_rows`].
    SampleCount {
        /// Rows whose logits were wanted.
        needed: usize,
        /// Tokens given.
        given: usize,
    },
}

impl fmt::Display for CompleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SampleCount { needed, given } => write!(f, "{given} tokens given for {needed} rows of logits"),
        }
    }
}

impl std::error::Error for CompleteError {}

impl Step<'_> {
    /// What to compute.
    pub fn batch(&self) -> &Batch {
        &self.scheduler.batch
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.batch().is_empty()
    }

    /// A sequence that is being served, of this step or not.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.scheduler.sequence(id)
    }

    /// Requests that were aborted while they were served ([`Aborted::Served`](super::Aborted::Served)) and have left
    /// this scheduler's hands since the last step, or a scheduler's that has gone: nothing of them is left.
    ///
    /// Each is listed once, by one step of one scheduler, also if it was finished, preempted or put back after it was
    /// aborted. An empty step lists too.
    pub fn aborted(&self) -> &[SequenceId] {
        &self.scheduler.listed
    }

    /// Takes the step's results in: `sampled` is one token for each of [`Batch::logits_rows`], in their order.
    ///
    /// Publishes what was computed of prompts. Returns the sequences that have all the tokens they may have; they are
    /// scheduled no more and wait for [`Scheduler::finish`]. Nothing is published of those that were aborted, and they
    /// are not returned.
    ///
    /// # Errors
    ///
    /// If there are more or fewer tokens than rows; the step counts as not computed.
    pub fn complete(self, sampled: &[Token]) -> Result<Vec<SequenceId>, CompleteError> {
        let needed = self.batch().logits_rows().len();
        if sampled.len() != needed {
            return Err(CompleteError::SampleCount { needed, given: sampled.len() });
        }
        Ok(self.scheduler.take_in(sampled))
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.scheduler.discard();
    }
}

/// Why a request that was tried is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// It waits for a claim now, or was aborted.
    Aside,
    /// There are no blocks for it: it stays where it is.
    Refused,
}

/// Requests that one step tries in vain at most; or a sixteenth of those that it has looked at, which costs more.
const TRIES: usize = model_size(64, 4);

impl Scheduler {
    /// Chooses what the next step computes: a token of every sequence that decodes, chunks of those that fill in, and
    /// then whoever is admitted, up to the budget of tokens.
    ///
    /// Without blocks for a sequence that decodes, those of the last rank are preempted. Of requests that turn out to
    /// wait for a prefix that is being computed it tries 64 at most, or a sixteenth of all under
    /// [`Order::LongestPrefix`](super::Order::LongestPrefix), which looks at all anyway. While another scheduler tries
    /// to admit a request it waits for that to end: for two lookups and a reservation.
    pub fn schedule(&mut self) -> Step<'_> {
        self.seen = self.desk.changes.count();
        // A step that was forgotten was not computed.
        self.discard();
        self.drop_ending();
        self.grow();
        let mut budget = self.config.max_batch_tokens;
        self.schedule_running(&mut budget);
        self.cut_short = false;
        if !self.crowded || self.running.is_empty() {
            self.crowded = false;
            self.admit(&mut budget);
        }
        self.copies.hand_to(&mut self.batch);
        if !self.batch.is_empty() {
            self.desk.count_step();
        }
        self.listed = std::mem::take(&mut self.unlisted);
        self.desk.take_unlisted(&mut self.listed);
        Step { scheduler: self }
    }

    /// Sees to it that who decodes has a block for the next token, and preempts the last for it if there is none.
    fn grow(&mut self) {
        let mut at = 0;
        while let Some(sequence) = self.running.get(at) {
            let end = sequence.computed + sequence.missing().min(1);
            if end.div_ceil(self.site.block_size) <= sequence.blocks {
                at += 1;
                continue;
            }
            if let Ok(block) = self.site.session.reserve(1) {
                self.running[at].grow(block, &mut self.site);
                continue;
            }
            // Those that wait to be finished have nothing to come back for.
            let last = self.running.iter().rposition(|sequence| !sequence.is_full());
            self.preempt_at(last.expect("at least this one is not full"));
            self.crowded = true;
        }
    }

    fn schedule_running(&mut self, budget: &mut usize) {
        // A block that is still to be copied from or into is not exchanged.
        let settled = self.copies.is_empty();
        for decodes in [true, false] {
            for sequence in &mut self.running {
                let missing = sequence.missing();
                if *budget == 0 || missing == 0 || decodes != (missing == 1) {
                    continue;
                }
                if settled && !decodes {
                    sequence.catch_up(&mut self.site);
                }
                let chunk = sequence.missing().min(self.config.max_chunk_tokens).min(*budget);
                *budget -= chunk;
                push(&mut self.batch, sequence, chunk, self.site.slots.row(sequence.slot));
            }
        }
    }

    fn admit(&mut self, budget: &mut usize) {
        self.pick.begin();
        if *budget > 0 && self.site.slots.free() > 0 {
            self.desk.note_room();
        }
        let mut in_vain = 0;
        while *budget > 0 && self.site.slots.free() > 0 {
            if in_vain >= TRIES.max(self.pick.looked_at() / 16) {
                self.cut_short = true;
                return;
            }
            self.pick.look(&self.desk, &self.site.session);
            match self.try_next() {
                Some(Ok(sequence)) => {
                    let chunk = sequence.missing().min(self.config.max_chunk_tokens).min(*budget);
                    *budget -= chunk;
                    push(&mut self.batch, &sequence, chunk, self.site.slots.row(sequence.slot));
                    self.enlist(sequence);
                }
                Some(Err(Passed::Aside)) => in_vain += 1,
                Some(Err(Passed::Refused)) | None => return,
            }
        }
    }

    /// Tries to admit the next request, in a turn of this scheduler's.
    fn try_next(&mut self) -> Option<Result<Sequence, Passed>> {
        let desk = Arc::clone(&self.desk);
        let Some(_turn) = desk.turn() else {
            // A waker runs this in the middle of another scheduler's turn: there is a next time.
            self.cut_short = true;
            return None;
        };
        let waiting = self.pick.next(&desk)?;
        let tried = self.admit_one(&waiting);
        if let (Ok(_), Some((due, arrived))) = (&tried, self.pick.due) {
            desk.due_was_served(due, arrived);
        }
        Some(tried)
    }

    /// Admits a request: match, claim, reserve; everything is given back if one of them is refused.
    ///
    /// So it never waits for blocks that its own match protects, and nobody waits for a claim whose owner waits for
    /// blocks. The claim comes first, or two that share a prefix would both take blocks for it for a moment.
    fn admit_one(&mut self, waiting: &Arc<Waiting>) -> Result<Sequence, Passed> {
        let look_up = || self.site.session.match_prefix_untouched(&waiting.ticket.namespace, waiting.matchable());
        let before = look_up();
        let Some(claim) = Desk::claim(&self.desk, waiting, before.len_tokens()) else {
            return Err(Passed::Aside);
        };
        // What was committed before the claim was ours is found now (C4): no block is taken for it.
        let hit = look_up();
        let needed = waiting.tokens.len().div_ceil(self.site.block_size) - hit.blocks().len();
        let Ok(own) = self.site.session.reserve(needed) else {
            return Err(Passed::Refused);
        };
        let Some(fate) = self.desk.admit(waiting.ticket.id, self.name) else {
            return Err(Passed::Aside);
        };
        Ok(self.serve(waiting, fate, hit, own, claim))
    }

    fn serve(
        &mut self,
        waiting: &Waiting,
        fate: Arc<Fate>,
        hit: PrefixMatch,
        own: Reservation,
        claim: Claim,
    ) -> Sequence {
        let slot = self.site.slots.take(1).expect("admission looks for a free slot first")[0];
        self.site.slots.write(slot, 0, hit.blocks());
        self.site.slots.write(slot, hit.blocks().len(), own.blocks());
        let mut sequence = Sequence {
            ticket: waiting.ticket.clone(),
            fate,
            tokens: waiting.tokens.clone(),
            admitted: waiting.tokens.len(),
            computed: hit.len_tokens(),
            slot,
            blocks: hit.blocks().len() + own.len(),
            lease: Some(hit.into_lease()),
            own,
            claim: Some(claim),
        };
        // Counts the use.
        sequence.catch_up(&mut self.site);
        self.copy_partial_hit(&mut sequence);
        let cached = sequence.computed;
        sequence.ticket.cached.get_or_insert(cached);
        sequence
    }

    /// Has the tokens copied that are cached in a part of a block, into the first block of the sequence's own.
    fn copy_partial_hit(&mut self, sequence: &mut Sequence) {
        let Some(min_tokens) = self.config.min_copied_tokens else { return };
        let Some(hit) = sequence.partial_hit(min_tokens, &self.site) else { return };
        // A block that agrees as a whole was published just now. It stays the sequence's own until it is computed: what
        // is to be copied is not published.
        let tokens = hit.len_tokens().min(self.site.block_size - 1);
        self.copies.push(BlockCopy { source: hit.block(), destination: sequence.own.blocks()[0], tokens });
        self.copies.keep(vec![hit.block()], Holder::Partial(hit));
        sequence.computed += tokens;
    }

    /// The step was computed.
    fn take_in(&mut self, sampled: &[Token]) -> Vec<SequenceId> {
        for (at, sequence) in self.running.iter().enumerate() {
            let slot = sequence.slot as usize;
            self.by_slot.resize(self.by_slot.len().max(slot + 1), 0);
            self.by_slot[slot] = at;
        }
        let mut sampled = sampled.iter();
        let mut full = Vec::new();
        for scheduled in self.batch.sequences() {
            let sequence = &mut self.running[self.by_slot[scheduled.slot as usize]];
            sequence.computed = scheduled.context_len();
            sequence.ticket.computed += scheduled.tokens.len();
            if scheduled.start < sequence.admitted {
                sequence.publish(sequence.computed, &mut self.site);
            }
            if sequence.computed >= sequence.admitted {
                sequence.claim = None;
            }
            if scheduled.wants_logits {
                sequence.tokens.extend(sampled.next());
                if sequence.is_full() && !sequence.fate.is_aborted() {
                    full.push(sequence.id());
                }
            }
        }
        self.batch.clear();
        if self.copies.done() {
            self.desk.changes.announce();
        }
        full
    }
}

fn push(batch: &mut Batch, sequence: &Sequence, chunk: usize, row: &[u32]) {
    let (start, end) = (sequence.computed, sequence.computed + chunk);
    let last = end == sequence.tokens.len();
    batch.push(sequence.id(), sequence.slot, start, &sequence.tokens[start..end], &row[..sequence.blocks], last);
}
