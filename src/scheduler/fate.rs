//! Whether a request that is served was aborted: from then on nothing of it is published.

use crate::sync::{Condvar, Mutex, ThreadId, current_thread};

/// Shared by the desk, where a request is aborted, and the scheduler that serves it.
#[derive(Debug)]
pub(super) struct Fate {
    state: Mutex<State>,
    /// A publishing has ended.
    published: Condvar,
}

#[derive(Debug, Default)]
struct State {
    aborted: bool,
    /// The thread that is publishing something of the request.
    publisher: Option<ThreadId>,
}

/// While it lives the request is not aborted by another thread: something of it is being published. No lock is held:
/// publishing may wake tasks, and their wakers are the caller's code.
pub(super) struct Publishing<'f>(&'f Fate);

impl Fate {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::default()), published: Condvar::new() }
    }

    /// Nothing is published any more when this returns; waits for an insert that has begun. A waker that aborts the
    /// request whose publishing woke it does not wait for itself: what it was woken by is done.
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

    /// Leave to publish, unless the request was aborted. The scheduler that serves it asks, one thread at a time.
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
mod tests {
    use super::*;
    use crate::sync::thread;

    #[test]
    fn an_abort_waits_for_another_threads_publishing_and_for_no_other() {
        let fate = Fate::new();
        let publishing = fate.publishing().expect("not aborted");
        fate.abort();
        assert!(fate.is_aborted() && fate.publishing().is_none());
        thread::scope(|scope| {
            let aborting = scope.spawn(|| fate.abort());
            thread::sleep(std::time::Duration::from_millis(10));
            assert!(!aborting.is_finished(), "it is still being published");
            drop(publishing);
        });
    }
}
