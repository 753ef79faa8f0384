//! The queue of a tier: waiting requests, requests that a thread is carrying out, and completions
//! that were not polled yet.
//!
//! ```text
//! submit --> waiting --take--> (a thread prepares it) --park--> running --unpark--> (finishes it) --complete--> done --> poll
//!               |                                                  |
//!               +------------------- past its timeout: TimedOut ---+------------------------------------------> done
//! ```
//!
//! The polling thread completes a request that is past its timeout, even while a thread of the tier
//! is reading or writing for it. That thread works on its own memory, and later finds the request
//! gone. So no disk or network, however slow, keeps a caller's buffer.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::{Duration, Instant},
};

use crate::{
    key::{Block, BlockKey},
    stats::Counters,
    tier::{Completion, Failure, Get, Outcome, Put, Refusal, Refused, Ticket},
};

/// The request of a job.
#[derive(Debug)]
pub(crate) enum Request<B> {
    Contains(BlockKey),
    Get(Get<B>),
    Put(Put<B>, Terms),
    Remove(BlockKey),
}

/// The terms of a put, in addition to the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// When the block expires, in milliseconds since 1970; 0: never.
    pub(crate) expires: u64,
    /// The block before the run of consecutive blocks that its batch puts: without it they are
    /// useless.
    pub(crate) before: Option<Before>,
}

/// An earlier block of the same sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    pub(crate) key: BlockKey,
    pub(crate) number: u32,
}

impl Before {
    /// The block directly before `block`.
    pub(crate) fn of(block: &Block) -> Option<Self> {
        block.parent().map(|key| Self { key, number: block.number().saturating_sub(1) })
    }
}

/// One item of a batch.
#[derive(Debug)]
pub(crate) struct Job<B> {
    pub(crate) ticket: Ticket,
    index: usize,
    due: Instant,
    pub(crate) request: Request<B>,
}

/// The id of a job that a thread carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JobId(u64);

#[derive(Debug)]
struct State<B> {
    waiting: VecDeque<Job<B>>,
    running: HashMap<JobId, Job<B>>,
    done: VecDeque<Completion<B>>,
    /// Submitted items whose completions were not polled.
    in_flight: usize,
    next_job: u64,
    next_ticket: u64,
    /// Wakes the task that takes jobs, if there is one.
    waker: Option<Waker>,
    /// The number of threads that take jobs.
    threads: usize,
    is_closed: bool,
}

/// The requests between a tier's callers and its threads.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    state: Mutex<State<B>>,
    /// Notified for threads that take jobs.
    work: Condvar,
    /// Notified for polling threads, and when a thread of the tier ends.
    progress: Condvar,
    pub(crate) counters: Counters,
    max_in_flight: usize,
    timeout: Duration,
    opened_by: u32,
}

impl<B> Queue<B> {
    pub(crate) fn new(max_in_flight: usize, timeout: Duration) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            running: HashMap::new(),
            done: VecDeque::new(),
            in_flight: 0,
            next_job: 0,
            next_ticket: 0,
            waker: None,
            threads: 0,
            is_closed: false,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            counters: Counters::default(),
            max_in_flight,
            timeout,
            opened_by: std::process::id(),
        }
    }

    /// No code of a caller runs under the lock, so a poisoned lock protects a valid state.
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the process that opened the tier. A forked process has none of its threads,
    /// and perhaps a lock that is never released.
    pub(crate) fn is_here(&self) -> Result<(), Refusal> {
        let here = std::process::id();
        if here == self.opened_by { Ok(()) } else { Err(Refusal::Forked { opened_by: self.opened_by, here }) }
    }

    // --- callers

    /// Accepts a batch as a whole, or returns it.
    pub(crate) fn submit<T>(
        &self,
        batch: Vec<T>,
        mut request: impl FnMut(T) -> Request<B>,
    ) -> Result<Ticket, Refused<Vec<T>>> {
        let (asked, max) = (batch.len(), self.max_in_flight);
        let refuse = |batch, reason| {
            self.counters.refused();
            Err(Refused { batch, reason })
        };
        if asked > max {
            return refuse(batch, Refusal::TooLarge { asked, max });
        }
        let mut state = self.lock();
        // Computed under the lock, so that waiting jobs are due in their order.
        let due = Instant::now() + self.timeout;
        let in_flight = state.in_flight;
        if asked > max - in_flight {
            drop(state);
            return refuse(batch, Refusal::Full { asked, in_flight, max });
        }
        let ticket = Ticket(state.next_ticket);
        state.next_ticket += 1;
        state.in_flight += asked;
        let jobs = batch.into_iter().enumerate();
        state.waiting.extend(jobs.map(|(index, item)| Job { ticket, index, due, request: request(item) }));
        let waker = state.waker.take();
        drop(state);
        for _ in 0..asked {
            self.work.notify_one();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(ticket)
    }

    /// Returns completions; waits up to `wait` for the first one, unless nothing is in flight.
    pub(crate) fn poll(&self, done: &mut Vec<Completion<B>>, wait: Duration) -> usize {
        let until = Instant::now().checked_add(wait);
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            self.expire(&mut state, now);
            if !state.done.is_empty() {
                let ready = mem::take(&mut state.done);
                state.in_flight -= ready.len();
                drop(state);
                let count = ready.len();
                done.extend(ready);
                return count;
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
            if left.is_zero() || state.in_flight == 0 {
                return 0;
            }
            let due = state.next_due().map_or(self.timeout, |due| due.saturating_duration_since(now));
            // A job that a thread is preparing is in neither list: check again after the timeout.
            let nap = left.min(due.clamp(Duration::from_millis(1), self.timeout));
            state = self.progress.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.lock().in_flight
    }

    /// Completes the jobs that are past their timeout.
    fn expire(&self, state: &mut State<B>, now: Instant) {
        let waiting = state.waiting.iter().take_while(|job| job.due <= now).count();
        let mut late: Vec<_> = state.waiting.drain(..waiting).collect();
        let running: Vec<_> = state.running.iter().filter(|(_, job)| job.due <= now).map(|(&id, _)| id).collect();
        late.extend(running.iter().filter_map(|id| state.running.remove(id)));
        for job in late {
            self.counters.failed(Failure::TimedOut);
            state.done.push_back(job.fails(Failure::TimedOut));
            self.progress.notify_all();
        }
    }

    // --- threads of the tier

    /// Counts a thread that takes jobs, until the returned value is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered<B> {
        self.lock().threads += 1;
        Entered(Arc::clone(self))
    }

    /// Waits for jobs and takes up to `max` of them; `None` once the queue is closed.
    pub(crate) fn take(&self, max: usize) -> Option<Vec<Job<B>>> {
        loop {
            self.wait_for_work();
            if let Some(jobs) = self.try_take(max) {
                return jobs;
            }
        }
    }

    /// Waits until there are jobs, which another thread may take first, or the queue is closed.
    pub(crate) fn wait_for_work(&self) {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.is_closed {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes up to `max` jobs; `None` if there are none, `Some(None)` once the queue is closed.
    pub(crate) fn try_take(&self, max: usize) -> Option<Option<Vec<Job<B>>>> {
        let mut state = self.lock();
        // Late jobs are not begun: after an outage the store gets no work that nobody waits for.
        self.expire(&mut state, Instant::now());
        state.take(max)
    }

    /// As [`take`](Self::take), for a task.
    #[cfg(feature = "object-store")]
    pub(crate) fn poll_take(
        &self,
        context: &std::task::Context<'_>,
        max: usize,
    ) -> std::task::Poll<Option<Vec<Job<B>>>> {
        let mut state = self.lock();
        self.expire(&mut state, Instant::now());
        match state.take(max) {
            Some(jobs) => std::task::Poll::Ready(jobs),
            None => {
                state.waker = Some(context.waker().clone());
                std::task::Poll::Pending
            }
        }
    }

    /// Keeps a job where it can be completed while the store works on it.
    pub(crate) fn park(&self, job: Job<B>) -> JobId {
        let mut state = self.lock();
        let id = JobId(state.next_job);
        state.next_job += 1;
        state.running.insert(id, job);
        id
    }

    /// Takes a parked job back; `None` if it timed out.
    pub(crate) fn unpark(&self, id: JobId) -> Option<Job<B>> {
        self.lock().running.remove(&id)
    }

    /// Adds a completion for `poll`.
    pub(crate) fn complete(&self, completion: Completion<B>) {
        self.lock().done.push_back(completion);
        self.progress.notify_all();
    }

    // --- the end

    /// Closes the queue: threads take no more jobs. Returns the jobs and completions that no call
    /// will return.
    pub(crate) fn close(&self) -> impl Sized + use<B> {
        let mut state = self.lock();
        state.is_closed = true;
        let left = (mem::take(&mut state.waiting), mem::take(&mut state.done));
        let waker = state.waker.take();
        drop(state);
        self.work.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        left
    }

    /// Waits until the tier's threads have ended, up to `patience`. Returns whether they have.
    pub(crate) fn wait_for_threads(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl<B> State<B> {
    /// `None` if there is nothing to do, `Some(None)` once the queue is closed.
    fn take(&mut self, max: usize) -> Option<Option<Vec<Job<B>>>> {
        if self.is_closed {
            return Some(None);
        }
        let count = self.waiting.len().min(max);
        (count > 0).then(|| Some(self.waiting.drain(..count).collect()))
    }

    /// When the next job is due. Waiting jobs were submitted in order, so the first is due first.
    fn next_due(&self) -> Option<Instant> {
        self.running.values().map(|job| job.due).chain(self.waiting.front().map(|job| job.due)).min()
    }
}

impl<B> Job<B> {
    /// When the job times out.
    #[cfg(feature = "object-store")]
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn ends(self, end: impl FnOnce(Request<B>) -> Outcome<B>) -> Completion<B> {
        Completion { ticket: self.ticket, index: self.index, outcome: end(self.request) }
    }

    pub(crate) fn fails(self, failure: Failure) -> Completion<B> {
        self.ends(|request| match request {
            Request::Contains(key) => Outcome::Contained(key, Err(failure)),
            Request::Get(get) => Outcome::Got(get, Err(failure.into())),
            Request::Put(put, _) => Outcome::Put(put, Err(failure)),
            Request::Remove(key) => Outcome::Removed(key, Err(failure)),
        })
    }
}

/// Counts a thread that takes jobs while it lives.
pub(crate) struct Entered<B>(Arc<Queue<B>>);

impl<B> Drop for Entered<B> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.progress.notify_all();
    }
}
