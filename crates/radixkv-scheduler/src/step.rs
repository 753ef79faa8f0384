//! One step of a scheduler: it chooses the work, gives it to the engine as a [`Batch`], and applies
//! the results.

use std::fmt;

use radixkv::{ReserveError, Token};

use super::batch::Batch;
use super::lifecycle::Scheduler;
use super::request::SequenceId;
use super::sequence::Sequence;

/// A scheduled step, until its results are passed to [`complete`](Self::complete).
///
/// It borrows the scheduler, so none of its blocks is released while it lives, even if a request is
/// aborted. Dropping it means that it was not computed and that the engine has stopped writing; the
/// next step schedules the same work again.
///
/// A step cannot be completed partly. A scheduler has one step at a time.
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(16, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
/// let step = scheduler.schedule();
/// assert_eq!(step.batch().tokens(), [1, 2, 3]);
/// // One row of logits is wanted: that of the last token. The engine samples 7 from it.
/// let full = step.complete(&[7])?;
/// assert!(full.is_empty(), "seven more tokens are asked for");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a step says that it was not computed"]
pub struct Step<'s> {
    scheduler: &'s mut Scheduler,
}

/// Why [`Step::complete`] rejected the results; none of the step's tokens counts as computed.
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// use radixkv_scheduler::CompleteError;
/// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(16, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// # queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
/// let refused = scheduler.schedule().complete(&[]).unwrap_err();
/// assert_eq!(refused, CompleteError::SampleCount { needed: 1, given: 0 });
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteError {
    /// The number of tokens differs from the number of [`Batch::logits_rows`].
    SampleCount {
        /// Number of rows to sample from.
        needed: usize,
        /// Number of sampled tokens.
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
    /// The work of this step.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// # queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// let step = scheduler.schedule();
    /// let batch = step.batch();
    /// assert_eq!((batch.tokens(), batch.positions()), (&[1, 2, 3][..], &[0, 1, 2][..]));
    /// assert_eq!(batch.logits_rows(), [2]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch(&self) -> &Batch {
        &self.scheduler.batch
    }

    /// Whether there is nothing to do: no token and no copy. [`Scheduler::wait`] sleeps until there
    /// may be.
    pub fn is_empty(&self) -> bool {
        self.batch().is_empty()
    }

    /// A sequence that this scheduler serves, even if it is not in this step.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.scheduler.sequence(id)
    }

    /// Requests that were aborted while served ([`Aborted::Served`](super::Aborted::Served)) and
    /// have ended since this scheduler's last step. Requests of a dropped scheduler are also listed
    /// here.
    ///
    /// Each request is listed once, by one step of one scheduler, even if it was finished or
    /// preempted after the abort. Read this in every step, even an empty one, and free what the
    /// engine keeps for these requests.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// # scheduler.schedule().complete(&[7])?;
    /// queue.abort(id);
    /// assert_eq!(scheduler.schedule().aborted(), [id]);
    /// assert!(scheduler.schedule().aborted().is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn aborted(&self) -> &[SequenceId] {
        &self.scheduler.listed
    }

    /// Completes the step: `sampled` has one token for each of [`Batch::logits_rows`], in the same
    /// order.
    ///
    /// Publishes the whole computed blocks of prompts. Returns the sequences that are full; they
    /// are no longer scheduled and wait for [`Scheduler::finish`]. Aborted requests are not
    /// published and not returned.
    ///
    /// A sequence gets one token per step, so speculative decoding is not supported.
    ///
    /// If an eviction sink panics here, the step counts as computed, but the sequence whose insert
    /// called it computes its unpublished tokens again. Look for full sequences in
    /// [`Scheduler::running`].
    ///
    /// # Errors
    ///
    /// [`CompleteError`], if there are more or fewer tokens than rows; the step counts as not
    /// computed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Finish, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// // One token is asked for, and the first step samples it.
    /// let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 1))?;
    /// assert_eq!(scheduler.schedule().complete(&[7])?, [id]);
    /// scheduler.finish(id, Finish::keeping(3))?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
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
        self.scheduler.discard_step();
    }
}

impl Scheduler {
    /// Chooses the work of the next step: one token for every decoding sequence, then chunks of
    /// prefilling sequences, then newly admitted requests, up to
    /// [`max_batch_tokens`](super::SchedulerConfig::max_batch_tokens).
    ///
    /// If there is no block for a decoding sequence, the sequence of the last rank is preempted:
    /// the youngest, or under [`Order::Priority`](super::Order::Priority) the youngest of the
    /// lowest priority. A step skips at most 64 requests that must wait for another's prefix or for
    /// a quota; under [`Order::LongestPrefix`](super::Order::LongestPrefix), which looks at all
    /// requests anyway, at most a sixteenth of all if that is more. While another scheduler tries
    /// to admit a request (two lookups and a reservation), this one waits.
    ///
    /// A step that was dropped or forgotten instead of completed is scheduled again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// // A prompt of five tokens in chunks of two.
    /// let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default().max_chunk_tokens(2))?;
    /// queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3, 4, 5], 8))?;
    /// for (chunk, sampled) in [(vec![1, 2], vec![]), (vec![3, 4], vec![]), (vec![5], vec![7]), (vec![7], vec![8])] {
    ///     let step = scheduler.schedule();
    ///     assert_eq!(step.batch().tokens(), chunk);
    ///     step.complete(&sampled)?;
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule(&mut self) -> Step<'_> {
        self.seen = self.admission.changes.count();
        // A step that was forgotten was not computed.
        self.discard_step();
        self.drop_aborted();
        self.reserve_for_decoding();
        let mut budget = self.config.max_batch_tokens;
        self.schedule_running(&mut budget);
        self.cut_short = false;
        if !self.crowded || self.running.is_empty() {
            self.crowded = false;
            self.admit(&mut budget);
        }
        self.announce_freed();
        self.copies.move_to(&mut self.batch);
        if !self.batch.is_empty() {
            self.admission.count_step();
        }
        self.listed = std::mem::take(&mut self.unlisted);
        self.admission.take_unlisted(&mut self.listed);
        Step { scheduler: self }
    }

    /// Reserves the missing blocks of sequences: one to decode, or those that a panic in an insert
    /// has lost. If there is none, preempts the last-ranked sequence; if the namespace has reached
    /// its quota, the last one of that namespace.
    fn reserve_for_decoding(&mut self) {
        let mut at = 0;
        while let Some(sequence) = self.running.get(at) {
            let end = sequence.computed + sequence.missing();
            if end.div_ceil(self.workspace.block_size) <= sequence.blocks {
                at += 1;
                continue;
            }
            let namespace = sequence.ticket.namespace.clone();
            let refused = match self.workspace.reserve(1, &namespace) {
                Ok(block) => {
                    self.running[at].grow(block, &mut self.workspace);
                    continue;
                }
                Err(refused) => refused,
            };
            // A namespace at its quota preempts its own sequences. A full sequence is not
            // preempted: it waits to be finished, and has nothing to resume.
            let over_quota = matches!(refused, ReserveError::OverQuota { .. });
            let may_go = |sequence: &Sequence| !over_quota || sequence.ticket.namespace == namespace;
            let last = self.running.iter().rposition(|sequence| !sequence.is_full() && may_go(sequence));
            let crowded = self.crowded || !over_quota;
            self.preempt_at(last.expect("at least this one is not full"));
            self.crowded = crowded;
        }
    }

    /// Schedules the running sequences while `budget` tokens are left: first decoding, then
    /// prefilling ones.
    fn schedule_running(&mut self, budget: &mut usize) {
        // While copies are pending, no block in a table is replaced: a copy may read or write it.
        let settled = self.copies.is_empty();
        for decodes in [true, false] {
            for sequence in &mut self.running {
                let missing = sequence.missing();
                if *budget == 0 || missing == 0 || decodes != (missing == 1) {
                    continue;
                }
                if settled && !decodes {
                    sequence.catch_up(&mut self.workspace);
                }
                let chunk = sequence.missing().min(self.config.max_chunk_tokens).min(*budget);
                *budget -= chunk;
                sequence.push_to(&mut self.batch, chunk, &self.workspace);
            }
        }
    }

    /// Applies the results of a computed step.
    fn take_in(&mut self, sampled: &[Token]) -> Vec<SequenceId> {
        for (at, sequence) in self.running.iter().enumerate() {
            let slot = sequence.slot as usize;
            self.by_slot.resize(self.by_slot.len().max(slot + 1), 0);
            self.by_slot[slot] = at;
        }
        // An insert may panic: before the first one, no copy of this step is left, and each token
        // of this step counts as computed or sampled.
        self.batch.clear_copies();
        self.workspace.freed |= self.copies.done();
        let mut sampled = sampled.iter();
        for scheduled in self.batch.sequences() {
            let sequence = &mut self.running[self.by_slot[scheduled.slot as usize]];
            sequence.computed = scheduled.context_len();
            sequence.ticket.computed += scheduled.tokens.len();
            sequence.refused = false;
            if scheduled.wants_logits {
                sequence.tokens.extend(sampled.next());
            }
        }
        let mut full = Vec::new();
        for scheduled in self.batch.sequences() {
            let sequence = &mut self.running[self.by_slot[scheduled.slot as usize]];
            if scheduled.start < sequence.admitted {
                sequence.publish(sequence.computed, &mut self.workspace);
            }
            if sequence.computed >= sequence.admitted {
                sequence.claim = None;
            }
            if scheduled.wants_logits && sequence.is_full() && !sequence.abort.is_aborted() {
                full.push(sequence.id());
            }
        }
        self.batch.clear();
        self.announce_freed();
        full
    }
}
