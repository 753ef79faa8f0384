//! The threads that compute one call: the caller's thread, or a pool.

use std::sync::Arc;

use rayon_core::ThreadPool;

/// The caller's thread only, or a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Threads(Option<Arc<ThreadPool>>);

impl Threads {
    pub(super) const CALLER: Self = Self(None);

    pub(super) fn of(pool: Arc<ThreadPool>) -> Self {
        Self(Some(pool))
    }

    pub(super) fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |pool| pool.current_num_threads())
    }

    /// Runs `work` on one of the threads. If `work` calls [`run`](Self::run) several times, no
    /// thread has to be woken in between to continue `work`.
    pub(super) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.0 {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Calls `work` once for each thread, and waits for all calls. A thread that returns before
    /// others have begun may make their calls.
    pub(super) fn run(&self, work: impl Fn() + Sync) {
        match &self.0 {
            Some(pool) if self.count() > 1 => pool.install(|| fan_out(self.count(), &work)),
            _ => work(),
        }
    }
}

/// Joins in halves, which unlike a scope allocates nothing.
fn fan_out(threads: usize, work: &(impl Fn() + Sync)) {
    if threads == 1 {
        return work();
    }
    let (left, right) = (threads.div_ceil(2), threads / 2);
    rayon_core::join(|| fan_out(left, work), || fan_out(right, work));
}
