//! The remote tiers' thread: the only one that uses them. It takes orders from `line`, makes each a
//! job (`putting`, `fetching`), submits the batches of jobs to the tiers, and passes completions to
//! the jobs. `health` says which tiers may be asked.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use radixkv_tiers::{Block, Completion, Failure, NotGot, Outcome, Refusal, Ticket, caught};

use super::{
    fetching::Fetching,
    health::Health,
    keys::Keys,
    line::{Line, Next, Order},
    putting::Putting,
    settings::AnyTier,
};
use crate::tier::Inner;

/// The longest wait for one tier while requests are in flight: other tiers cannot end it.
const NAP: Duration = Duration::from_millis(1);
/// How long the thread sleeps while it is idle, unless an order wakes it.
const SLEEP: Duration = Duration::from_secs(3600);

/// The number of a job.
pub(super) type JobId = u64;

/// Items that one tier accepted in one call.
#[derive(Debug)]
struct Batch {
    job: JobId,
    /// The job's number for each of them; `None` once it was completed.
    items: Vec<Option<usize>>,
    left: usize,
    /// The buffers that are returned with the completions.
    lent: Option<Lent>,
    /// Whether the job no longer waits for it.
    is_passed_over: bool,
    /// Whether an item ended in any way other than the tier's own timeout.
    is_answered: bool,
}

/// The pool that owns the buffers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lent {
    Gets,
    Puts,
}

pub(super) enum Job {
    Put(Putting),
    Fetch(Box<Fetching>),
}

/// The state that all jobs share: the tiers, and the batches in flight.
pub(super) struct Tiers {
    tiers: Vec<AnyTier>,
    health: Vec<Health>,
    /// How many items each tier accepts at once, as far as its refusals tell.
    most: Vec<usize>,
    batches: HashMap<(usize, Ticket), Batch>,
    pub(super) keys: Keys,
    pub(super) line: Arc<Line>,
    pub(super) host: Weak<Inner>,
    pub(super) timeout: Duration,
}

pub(super) struct Worker {
    tiers: Tiers,
    jobs: HashMap<JobId, Job>,
    next_job: JobId,
}

impl Tiers {
    pub(super) fn count(&self) -> usize {
        self.tiers.len()
    }

    /// How many items may be in flight to a tier: at least one.
    pub(super) fn most(&self, tier: usize) -> usize {
        self.most[tier]
    }

    /// How many more items a tier accepts now.
    pub(super) fn room(&self, tier: usize) -> usize {
        match self.most[tier] {
            usize::MAX => usize::MAX,
            most => {
                let of_tier = self.batches.iter().filter(|&(&(of, _), _)| of == tier);
                most.saturating_sub(of_tier.map(|(_, batch)| batch.left).sum())
            }
        }
    }

    /// Whether jobs may have to wait for room in a tier.
    pub(super) fn is_limited(&self) -> bool {
        self.most.iter().any(|&most| most < usize::MAX)
    }

    /// Asks a tier about keys; `items` are the job's numbers for them. False if the tier is left
    /// out or did not accept the request. If it refused the number of items, [`most`](Self::most)
    /// is smaller afterwards.
    pub(super) fn ask(
        &mut self,
        tier: usize,
        job: JobId,
        items: Vec<usize>,
        ask: impl FnOnce(&AnyTier) -> Result<Ticket, Refusal>,
    ) -> bool {
        let patience = self.patience();
        self.health[tier].may_ask(Instant::now(), patience) && self.ask_anyway(tier, job, items, ask)
    }

    /// As [`ask`](Self::ask), even if the tier is left out.
    pub(super) fn ask_anyway(
        &mut self,
        tier: usize,
        job: JobId,
        items: Vec<usize>,
        ask: impl FnOnce(&AnyTier) -> Result<Ticket, Refusal>,
    ) -> bool {
        self.submit(tier, job, items, None, ask)
    }

    /// Lends buffers to a tier, which returns them with the completions; otherwise as
    /// [`ask_anyway`](Self::ask_anyway).
    pub(super) fn lend(
        &mut self,
        tier: usize,
        job: JobId,
        items: Vec<usize>,
        lent: Lent,
        lend: impl FnOnce(&AnyTier) -> Result<Ticket, Refusal>,
    ) -> bool {
        self.submit(tier, job, items, Some(lent), lend)
    }

    /// Submits a batch. False if the tier did not accept it, or returned the ticket of another
    /// batch in flight: their completions could not be told apart.
    fn submit(
        &mut self,
        tier: usize,
        job: JobId,
        items: Vec<usize>,
        lent: Option<Lent>,
        submit: impl FnOnce(&AnyTier) -> Result<Ticket, Refusal>,
    ) -> bool {
        // A tier that panics accepted nothing.
        let Some(answer) = caught(|| submit(&self.tiers[tier])) else { return false };
        if let Err(Refusal::TooLarge { max, .. }) = answer {
            self.most[tier] = self.most[tier].min(max.max(1));
        }
        let Ok(ticket) = answer else { return false };
        let Entry::Vacant(place) = self.batches.entry((tier, ticket)) else { return false };
        let (left, items) = (items.len(), items.into_iter().map(Some).collect());
        place.insert(Batch { job, left, items, lent, is_passed_over: false, is_answered: false });
        true
    }

    /// How long a tier may be silent.
    fn patience(&self) -> Duration {
        self.timeout / 4
    }

    /// Whether a tier has been silent for too long after a request that was made at `since`.
    pub(super) fn is_silent(&self, tier: usize, since: Instant) -> bool {
        self.health[tier].is_silent(since, Instant::now(), self.patience())
    }

    /// Lets a job continue without a silent tier.
    pub(super) fn pass_over(&mut self, tier: usize, job: JobId) {
        let of_job = |of: usize, batch: &Batch| of == tier && batch.job == job && !batch.is_passed_over;
        let mut is_one_passed_over = false;
        self.batches.retain(|&(of, _), batch| {
            let is_over = of_job(of, batch);
            is_one_passed_over |= is_over;
            batch.is_passed_over |= is_over;
            batch.lent.is_some() || !is_over
        });
        if is_one_passed_over {
            self.note_unanswered(tier);
        }
    }

    fn note_unanswered(&mut self, tier: usize) {
        let is_left_out = self.health[tier].unanswered(Instant::now());
        self.line.counters.left_out_tiers.add(usize::from(is_left_out));
    }

    /// Forgets a job's questions that have no answer yet. Batches with buffers are kept: the
    /// buffers return to the queue.
    pub(super) fn forget(&mut self, job: JobId) {
        self.batches.retain(|_, batch| batch.job != job || batch.lent.is_some());
    }

    /// Whether a tier returned the block that it was given, with the bytes of a block.
    pub(super) fn is_whole(&self, given: &Block, back: &Block, buffer: &[u8]) -> bool {
        given.key() == back.key() && buffer.len() == self.keys.block_bytes()
    }

    /// The job of a completion, the job's number for the item, and the pool of its buffer; `None`
    /// if the item was completed before, or was never submitted.
    fn item(&mut self, tier: usize, completion: &Completion<Vec<u8>>) -> Option<(JobId, usize, Option<Lent>)> {
        let key = (tier, completion.ticket);
        let batch = self.batches.get_mut(&key)?;
        let item = (batch.job, batch.items.get_mut(completion.index)?.take()?, batch.lent);
        batch.left -= 1;
        let is_late = batch.is_passed_over;
        batch.is_answered |= !is_timeout(&completion.outcome);
        let (is_answered, is_over) = (batch.is_answered, batch.left == 0);
        if is_over {
            self.batches.remove(&key);
        }
        match () {
            () if is_late => {}
            () if is_answered => self.health[tier].answered(Instant::now()),
            () if is_over => self.note_unanswered(tier),
            () => {}
        }
        Some(item)
    }
}

impl Worker {
    pub(super) fn new(tiers: Vec<AnyTier>, host: Weak<Inner>, line: Arc<Line>, timeout: Duration) -> Self {
        let keys = Keys::new(tiers[0].layout().clone());
        let health = tiers.iter().map(|_| Health::new(Instant::now())).collect();
        let most = vec![usize::MAX; tiers.len()];
        let tiers = Tiers { tiers, health, most, batches: HashMap::new(), keys, line, host, timeout };
        Self { tiers, jobs: HashMap::new(), next_job: 0 }
    }

    /// Processes orders until the queue is closed.
    pub(super) fn work(mut self) {
        let mut wait = SLEEP;
        loop {
            match self.tiers.line.next(wait) {
                Next::Closed => return,
                Next::Nothing => {}
                Next::Orders(orders) => orders.into_iter().for_each(|order| self.begin(order)),
            }
            let came = self.poll();
            self.give_up_late();
            wait = match () {
                () if came => Duration::ZERO,
                () if self.jobs.is_empty() && self.tiers.batches.is_empty() => SLEEP,
                () => NAP / 4,
            };
        }
    }

    fn begin(&mut self, order: Order) {
        let id = self.next_job;
        self.next_job += 1;
        let job = match order {
            Order::Put(order) => Putting::begin(id, order, &mut self.tiers).map(Job::Put),
            Order::Fetch(order) => Fetching::begin(id, order, &mut self.tiers).map(Job::Fetch),
        };
        if let Some(job) = job {
            self.jobs.insert(id, job);
        }
    }

    /// Processes what the tiers completed, after a short wait for the first completion. Returns
    /// whether there was any.
    fn poll(&mut self) -> bool {
        let mut came = false;
        for tier in 0..self.tiers.count() {
            let is_asked = self.tiers.batches.keys().any(|&(of, _)| of == tier);
            // Completions that no job waits for are also processed: their blocks count as in flight
            // until then.
            let wait = if is_asked { NAP } else { Duration::ZERO };
            let mut done = Vec::new();
            // A tier that panics returned nothing.
            let _ = caught(|| self.tiers.tiers[tier].poll(&mut done, wait));
            came |= !done.is_empty();
            done.into_iter().for_each(|completion| self.complete(tier, completion));
        }
        came
    }

    fn complete(&mut self, tier: usize, completion: Completion<Vec<u8>>) {
        // An item that was not submitted has no buffer of the pool.
        let Some((id, item, lent)) = self.tiers.item(tier, &completion) else { return };
        let is_its_kind = match completion.outcome {
            Outcome::Got(..) => lent == Some(Lent::Gets),
            Outcome::Put(..) => lent == Some(Lent::Puts),
            _ => lent.is_none(),
        };
        // A completion of another kind is no answer.
        let job = if is_its_kind { self.jobs.remove(&id) } else { None };
        let Some(job) = job else { return self.give_back(lent, completion.outcome) };
        let goes_on = match job {
            Job::Put(put) => put.complete(id, tier, item, completion.outcome, &mut self.tiers).map(Job::Put),
            Job::Fetch(fetch) => fetch.complete(id, tier, item, completion.outcome, &mut self.tiers).map(Job::Fetch),
        };
        if let Some(job) = goes_on {
            self.jobs.insert(id, job);
        }
    }

    /// Returns the buffer of a completion to the pool that lent it. Without a buffer, the lent one
    /// is lost.
    fn give_back(&self, lent: Option<Lent>, outcome: Outcome<Vec<u8>>) {
        let buffer = match outcome {
            Outcome::Got(get, _) => get.buffer,
            Outcome::Put(put, _) => put.buffer,
            _ => Vec::new(),
        };
        match lent {
            Some(Lent::Gets) => self.tiers.line.give_get(buffer),
            Some(Lent::Puts) => self.tiers.line.give_put(buffer),
            None => {}
        }
    }

    /// Ends the jobs that are past their timeout, and lets the others continue without silent tiers,
    /// and where a tier has room again. Their buffers return with their completions.
    fn give_up_late(&mut self) {
        let now = Instant::now();
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            let goes_on = match self.jobs.remove(&id) {
                Some(Job::Put(put)) if put.due() <= now => {
                    put.give_up(id, &mut self.tiers);
                    None
                }
                Some(Job::Fetch(fetch)) if fetch.due() <= now => {
                    fetch.give_up(id, &mut self.tiers);
                    None
                }
                Some(Job::Put(put)) => put.pass_over_silent(id, &mut self.tiers).map(Job::Put),
                Some(Job::Fetch(fetch)) => fetch.pass_over_silent(id, &mut self.tiers).map(Job::Fetch),
                None => None,
            };
            if let Some(job) = goes_on {
                self.jobs.insert(id, job);
            }
        }
    }
}

/// Whether the tier itself reported a timeout.
fn is_timeout(outcome: &Outcome<Vec<u8>>) -> bool {
    let failure = match outcome {
        Outcome::Contained(_, answer) => answer.err(),
        Outcome::Got(_, Err(NotGot::Failed(failure))) => Some(*failure),
        Outcome::Put(_, result) | Outcome::Removed(_, result) => result.err(),
        _ => None,
    };
    failure == Some(Failure::TimedOut)
}
