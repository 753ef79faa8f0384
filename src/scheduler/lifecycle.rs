//! A scheduler: the sequences that one thread serves, and what may happen to them between two steps.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use super::admission::{Admission, SchedulerId};
use super::batch::{Batch, SequenceId};
use super::copies::Copies;
use super::pick::Pick;
use super::queue::{Aborted, Order, WaitingQueue};
use super::request::{Ticket, Waiting};
use super::sequence::{Sequence, Site};
use super::slots::Slots;
use crate::key::Token;
use crate::sync::Arc;

/// How much one scheduler serves at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Request slots: sequences that run at once. Each has a block of its own, so no more than the cache has blocks are
    /// ever used; up to 65,536 are allowed with a smaller cache too. Default: 64.
    pub max_running: u32,
    /// Tokens of one step: at least one for each slot. Default: 2,048.
    pub max_batch_tokens: usize,
    /// Tokens of one sequence in one step: a longer prompt is computed in chunks. Default: 2,048.
    pub max_chunk_tokens: usize,
    /// Where a prompt parts from what is cached inside a block, the tokens up to there are copied instead of computed
    /// if they are at least so many. Nothing: never. Default: nothing.
    pub min_copied_tokens: Option<usize>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { max_running: 64, max_batch_tokens: 2_048, max_chunk_tokens: 2_048, min_copied_tokens: None }
    }
}

/// Why a scheduler was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A scheduler without slots serves nobody.
    NoSlots,
    /// A chunk has at least one token.
    EmptyChunk,
    /// Each running sequence has a block of its own: so many never run at once.
    TooManySlots {
        /// Sequences that were to run at once.
        max_running: u32,
        /// The most that are allowed: the cache's blocks, or 65,536 if it has fewer.
        most: u32,
    },
    /// Every running sequence must be able to decode in every step: allow more tokens, or fewer sequences.
    BatchTooSmall {
        /// Tokens of one step.
        max_batch_tokens: usize,
        /// Sequences that run at once.
        max_running: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlots => f.write_str("0 request slots"),
            Self::EmptyChunk => f.write_str("chunks of 0 tokens"),
            Self::TooManySlots { max_running, most } => {
                write!(f, "{max_running} request slots where {most} are the most that can be used")
            }
            Self::BatchTooSmall { max_batch_tokens, max_running } => {
                write!(f, "{max_batch_tokens} tokens a step are too few for {max_running} running sequences")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// Serves requests of a [`WaitingQueue`] on one thread.
///
/// Not `Send`: it has a [`Session`](crate::Session). Several schedulers serve one queue, each on its own thread; a
/// sequence stays with the scheduler that admitted it until it is finished, aborted or preempted. Dropping a scheduler,
/// in a panic too, lets its sequences wait for another one; those that only waited to be finished end.
pub struct Scheduler {
    pub(super) admission: Arc<Admission>,
    pub(super) name: SchedulerId,
    pub(super) config: SchedulerConfig,
    pub(super) site: Site,
    /// By rank: whoever is preempted first comes last.
    pub(super) running: Vec<Sequence>,
    pub(super) batch: Batch,
    pub(super) pick: Pick,
    /// To be done with the next step.
    pub(super) copies: Copies,
    /// Somebody had to be preempted, and nothing has ended since: who is admitted now would be preempted next.
    pub(super) crowded: bool,
    /// Aborted requests that have left this scheduler's hands, for the next step to list.
    pub(super) unlisted: Vec<SequenceId>,
    /// Those that the last step lists.
    pub(super) listed: Vec<SequenceId>,
    /// Changes of the queue when the last step was scheduled.
    pub(super) seen: u64,
    /// The last step did not try all that it might have.
    pub(super) cut_short: bool,
    /// Of each slot the place of its sequence in `running`, when a step is taken in.
    pub(super) by_slot: Vec<usize>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("config", &self.config)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

/// How a sequence ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finish {
    /// Tokens whose keys and values are to be kept, from the first on: nothing that was not computed, or that was
    /// computed and taken back. What was published before stays.
    pub committed_len: usize,
    /// Whether they are published; chunks of the prompt were, as they were computed.
    pub insert: bool,
    /// Where reasoning begins that no later prompt repeats: nothing from there on is published.
    pub reasoning_from: Option<usize>,
    /// Whether the output is evicted before all else that is cached, until somebody uses it; its own prompt it goes
    /// before in any case.
    pub demote_output: bool,
}

impl Finish {
    /// Publishes all of the first `committed_len` tokens.
    pub fn keeping(committed_len: usize) -> Self {
        Self { committed_len, insert: true, reasoning_from: None, demote_output: false }
    }
}

/// A sequence that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// Its name.
    pub id: SequenceId,
    /// Prompt and output.
    pub tokens: Vec<Token>,
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// Tokens that were cached when it was first admitted.
    pub cached_len: usize,
    /// Tokens computed for it, again after a preemption included.
    pub computed_len: usize,
}

/// Why a sequence was not finished; it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishError {
    /// This scheduler does not serve it.
    NotServed,
    /// Only what was computed can be kept.
    NotComputed {
        /// Tokens to be kept.
        committed: usize,
        /// Tokens that have keys and values.
        computed: usize,
    },
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => f.write_str("the sequence is not served here"),
            Self::NotComputed { committed, computed } => {
                write!(f, "{committed} tokens committed of which {computed} are computed")
            }
        }
    }
}

impl std::error::Error for FinishError {}

impl Scheduler {
    /// Slots that may be asked for whatever the cache has, so that one setting does for small ones too.
    const ALWAYS_ALLOWED: u32 = 1 << 16;

    /// A scheduler for the calling thread.
    ///
    /// # Errors
    ///
    /// If it has no slots or too many, or too few tokens a step.
    pub fn new(queue: &WaitingQueue, config: SchedulerConfig) -> Result<Self, ConfigError> {
        let SchedulerConfig { max_running, max_batch_tokens, max_chunk_tokens, .. } = config;
        if max_running == 0 {
            return Err(ConfigError::NoSlots);
        }
        let most = u32::try_from(queue.admission.cache.capacity_blocks()).unwrap_or(u32::MAX).max(Self::ALWAYS_ALLOWED);
        if max_running > most {
            return Err(ConfigError::TooManySlots { max_running, most });
        }
        if max_chunk_tokens == 0 {
            return Err(ConfigError::EmptyChunk);
        }
        if max_batch_tokens < max_running as usize {
            return Err(ConfigError::BatchTooSmall { max_batch_tokens, max_running });
        }
        let admission = Arc::clone(&queue.admission);
        let block_size = admission.cache.block_size();
        let slots = Slots::new(max_running, admission.config.max_blocks);
        let site = Site { session: admission.cache.session(), slots, block_size, beyond: Vec::new() };
        Ok(Self {
            name: admission.enter(),
            admission,
            config,
            site,
            running: Vec::new(),
            batch: Batch::new(block_size),
            pick: Pick::default(),
            copies: Copies::default(),
            crowded: false,
            unlisted: Vec::new(),
            listed: Vec::new(),
            seen: 0,
            cut_short: false,
            by_slot: Vec::new(),
        })
    }

    /// Sleeps until something has changed since the last step was scheduled that may give work: a request came, was put
    /// back, aborted or is to end, a claim was committed or given up, a sequence ended. False if nothing has within
    /// `timeout`. Does not sleep if the last step left requests untried, because there were too many to try in one step.
    ///
    /// For a step that was empty. A request that was refused blocks is no change. Blocks that somebody beside the
    /// queue's schedulers gives back wake nobody: let the timeout be short where there is such a one.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.cut_short || self.admission.changes.wait_beyond(self.seen, timeout)
    }

    /// The sequences that are served here.
    pub fn running(&self) -> &[Sequence] {
        &self.running
    }

    /// A sequence that is served here.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.running.iter().find(|sequence| sequence.id() == id)
    }

    /// Request slots that are free.
    pub fn free_slots(&self) -> usize {
        self.site.slots.free()
    }

    /// Ends a sequence: publishes what is to be kept, and lets everything go. Nothing is published of one that was
    /// aborted ([`Aborted::Served`]); the next step lists it ([`Step::aborted`](super::Step::aborted)) all the same.
    ///
    /// # Errors
    ///
    /// [`FinishError`], and it goes on.
    pub fn finish(&mut self, id: SequenceId, finish: Finish) -> Result<Finished, FinishError> {
        self.discard();
        let at = self.find(id).ok_or(FinishError::NotServed)?;
        let sequence = &mut self.running[at];
        let (committed, computed) = (finish.committed_len, sequence.computed);
        if committed > computed {
            return Err(FinishError::NotComputed { committed, computed });
        }
        let kept = committed.min(finish.reasoning_from.unwrap_or(committed));
        if finish.insert && finish.demote_output {
            sequence.publish_demoted(kept, &mut self.site);
        } else if finish.insert {
            sequence.publish(kept, &mut self.site);
        }
        let Waiting { ticket, tokens } = self.let_go(at);
        self.end(id);
        let Ticket { prompt_len, cached, computed, .. } = ticket;
        Ok(Finished { id, tokens, prompt_len, cached_len: cached.unwrap_or(0), computed_len: computed })
    }

    /// Ends a request at once, if it is served here or waits; see [`WaitingQueue::abort`].
    pub fn abort(&mut self, id: SequenceId) -> Aborted {
        let aborted = self.admission.abort(id);
        if aborted == Aborted::Served {
            self.discard();
            self.drop_ending();
        }
        aborted
    }

    /// Lets a sequence wait again: its blocks are given back, published as far as they are whole, and it will be
    /// resumed here or at another scheduler from what is still cached then. False if it is not served here, or has all
    /// the tokens that it may have.
    ///
    /// One that was aborted ends instead, and nothing of it is published.
    pub fn preempt(&mut self, id: SequenceId) -> bool {
        self.discard();
        let at = self.find(id).filter(|&at| !self.running[at].is_full());
        at.inspect(|&at| self.preempt_at(at)).is_some()
    }

    pub(super) fn find(&self, id: SequenceId) -> Option<usize> {
        self.running.iter().position(|sequence| sequence.id() == id)
    }

    /// Puts a sequence among those that run.
    pub(super) fn enlist(&mut self, sequence: Sequence) {
        let by_priority = self.admission.config.order == Order::Priority;
        let rank = |ticket: &Ticket| (Reverse(if by_priority { ticket.priority } else { 0 }), ticket.id);
        let at = self.running.partition_point(|other| rank(&other.ticket) < rank(&sequence.ticket));
        self.running.insert(at, sequence);
    }

    /// Takes a sequence off, with everything that it holds.
    fn let_go(&mut self, at: usize) -> Waiting {
        self.crowded = false;
        let sequence = self.running.remove(at);
        let (waiting, own) = sequence.release(&mut self.site);
        self.copies.part_from(own);
        waiting
    }

    /// Tells the desk that a sequence has ended.
    fn end(&mut self, id: SequenceId) {
        if !self.admission.end(id) {
            self.unlisted.push(id);
        }
    }

    /// Takes a sequence off and lets its request wait again, unless it was aborted. In a turn: no request is admitted to
    /// the blocks that come free before the request has its place back.
    fn put_back(&mut self, at: usize) {
        let admission = Arc::clone(&self.admission);
        let _turn = admission.turn();
        let waiting = self.let_go(at);
        let id = waiting.ticket.id;
        if !self.admission.put_back(Arc::new(waiting)) {
            self.unlisted.push(id);
        }
    }

    pub(super) fn preempt_at(&mut self, at: usize) {
        let sequence = &mut self.running[at];
        sequence.publish(sequence.computed, &mut self.site);
        self.put_back(at);
    }

    /// Drops the sequences that somebody has aborted.
    pub(super) fn drop_ending(&mut self) {
        for id in self.admission.ending(self.name) {
            if let Some(at) = self.find(id) {
                self.let_go(at);
                self.end(id);
            }
        }
    }

    /// The last step was not computed, if it was not taken in: what it would have copied is still to be copied.
    pub(super) fn discard(&mut self) {
        self.copies.take_back(&self.batch);
        self.batch.clear();
    }
}

impl Drop for Scheduler {
    /// What is being served waits again, for another scheduler; nothing of it is published.
    fn drop(&mut self) {
        // A step that was forgotten was not computed: what its copies keep goes with their destinations.
        self.discard();
        while let Some(last) = self.running.len().checked_sub(1) {
            if self.running[last].is_full() {
                let id = self.let_go(last).ticket.id;
                self.end(id);
            } else {
                self.put_back(last);
            }
        }
        self.admission.leave_unlisted(&mut self.unlisted);
        self.admission.changes.announce();
    }
}
