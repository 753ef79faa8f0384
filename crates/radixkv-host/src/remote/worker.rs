//! The thread that uses the remote tiers.

use std::{
    collections::{HashMap, hash_map::Entry},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use radixkv_tiers::{Block, Completion, Outcome, Ticket};

use super::{
    fetching::Fetching,
    keys::Keys,
    line::{Line, Next, Order},
    putting::Putting,
    settings::AnyTier,
};
use crate::tier::Inner;

/// How long the thread sleeps at most while something is under way: tiers do not wake it together.
const NAP: Duration = Duration::from_millis(1);
/// How long it sleeps while nothing is.
const SLEEP: Duration = Duration::from_secs(3600);

/// A number of a job.
pub(super) type JobId = u64;

/// Items that one tier accepted together.
#[derive(Debug)]
struct Batch {
    job: JobId,
    /// What each of them is to the job; none once it was completed.
    items: Vec<Option<usize>>,
    left: usize,
}

pub(super) enum Job {
    Put(Putting),
    Fetch(Box<Fetching>),
}

/// What a job has to do with: the tiers, and the batches that are with them.
pub(super) struct Tiers {
    tiers: Vec<AnyTier>,
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

    /// Submits a batch of a job to a tier: `items` says what each of its items is to the job. False if the tier did not take it, or
    /// under the ticket of another batch, by which its completions would be taken for others.
    pub(super) fn submit(
        &mut self,
        tier: usize,
        job: JobId,
        items: Vec<usize>,
        submit: impl FnOnce(&AnyTier) -> Option<Ticket>,
    ) -> bool {
        // What panics took nothing.
        let ticket = catch_unwind(AssertUnwindSafe(|| submit(&self.tiers[tier]))).ok().flatten();
        let Some(ticket) = ticket else { return false };
        let Entry::Vacant(place) = self.batches.entry((tier, ticket)) else { return false };
        place.insert(Batch { job, left: items.len(), items: items.into_iter().map(Some).collect() });
        true
    }

    /// Waits for no more answers of a job that holds no buffers.
    pub(super) fn forget(&mut self, job: JobId) {
        self.batches.retain(|_, batch| batch.job != job);
    }

    /// Whether a tier gave back the block that it was given, in as many bytes as a block has.
    pub(super) fn is_whole(&self, given: &Block, back: &Block, buffer: &[u8]) -> bool {
        given.key() == back.key() && buffer.len() == self.keys.block_bytes()
    }

    /// The job of a completion, and what the item is to it; none for one that was completed before, or was never submitted.
    fn item(&mut self, tier: usize, completion: &Completion<Vec<u8>>) -> Option<(JobId, usize)> {
        let key = (tier, completion.ticket);
        let batch = self.batches.get_mut(&key)?;
        let item = (batch.job, batch.items.get_mut(completion.index)?.take()?);
        batch.left -= 1;
        if batch.left == 0 {
            self.batches.remove(&key);
        }
        Some(item)
    }
}

impl Worker {
    pub(super) fn new(tiers: Vec<AnyTier>, host: Weak<Inner>, line: Arc<Line>, timeout: Duration) -> Self {
        let keys = Keys::new(tiers[0].layout().clone());
        let tiers = Tiers { tiers, batches: HashMap::new(), keys, line, host, timeout };
        Self { tiers, jobs: HashMap::new(), next_job: 0 }
    }

    /// Carries orders out until the line is closed.
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
            Order::Fetch(order) => Fetching::begin(id, order, &mut self.tiers).map(|job| Job::Fetch(Box::new(job))),
        };
        if let Some(job) = job {
            self.jobs.insert(id, job);
        }
    }

    /// Takes what the tiers completed; waits a little for the first of them. Whether anything came.
    fn poll(&mut self) -> bool {
        let mut came = false;
        for tier in 0..self.tiers.count() {
            let is_asked = self.tiers.batches.keys().any(|&(of, _)| of == tier);
            if !is_asked {
                continue;
            }
            let mut done = Vec::new();
            // A tier that panics gave nothing.
            let _ = catch_unwind(AssertUnwindSafe(|| self.tiers.tiers[tier].poll(&mut done, NAP)));
            came |= !done.is_empty();
            done.into_iter().for_each(|completion| self.complete(tier, completion));
        }
        came
    }

    fn complete(&mut self, tier: usize, completion: Completion<Vec<u8>>) {
        // What was not submitted has no buffer of the line's.
        let Some((id, item)) = self.tiers.item(tier, &completion) else { return };
        let Some(job) = self.jobs.remove(&id) else { return self.give_back(completion.outcome) };
        let goes_on = match job {
            Job::Put(put) => put.complete(id, item, completion.outcome, &mut self.tiers).map(Job::Put),
            Job::Fetch(fetch) => fetch.complete(id, tier, item, completion.outcome, &mut self.tiers).map(Job::Fetch),
        };
        if let Some(job) = goes_on {
            self.jobs.insert(id, job);
        }
    }

    /// Takes the buffer of a job back that was given up.
    fn give_back(&self, outcome: Outcome<Vec<u8>>) {
        match outcome {
            Outcome::Got(get, _) => self.tiers.line.give_get(get.buffer),
            Outcome::Put(put, _) => self.tiers.line.give_put(put.buffer),
            _ => {}
        }
    }

    /// Gives up the jobs whose time is over. Their buffers come back with their completions.
    fn give_up_late(&mut self) {
        let now = Instant::now();
        let is_late = |job: &Job| match job {
            Job::Put(put) => put.due() <= now,
            Job::Fetch(fetch) => fetch.due() <= now,
        };
        let late: Vec<JobId> = self.jobs.iter().filter(|(_, job)| is_late(job)).map(|(&id, _)| id).collect();
        for id in late {
            match self.jobs.remove(&id) {
                Some(Job::Put(put)) => put.give_up(id, &mut self.tiers),
                Some(Job::Fetch(fetch)) => fetch.give_up(id, &mut self.tiers),
                None => {}
            }
        }
    }
}
