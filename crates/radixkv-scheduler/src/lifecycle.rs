//! A scheduler: the sequences that one thread serves, and what may happen to them between two steps.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use radixkv::{Namespace, PrefixMatch, Reservation, Token};

use super::abort::Aborted;
use super::admission::{Admission, SchedulerId};
use super::batch::Batch;
use super::config::{ConfigError, Order, SchedulerConfig};
use super::copies::Copies;
use super::pick::Pick;
use super::queue::WaitingQueue;
use super::request::{SequenceId, Ticket, Waiting};
use super::sequence::{Sequence, Workspace};
use super::slots::Slots;
use super::tier::{Below, Filled};
use crate::sync::Arc;

/// Serves requests of a [`WaitingQueue`] on one thread: continuous batching with chunked prefill and preemption.
///
/// [`schedule`](Self::schedule) chooses a [`Step`](super::Step), the engine computes it,
/// [`Step::complete`](super::Step::complete) takes the sampled tokens in, and [`finish`](Self::finish) ends a sequence.
/// A scheduler computes nothing itself, and [does not do everything](super#what-it-does-not-do) that an engine may
/// want.
///
/// Several schedulers serve one queue, each on a thread of its own; a sequence stays with the scheduler that admitted it until
/// it is finished, aborted or preempted. When a scheduler is dropped, in a panic too, its sequences wait for another
/// scheduler; sequences that only waited to be finished end.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_scheduler::{Finish, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
///
/// let cache = PrefixCache::builder(16, 1_024).build()?;
/// let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
///
/// let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// while queue.unfinished_requests() > 0 {
///     let step = scheduler.schedule();
///     // Compute `step.batch()`, and sample a token for each row of logits.
///     let sampled = vec![7; step.batch().logits_rows().len()];
///     for id in step.complete(&sampled)? {
///         scheduler.finish(id, Finish::keeping(0))?;
///     }
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Scheduler {
    pub(super) admission: Arc<Admission>,
    pub(super) id: SchedulerId,
    pub(super) config: SchedulerConfig,
    pub(super) workspace: Workspace,
    pub(super) below: Below,
    /// By rank: the last one is preempted first.
    pub(super) running: Vec<Sequence>,
    pub(super) batch: Batch,
    pub(super) pick: Pick,
    /// To be made with the next step.
    pub(super) copies: Copies,
    /// A sequence was preempted for lack of blocks, and none has ended since: a request admitted now would be preempted
    /// next.
    pub(super) crowded: bool,
    /// Aborted requests that this scheduler serves no more, for the next step to list.
    pub(super) unlisted: Vec<SequenceId>,
    /// Aborted requests that the last step lists.
    pub(super) listed: Vec<SequenceId>,
    /// Changes of the queue when the last step was scheduled.
    pub(super) seen: u64,
    /// The last step left requests untried.
    pub(super) cut_short: bool,
    /// For each slot the index of its sequence in `running`, while a step is taken in.
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

impl Scheduler {
    /// A scheduler for the calling thread.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], if it has no slots or too many, or too few tokens a step.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 1_024).build()?;
    /// let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// let scheduler = Scheduler::new(&queue, SchedulerConfig::default().max_running(8))?;
    /// assert_eq!(scheduler.free_slots(), 8);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(queue: &WaitingQueue, config: SchedulerConfig) -> Result<Self, ConfigError> {
        let admission = Arc::clone(&queue.admission);
        config.check(admission.cache.capacity_blocks())?;
        let block_size = admission.cache.block_size();
        let slots = Slots::new(config.max_running, admission.config.max_blocks);
        let workspace = Workspace { session: admission.cache.session(), slots, block_size, beyond: Vec::new() };
        Ok(Self {
            id: admission.new_scheduler(),
            admission,
            config,
            workspace,
            below: Below::default(),
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

    /// Serves from what lies below the cache, too, such as a host tier: `fill` is called once for each request that is about to be
    /// admitted. It writes the keys and values that it has beyond the match into the first of the blocks, inserts these, and gives back
    /// the rest, with a lease on all that is cached now; where it has nothing, the match and the blocks as they are.
    ///
    /// Its tokens are those that may be matched: all of the request but the last one. The blocks are for the request up to its last
    /// token. It runs on the scheduler's thread, inside of [`schedule`](Self::schedule), which waits for it; other schedulers of
    /// the queue admit nothing meanwhile. If it panics, the request waits on, and what it was given goes back. Blocks that
    /// it does not give back are reserved anew.
    ///
    /// # Panics
    ///
    /// [`schedule`](Self::schedule), if it gives back blocks of another cache or payer.
    ///
    /// # Examples
    ///
    /// Over tiers of the package `radixkv-host`, of which `tiers` is a `TieredSession`:
    ///
    /// ```ignore
    /// let scheduler = Scheduler::new(&queue, config)?.above(move |namespace, tokens, hit, blocks| {
    ///     let start = tiers.fill(namespace, tokens, hit, blocks);
    ///     Filled { lease: start.lease, blocks: start.blocks }
    /// });
    /// ```
    ///
    /// Over nothing:
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Filled, QueueConfig, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 1_024).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// let scheduler = Scheduler::new(&queue, SchedulerConfig::default())?
    ///     .above(|_, _, hit, blocks| Filled { lease: hit.into_lease(), blocks });
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn above(
        mut self,
        fill: impl FnMut(&Namespace, &[Token], PrefixMatch, Reservation) -> Filled + Send + 'static,
    ) -> Self {
        self.below = Below(Some(Box::new(fill)));
        self
    }

    /// After an empty step, sleeps until there may be work; returns false if nothing changed within
    /// `timeout`.
    ///
    /// A change is a request that was submitted, put back, aborted, or is to end; a claim that was committed or given
    /// up; and a sequence that has ended. Changes since the last step was scheduled count. Returns at once if the last
    /// step left requests untried because there were too many for one step.
    ///
    /// A request that is refused blocks is not a change. Blocks that are given back outside the queue's schedulers wake
    /// no scheduler: use a short timeout where the engine has such blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// if scheduler.schedule().is_empty() {
    ///     let changed = scheduler.wait(Duration::from_millis(1));
    ///     assert!(!changed, "no request was submitted");
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self, timeout: Duration) -> bool {
        self.cut_short || self.admission.changes.wait_beyond(self.seen, timeout)
    }

    /// The sequences that this scheduler serves.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default().max_running(4))?;
    /// # queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// scheduler.schedule().complete(&[7])?;
    /// assert_eq!((scheduler.running().len(), scheduler.free_slots()), (1, 3));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn running(&self) -> &[Sequence] {
        &self.running
    }

    /// A sequence that this scheduler serves; `None` if the request waits, has ended, or is served
    /// by another scheduler.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.running.iter().find(|sequence| sequence.id() == id)
    }

    /// Whether cached blocks of a served sequence were
    /// [invalidated](radixkv::PrefixCache::invalidate_blocks): abort it, and submit it again. It
    /// goes on otherwise, over wrong keys and values.
    pub fn is_invalidated(&self, id: SequenceId) -> bool {
        let lease = self.sequence(id).and_then(|sequence| sequence.lease.as_ref());
        lease.is_some_and(|lease| lease.is_invalidated())
    }

    /// Request slots that are free.
    pub fn free_slots(&self) -> usize {
        self.workspace.slots.free()
    }

    /// Ends a request at once if this scheduler serves it or it waits. As [`WaitingQueue::abort`],
    /// but the blocks of a sequence that is served here are given back when this returns. The next
    /// step lists it ([`Step::aborted`](super::Step::aborted)).
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{Aborted, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(16, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// scheduler.schedule().complete(&[7])?;
    /// assert_eq!(scheduler.abort(id), Aborted::Served);
    /// assert_eq!(cache.stats().free_blocks, 64);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&mut self, id: SequenceId) -> Aborted {
        let aborted = self.admission.abort(id);
        if aborted == Aborted::Served {
            self.discard_step();
            self.drop_aborted();
        }
        aborted
    }

    /// Preempts a sequence: publishes its whole blocks, returns all its blocks, and lets the
    /// request wait again. It is resumed here or at another scheduler, from what is still cached
    /// then. False if it is not served here, or has all the tokens that it may have.
    ///
    /// A sequence whose request was aborted ends instead, and nothing of it is published.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::PrefixCache;
    /// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
    /// # let cache = PrefixCache::builder(1, 64).build()?;
    /// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
    /// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
    /// # let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
    /// scheduler.schedule().complete(&[7])?;
    /// assert!(scheduler.preempt(id));
    /// assert_eq!((scheduler.running().len(), queue.len()), (0, 1));
    /// // It goes on with the sampled token; the three before it are cached.
    /// assert_eq!(scheduler.schedule().batch().tokens(), [7]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn preempt(&mut self, id: SequenceId) -> bool {
        self.discard_step();
        let at = self.find(id).filter(|&at| !self.running[at].is_full());
        at.inspect(|&at| self.preempt_at(at)).is_some()
    }

    /// The index of a sequence in `running`.
    pub(super) fn find(&self, id: SequenceId) -> Option<usize> {
        self.running.iter().position(|sequence| sequence.id() == id)
    }

    /// Adds a sequence to those that run, at its rank.
    pub(super) fn insert_running(&mut self, sequence: Sequence) {
        let by_priority = self.admission.config.order == Order::Priority;
        let rank = |ticket: &Ticket| (Reverse(if by_priority { ticket.priority } else { 0 }), ticket.id);
        let at = self.running.partition_point(|other| rank(&other.ticket) < rank(&sequence.ticket));
        self.running.insert(at, sequence);
    }

    /// Removes a sequence from those that run, with everything that it holds.
    pub(super) fn remove_at(&mut self, at: usize) -> Waiting {
        self.crowded = false;
        let sequence = self.running.remove(at);
        let (waiting, own) = sequence.release(&mut self.workspace);
        self.copies.drop_sequence(own);
        waiting
    }

    /// Ends a request whose sequence was removed.
    pub(super) fn end(&mut self, id: SequenceId) {
        if !self.admission.end(id) {
            self.unlisted.push(id);
        }
    }

    /// Removes a sequence and lets its request wait again, unless it was aborted. In a turn: no request is admitted to
    /// the blocks that become free before this one has its place again.
    fn put_back(&mut self, at: usize) {
        let admission = Arc::clone(&self.admission);
        let _turn = admission.turn();
        let waiting = self.remove_at(at);
        let id = waiting.ticket.id;
        if !self.admission.put_back(Arc::new(waiting)) {
            self.unlisted.push(id);
        }
    }

    /// Publishes the whole blocks of a sequence and lets its request wait again.
    pub(super) fn preempt_at(&mut self, at: usize) {
        let sequence = &mut self.running[at];
        sequence.publish(sequence.computed, &mut self.workspace);
        self.put_back(at);
    }

    /// Drops the sequences whose requests were aborted.
    pub(super) fn drop_aborted(&mut self) {
        for id in self.admission.aborted(self.id) {
            if let Some(at) = self.find(id) {
                self.remove_at(at);
                self.end(id);
            }
        }
    }

    /// Discards the last step, if it was not taken in: it was not computed, and its copies are still to be made.
    pub(super) fn discard_step(&mut self) {
        self.copies.take_back(&self.batch);
        self.batch.clear();
    }
}

impl Drop for Scheduler {
    /// The requests that are served wait again, for another scheduler; nothing of them is published.
    fn drop(&mut self) {
        // A forgotten step was not computed: its copies are pending again, so that they go with their destinations.
        self.discard_step();
        while let Some(last) = self.running.len().checked_sub(1) {
            if self.running[last].is_full() {
                let id = self.remove_at(last).ticket.id;
                self.end(id);
            } else {
                self.put_back(last);
            }
        }
        self.admission.leave_unlisted(&mut self.unlisted);
        self.admission.changes.announce();
    }
}
