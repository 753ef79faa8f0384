//! The result of an abort, and the state that keeps an aborted request from being published.
//!
//! [`Admission`](super::admission::Admission) aborts; the scheduler that serves the request checks
//! [`AbortState`] before each insert.

use radixkv::Token;

use crate::sync::{Condvar, Mutex, ThreadId, current_thread};

/// The state in which an abort found the request
/// ([`WaitingQueue::abort`](super::WaitingQueue::abort)).
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// use radixkv_scheduler::{Aborted, Request};
/// # use radixkv_scheduler::{QueueConfig, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(16, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// let id = queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3], 8))?;
/// let step = scheduler.schedule();
/// assert_eq!(queue.abort(id), Aborted::Served);
/// step.complete(&[7])?;
/// // The request has left the scheduler; the next step says so.
/// assert_eq!(scheduler.schedule().aborted(), [id]);
/// assert_eq!(queue.abort(id), Aborted::Unknown);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aborted {
    /// The request waited, and was removed from the queue.
    Waiting {
        /// The prompt, then the tokens that were sampled before a preemption.
        tokens: Vec<Token>,
    },
    /// A scheduler serves the request. It drops the request after its current step, and the next
    /// step lists it ([`Step::aborted`](super::Step::aborted)). Until then, another abort returns
    /// the same.
    Served,
    /// The queue has no such request: it has finished, was aborted before, or never existed.
    Unknown,
}

/// Whether a served request was aborted, after which no more of its blocks are published. Shared by
/// [`Admission`](super::admission::Admission), which aborts it, and the scheduler that serves it.
#[derive(Debug)]
pub(super) struct AbortState {
    state: Mutex<AbortFlags>,
    /// Notified at the end of an insert.
    published: Condvar,
}

#[derive(Debug, Default)]
struct AbortFlags {
    aborted: bool,
    /// The thread that is publishing the request's blocks.
    publisher: Option<ThreadId>,
}

/// The permission to publish a request's blocks: while it lives, no other thread's abort returns.
/// It holds no lock, because publishing may wake tasks, and their wakers are user code.
pub(super) struct Publishing<'a>(&'a AbortState);

impl AbortState {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(AbortFlags::default()), published: Condvar::new() }
    }

    /// Aborts the request: after this returns, no more of its blocks are published. Waits for a
    /// running insert, unless a waker inside that insert calls this: then the calling thread is the
    /// publisher.
    pub(super) fn abort(&self) {
        let mut state = self.state.lock();
        state.aborted = true;
        while state.publisher.is_some_and(|publisher| publisher != current_thread()) {
            (state, _) = self.published.wait(state, None);
        }
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.state.lock().aborted
    }

    /// Returns the permission to publish, or `None` if the request was aborted. Only the scheduler
    /// that serves the request calls this.
    pub(super) fn publishing(&self) -> Option<Publishing<'_>> {
        let mut state = self.state.lock();
        if state.aborted {
            return None;
        }
        state.publisher = Some(current_thread());
        Some(Publishing(self))
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().publisher = None;
        self.0.published.notify_all();
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
