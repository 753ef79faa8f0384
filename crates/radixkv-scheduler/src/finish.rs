//! Finishing a sequence: which of its tokens are published, and the result for the caller.

use std::fmt;

use radixkv::Token;

use super::lifecycle::Scheduler;
use super::request::{SequenceId, Ticket, Waiting};

/// The part of a sequence that stays cached when it ends ([`Scheduler::finish`]).
///
/// # Examples
///
/// ```
/// use radixkv_scheduler::Finish;
///
/// // All of 120 computed tokens, but the output is evicted first.
/// let finish = Finish::keeping(120).demote_output(true);
/// assert_eq!((finish.committed_len, finish.demote_output), (120, true));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Finish {
    /// Number of first tokens to keep: their keys and values were computed and are still valid.
    pub committed_len: usize,
    /// Whether to publish these tokens now.
    pub insert: bool,
    /// The position of the first reasoning token; nothing from there on is published.
    pub reasoning_from: Option<usize>,
    /// Whether the output is evicted before everything else in the cache, until it is used.
    pub demote_output: bool,
}

impl Finish {
    /// Publishes the whole blocks of the first `committed_len` tokens.
    ///
    /// The keys and values of these tokens must be computed and still valid: use less than
    /// [`Sequence::computed_len`](super::Sequence::computed_len) if the engine discards some of
    /// them. Blocks that were published earlier stay.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_scheduler::Finish;
    ///
    /// // 40 tokens are computed; the last two come after a stop string, and no later prompt has them.
    /// let finish = Finish::keeping(38);
    /// # let _ = finish;
    /// ```
    pub fn keeping(committed_len: usize) -> Self {
        Self { committed_len, insert: true, reasoning_from: None, demote_output: false }
    }

    /// Sets whether to publish the tokens now. Chunks of the prompt are not affected: they were
    /// published when they were computed, unless [`Request::publish`](super::Request::publish) is
    /// false. Default: true.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Finish, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(1, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// scheduler.schedule().complete(&[7])?;
    /// scheduler.schedule().complete(&[8])?;
    /// let tokens = scheduler.finish(id, Finish::keeping(4).insert(false))?.tokens;
    /// // The prompt stays cached, the output does not.
    /// assert_eq!(cache.session().peek(&cache.default_namespace(), &tokens), 3);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(mut self, insert: bool) -> Self {
        self.insert = insert;
        self
    }

    /// Sets the position of the first reasoning token. Later prompts do not repeat reasoning, so
    /// nothing from there on is published. Default: `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_scheduler::Finish;
    ///
    /// // Prompt and template have 80 tokens, then the model reasons.
    /// let finish = Finish::keeping(120).reasoning_from(80);
    /// # let _ = finish;
    /// ```
    pub fn reasoning_from(mut self, position: impl Into<Option<usize>>) -> Self {
        self.reasoning_from = position.into();
        self
    }

    /// Sets whether the output is evicted before everything else in the cache, until it is used.
    /// Output is always evicted before its own prompt. Default: false.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_scheduler::Finish;
    ///
    /// // The output of a batch job, which hardly any prompt continues.
    /// let finish = Finish::keeping(120).demote_output(true);
    /// # let _ = finish;
    /// ```
    pub fn demote_output(mut self, demote: bool) -> Self {
        self.demote_output = demote;
        self
    }
}

/// A sequence that has ended.
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// # use radixkv_scheduler::{Finish, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(16, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
/// # scheduler.schedule().complete(&[7])?;
/// let finished = scheduler.finish(id, Finish::keeping(3))?;
/// assert_eq!(finished.tokens[finished.prompt_len..], [7]);
/// assert_eq!((finished.cached_len, finished.computed_len), (0, 3));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// The id of the request.
    pub id: SequenceId,
    /// Prompt and output.
    pub tokens: Vec<Token>,
    /// Number of tokens of the prompt.
    pub prompt_len: usize,
    /// Number of tokens that were cached when it was first admitted.
    pub cached_len: usize,
    /// Number of tokens computed for it, including those computed again after a preemption.
    pub computed_len: usize,
}

/// Why [`Scheduler::finish`] refused; the sequence continues.
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// use radixkv_scheduler::{Finish, FinishError};
/// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(16, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
/// # scheduler.schedule().complete(&[7])?;
/// let refused = scheduler.finish(id, Finish::keeping(4)).unwrap_err();
/// assert_eq!(refused, FinishError::NotComputed { committed: 4, computed: 3 });
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishError {
    /// This scheduler does not serve the sequence: it waits, has ended, or is served by another
    /// scheduler.
    NotServed,
    /// Only computed tokens can be published: keep at most
    /// [`Sequence::computed_len`](super::Sequence::computed_len).
    NotComputed {
        /// Number of tokens to keep.
        committed: usize,
        /// Number of tokens with keys and values.
        computed: usize,
    },
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => f.write_str(
                "this scheduler does not serve the sequence: it waits, has ended, or is served by another scheduler",
            ),
            Self::NotComputed { committed, computed } => {
                write!(f, "{committed} tokens committed, only {computed} are computed")
            }
        }
    }
}

impl std::error::Error for FinishError {}

impl Scheduler {
    /// Ends a sequence: publishes the tokens to keep, and releases its other blocks and its slot.
    ///
    /// If the request was aborted ([`Aborted::Served`](super::Aborted::Served)), nothing is
    /// published; the next step still lists the request ([`Step::aborted`](super::Step::aborted)).
    ///
    /// # Errors
    ///
    /// [`FinishError`]; the sequence continues.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Finish, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(1, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// scheduler.schedule().complete(&[7])?;
    /// scheduler.schedule().complete(&[8])?;
    /// // The engine found the end of the text. All that is computed is kept; token 8 was only sampled.
    /// let computed = scheduler.sequence(id).expect("it is served here").computed_len();
    /// let finished = scheduler.finish(id, Finish::keeping(computed))?;
    /// assert_eq!(finished.tokens, [1, 2, 3, 7, 8]);
    /// assert_eq!(cache.session().peek(&cache.default_namespace(), &finished.tokens), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish(&mut self, id: SequenceId, finish: Finish) -> Result<Finished, FinishError> {
        self.discard_step();
        let at = self.find(id).ok_or(FinishError::NotServed)?;
        let sequence = &mut self.running[at];
        let (committed, computed) = (finish.committed_len, sequence.computed);
        if committed > computed {
            return Err(FinishError::NotComputed { committed, computed });
        }
        let kept = committed.min(finish.reasoning_from.unwrap_or(committed));
        if finish.insert {
            sequence.publish(kept, &mut self.workspace);
        }
        if finish.demote_output {
            sequence.demote_output(&mut self.workspace);
        }
        let Waiting { ticket, tokens } = self.remove_at(at);
        self.end(id);
        let Ticket { prompt_len, cached, computed, .. } = ticket;
        Ok(Finished { id, tokens, prompt_len, cached_len: cached.unwrap_or(0), computed_len: computed })
    }
}
