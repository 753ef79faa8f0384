//! The [`Scheduler`]: the state of one serving thread, and the operations on its sequences between
//! two steps.
//!
//! The modules `step`, `admit`, `finish` and `fork` add methods to it. It shares the waiting
//! requests with the other schedulers of its queue through [`Admission`].

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

/// Serves requests of a [`WaitingQueue`] on one thread: continuous batching with chunked prefill
/// and preemption.
///
/// [`schedule`](Self::schedule) returns a [`Step`](super::Step), the engine computes it and passes
/// the sampled tokens to [`Step::complete`](super::Step::complete), and [`finish`](Self::finish)
/// ends a sequence. A scheduler computes nothing itself, and [does not do
/// everything](super#what-it-does-not-do) that an engine may want.
///
/// Several schedulers may serve one queue, each on its own thread. A sequence stays with the
/// scheduler that admitted it until it is finished, aborted or preempted. When a scheduler is
/// dropped, even in a panic, its requests wait for another scheduler; only full sequences, which
/// wait for `finish`, end.
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
    /// Sorted by rank; the last one is preempted first.
    pub(super) running: Vec<Sequence>,
    pub(super) batch: Batch,
    pub(super) pick: Pick,
    /// Block copies that the next step makes.
    pub(super) copies: Copies,
    /// Whether a sequence was preempted for lack of blocks and none has ended since. A request
    /// admitted now would be preempted next.
    pub(super) crowded: bool,
    /// Aborted requests that have left this scheduler and are not listed by a step yet.
    pub(super) unlisted: Vec<SequenceId>,
    /// Aborted requests that the last step lists.
    pub(super) listed: Vec<SequenceId>,
    /// The queue's count of changes when the last step was scheduled.
    pub(super) seen: u64,
    /// Whether the last step left requests untried.
    pub(super) cut_short: bool,
    /// Number of quota lines from which no request was tried since the count of changes was
    /// `lines_seen`.
    pub(super) untried_lines: usize,
    pub(super) lines_seen: u64,
    /// For each slot, the index of its sequence in `running`; valid only inside `take_in`.
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
    /// Creates a scheduler for the calling thread that serves requests of `queue`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], if there are no slots or too many, chunks are empty, or a step has fewer
    /// tokens than slots.
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
        let workspace =
            Workspace { session: admission.cache.session(), slots, block_size, beyond: Vec::new(), freed: false };
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
            lines_seen: 0,
            untried_lines: 0,
            by_slot: Vec::new(),
        })
    }

    /// Adds a lower cache tier, such as a host tier. `fill` is called for each request that is
    /// about to be admitted.
    ///
    /// `fill` gets the namespace, the tokens, the match in the cache, and reserved blocks. It
    /// writes the keys and values that the tier has beyond the match into the first of these
    /// blocks, and inserts them. It returns the remaining blocks and a lease on the whole prefix
    /// that is now cached. If the tier has nothing, it returns the match's lease and all blocks.
    ///
    /// The tokens are all tokens of the request but the last one, which cannot be matched; the
    /// blocks also include the last token. `fill` runs on the scheduler's thread, inside
    /// [`schedule`](Self::schedule), which waits for it; other schedulers of the queue admit
    /// nothing meanwhile. If it panics, the request keeps waiting, and its match and blocks are
    /// released. If it returns too few blocks, the missing ones are reserved.
    ///
    /// # Panics
    ///
    /// [`schedule`](Self::schedule) panics if `fill` returns blocks that belong to another cache or
    /// are charged to another namespace.
    ///
    /// # Examples
    ///
    /// With the tiers of the package `radixkv-host`; `tiers` is a `TieredSession`:
    ///
    /// ```ignore
    /// let scheduler = Scheduler::new(&queue, config)?.above(move |namespace, tokens, hit, blocks| {
    ///     let start = tiers.fill(namespace, tokens, hit, blocks);
    ///     Filled { lease: start.lease, blocks: start.blocks }
    /// });
    /// ```
    ///
    /// With a tier that has nothing:
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

    /// Sleeps after an empty step until there may be work; returns false if nothing changed within
    /// `timeout`.
    ///
    /// A change is: a request is submitted, put back or aborted; a claim that requests wait for is
    /// committed or given up; a sequence or a scheduler ends; blocks that were kept for a copy, or
    /// that another sequence has also published, are released; a namespace's quota has room for its
    /// next request. Changes since the last step was scheduled count. Returns at once if the last
    /// step had more requests than it could try.
    ///
    /// Refusing blocks to a request is not a change. Blocks that are released outside the queue's
    /// schedulers wake no scheduler: use a short timeout if the engine holds blocks itself.
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
    /// [invalidated](radixkv::PrefixCache::invalidate_blocks). If so, abort its request and submit
    /// it again: otherwise the sequence continues over wrong keys and values.
    pub fn is_invalidated(&self, id: SequenceId) -> bool {
        let lease = self.sequence(id).and_then(|sequence| sequence.lease.as_ref());
        lease.is_some_and(|lease| lease.is_invalidated())
    }

    /// The number of free request slots.
    pub fn free_slots(&self) -> usize {
        self.workspace.slots.free()
    }

    /// Aborts a request like [`WaitingQueue::abort`]. If this scheduler serves it, its blocks are
    /// released before this returns, and the next step lists it
    /// ([`Step::aborted`](super::Step::aborted)).
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

    /// Preempts a sequence: publishes its whole blocks, releases all its blocks, and lets the
    /// request wait again. This or another scheduler later resumes it from the prefix that is still
    /// cached. Returns false if this scheduler does not serve the sequence, or if it is full.
    ///
    /// A sequence whose request was aborted ends instead, and publishes nothing.
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
    /// // It continues with the sampled token; the three before it are cached.
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

    /// Inserts a sequence into `running`, at its rank.
    pub(super) fn insert_running(&mut self, sequence: Sequence) {
        let by_priority = self.admission.config.order == Order::Priority;
        let rank = |ticket: &Ticket| (Reverse(if by_priority { ticket.priority } else { 0 }), ticket.id);
        let at = self.running.partition_point(|other| rank(&other.ticket) < rank(&sequence.ticket));
        self.running.insert(at, sequence);
    }

    /// Removes a sequence from `running` and releases everything that it holds.
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

    /// Removes a sequence and lets its request wait again, unless it was aborted. Holds the turn,
    /// so that no other request gets the freed blocks before this one has its place again.
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

    /// Announces the blocks that sequences that continue have returned to the pool.
    pub(super) fn announce_freed(&mut self) {
        if std::mem::take(&mut self.workspace.freed) {
            self.admission.changes.announce();
        }
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

    /// Discards the last step if it was not completed: it counts as not computed, and its copies
    /// are pending again.
    pub(super) fn discard_step(&mut self) {
        self.copies.take_back(&self.batch);
        self.batch.clear();
    }
}

impl Drop for Scheduler {
    /// Lets the served requests wait for another scheduler, without publishing anything. Full
    /// sequences end.
    fn drop(&mut self) {
        // A forgotten step was not computed. Its copies become pending again, and are then dropped
        // with the sequences that own their destinations.
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
