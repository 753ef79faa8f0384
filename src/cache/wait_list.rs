//! The wait list: threads and tasks that wait for blocks, in order.
//!
//! A request that finds too few blocks joins the list. The first in the list tries again; a waiter that leaves, served
//! or not, wakes the next one. A thread that makes blocks available looks whether the list is empty, and wakes the first.
//!
//! **No wake-up is lost.** A waiter joins the list and then looks for blocks; a releaser gives blocks back and then looks
//! for waiters. At least one must see the other. Fences would do, at a cost for every release. Instead both do a
//! read-modify-write of one location, for each way in which blocks become available: of two read-modify-writes one comes
//! first, and the second sees everything before it.
//!
//! | edge | releaser | waiter | location |
//! |---|---|---|---|
//! | E15 | `Queue::push` after a release that was queued | `Queue::drain_for_waiter` | the queue's head |
//! | E16 | `Pool::give_back` | `Pool::free_for_waiter` | the count of free blocks |
//! | E17 | `HotPoints::leave`, and `enter` where it comes too late | `HotPoints::deflate_all` | the stripe |
//! | E18 | `HotPoints::inflate`, before a release that is not queued because of the bias | `HotPoints::deflate_all` | the slots taken |
//!
//! A release that finds `QUEUED` set pushes nothing and relies on the thread that pushes that entry: either its push (E15)
//! comes later, or the entry is in the queue, and the waiter takes it out after the release.
//!
//! A background evictor that finds nothing to evict below its low watermark waits in the same way, beside the list and by
//! the same edges: [`WaitList::evictor_waits`], then a look that goes through them.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, Signal, contained};

/// What one waiter adds to the count.
const WAITER: usize = 2;
/// Set in the count while the background evictor waits.
const EVICTOR: usize = 1;

/// The waiters, in order.
#[derive(Debug)]
pub(super) struct WaitList {
    /// The number of waiters, times [`WAITER`], and the bit [`EVICTOR`].
    waiting: CachePadded<AtomicUsize>,
    waiters: Mutex<Waiters>,
    /// Whether waiting is possible; false in models of something else, which then need not explore it.
    open: bool,
}

#[derive(Debug, Default)]
struct Waiters {
    /// By ticket: the lowest is the first.
    signals: BTreeMap<u64, Arc<Signal>>,
    tickets: u64,
}

impl Waiters {
    fn first(&self) -> Option<Arc<Signal>> {
        self.signals.first_key_value().map(|(_, signal)| Arc::clone(signal))
    }
}

impl WaitList {
    pub(super) fn new(open: bool) -> Self {
        Self { waiting: CachePadded::new(AtomicUsize::new(0)), waiters: Mutex::new(Waiters::default()), open }
    }

    /// Whether a thread or a task waits.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        // Relaxed: E15 to E18.
        self.open && self.waiting.load(Relaxed) >= WAITER
    }

    /// Whether a thread, a task or the background evictor waits.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        // Relaxed: E15 to E18.
        self.open && self.waiting.load(Relaxed) != 0
    }

    /// How many threads and tasks wait.
    pub(super) fn len(&self) -> usize {
        // Relaxed: a number to look at.
        self.waiting.load(Relaxed) / WAITER
    }

    /// Wakes the first waiter, if any. Runs its waker: call it with no lock held.
    #[cold]
    pub(super) fn wake_first(&self) {
        let first = self.waiters.lock().first();
        wake(first);
    }

    /// From now on the background evictor is called when blocks may have become available. Its next look, by the
    /// waiter's side of E15 to E18, sees everything that was given back before.
    pub(super) fn evictor_waits(&self) {
        // Relaxed: E15 to E18 publish it.
        self.waiting.fetch_or(EVICTOR, Relaxed);
    }

    pub(super) fn evictor_is_waiting(&self) -> bool {
        // Relaxed: the evictor's own bit; if a call has just cleared it, the evictor looks once more.
        self.waiting.load(Relaxed) & EVICTOR != 0
    }

    /// Ends the background evictor's wait; true if it waited.
    pub(super) fn evictor_wakes(&self) -> bool {
        // Relaxed, twice: a call too many does no harm.
        self.waiting.load(Relaxed) & EVICTOR != 0 && self.waiting.fetch_and(!EVICTOR, Relaxed) & EVICTOR != 0
    }

    pub(super) fn append(&self) -> (u64, Arc<Signal>) {
        let signal = Arc::new(Signal::new());
        let mut waiters = self.waiters.lock();
        let ticket = waiters.tickets;
        waiters.tickets += 1;
        waiters.signals.insert(ticket, Arc::clone(&signal));
        // Relaxed: E15 to E18 publish it.
        self.waiting.fetch_add(WAITER, Relaxed);
        (ticket, signal)
    }

    pub(super) fn is_first(&self, ticket: u64) -> bool {
        self.waiters.lock().signals.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }

    pub(super) fn leave(&self, ticket: u64) {
        let mut waiters = self.waiters.lock();
        let left = waiters.signals.remove(&ticket);
        // Relaxed: a number too high wakes for nothing.
        self.waiting.fetch_sub(WAITER, Relaxed);
        let next = waiters.first();
        drop(waiters);
        drop(left);
        wake(next);
    }
}

/// Raises `signal`. Dropping its last handle drops its waker, which is the caller's code too.
fn wake(signal: Option<Arc<Signal>>) {
    if let Some(signal) = signal {
        signal.raise();
        contained(|| drop(signal));
    }
}
