//! The batches of a store whose outcomes were not returned yet, and the threads that wait for them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use radixkv_region::DigestKey;

use super::arguments::Owner;
use super::batch::{Batch, Span, Verb};

/// A finished batch that is returned to a caller.
pub(super) struct Handed {
    pub(super) number: u64,
    pub(super) outcomes: Vec<u8>,
    /// Must be dropped by a thread that holds the GIL.
    pub(super) owner: Owner,
}

/// Why a batch was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too many blocks are in flight.
    Full { asked: usize, in_flight: usize, most: usize },
    /// The store is closed.
    Closed,
}

struct Entry {
    batch: Arc<Batch>,
    owner: Owner,
    is_done: bool,
    /// The number of threads that wait for this batch.
    waiters: usize,
}

#[derive(Default)]
struct State {
    all: HashMap<u64, Entry>,
    /// The finished batches, in the order in which they finished.
    done: VecDeque<u64>,
    /// The number of blocks of all batches.
    blocks: usize,
    next: u64,
    is_closed: bool,
}

impl State {
    /// Removes a finished batch, which the caller has removed from `done`.
    fn take(&mut self, number: u64) -> Handed {
        let entry = self.all.remove(&number).expect("a finished batch is in the map");
        self.blocks -= entry.batch.keys.len();
        Handed { number, outcomes: entry.batch.outcomes(), owner: entry.owner }
    }

    fn hand_out(&mut self, number: u64) -> Handed {
        self.done.retain(|done| *done != number);
        self.take(number)
    }

    /// Returns and removes the finished batches that no thread waits for.
    fn hand_out_all(&mut self) -> Vec<Handed> {
        let (free, awaited): (VecDeque<_>, _) =
            std::mem::take(&mut self.done).into_iter().partition(|number| self.all[number].waiters == 0);
        self.done = awaited;
        free.into_iter().map(|number| self.take(number)).collect()
    }

    fn undone(&self) -> usize {
        self.all.len() - self.done.len()
    }
}

/// The batches of a store.
pub(super) struct Batches {
    state: Mutex<State>,
    /// Notified when a batch is finished, and when the store is closed.
    progress: Condvar,
    /// Maximum number of blocks in flight.
    most: usize,
}

impl Batches {
    pub(super) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), progress: Condvar::new(), most }
    }

    /// Locks the state. No thread panics or waits for the GIL while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a batch, or refuses it as a whole. A batch without blocks is finished immediately.
    pub(super) fn accept(
        &self,
        verb: Verb,
        keys: Vec<DigestKey>,
        spans: Vec<Span>,
        owner: Owner,
    ) -> Result<Arc<Batch>, (Refused, Owner)> {
        let mut state = self.lock();
        let (asked, in_flight, most) = (keys.len(), state.blocks, self.most);
        if state.is_closed {
            return Err((Refused::Closed, owner));
        }
        if asked > most - in_flight {
            return Err((Refused::Full { asked, in_flight, most }, owner));
        }
        let number = state.next;
        state.next += 1;
        state.blocks += asked;
        let batch = Arc::new(Batch::new(number, verb, keys, spans));
        state.all.insert(number, Entry { batch: Arc::clone(&batch), owner, is_done: asked == 0, waiters: 0 });
        if asked == 0 {
            state.done.push_back(number);
        }
        Ok(batch)
    }

    /// Records that a batch is finished: no thread of the store touches its memory any more.
    pub(super) fn finish(&self, batch: &Batch) {
        let mut state = self.lock();
        if let Some(entry) = state.all.get_mut(&batch.number) {
            entry.is_done = true;
            state.done.push_back(batch.number);
        }
        drop(state);
        self.progress.notify_all();
    }

    /// Returns and removes the finished batches. Waits up to `wait` for the first one, unless no
    /// batch is in flight or the store is closed.
    pub(super) fn poll(&self, wait: Duration) -> Vec<Handed> {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        loop {
            let handed = state.hand_out_all();
            let left = until.saturating_duration_since(Instant::now());
            if !handed.is_empty() || left.is_zero() || state.all.is_empty() || state.is_closed {
                return handed;
            }
            state = self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Registers a waiter for one batch; `None` if the batch does not exist.
    pub(super) fn waiter(&self, number: u64) -> Option<Waiter<'_>> {
        self.lock().all.get_mut(&number)?.waiters += 1;
        Some(Waiter { batches: self, number })
    }

    pub(super) fn cancel(&self, number: u64) -> bool {
        self.lock().all.get(&number).map(|entry| entry.batch.cancel()).is_some()
    }

    /// The number of batches that were not returned yet.
    pub(super) fn in_flight(&self) -> usize {
        self.lock().all.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Calls `show` with the owners of finished batches, until it fails. It must not take long or
    /// use this object: the state is locked.
    pub(super) fn try_for_owners<E>(&self, show: impl FnMut(&Owner) -> Result<(), E>) -> Result<(), E> {
        self.lock().all.values().filter(|entry| entry.is_done).map(|entry| &entry.owner).try_for_each(show)
    }

    /// Refuses new batches, cancels all batches, and waits until all are finished.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.all.values().for_each(|entry| entry.batch.cancel());
        self.progress.notify_all();
        while state.undone() > 0 {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// An error: the batch was returned to another thread.
#[derive(Debug)]
pub(super) struct HandedOut;

/// A thread that waits for one batch. While it exists, `poll` does not return the batch.
pub(super) struct Waiter<'a> {
    batches: &'a Batches,
    number: u64,
}

impl Waiter<'_> {
    /// Waits for the batch; `None` if it is not finished within `wait`, or if the store is closed
    /// before.
    pub(super) fn wait(&self, wait: Duration) -> Result<Option<Handed>, HandedOut> {
        let until = Instant::now() + wait;
        let mut state = self.batches.lock();
        loop {
            if state.all.get(&self.number).ok_or(HandedOut)?.is_done {
                return Ok(Some(state.hand_out(self.number)));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_closed {
                return Ok(None);
            }
            state = self.batches.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.batches.lock().all.get_mut(&self.number) {
            entry.waiters -= 1;
        }
    }
}
