//! What a worker thread sleeps on.

use std::time::{Duration, Instant};

use super::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use super::lock::{Condvar, Mutex};

const QUIET: usize = 0;
const RUNG: usize = 1;
const ENDED: usize = 2;

/// Wakes one thread. Ringing while it is awake, or rung already, is one read-modify-write; no ring is lost.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicUsize,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { state: AtomicUsize::new(QUIET), lock: Mutex::new(()), rung: Condvar::new() }
    }

    /// Wakes the thread, or keeps it from falling asleep.
    pub(crate) fn ring(&self) {
        self.raise(RUNG);
    }

    /// Wakes the thread for the last time.
    pub(crate) fn end(&self) {
        self.raise(ENDED);
    }

    fn raise(&self, state: usize) {
        // Release: what the caller did comes before the thread's look at it.
        if self.state.fetch_max(state, Release) < state {
            // Between the thread's look at the state and its sleep this waits.
            drop(self.lock.lock());
            self.rung.notify_one();
        }
    }

    /// Sleeps until it is rung, or for so long; false when it has been ended.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> bool {
        let until = at_most.and_then(|pause| Instant::now().checked_add(pause));
        let mut lock = self.lock.lock();
        // Acquire: pairs with `raise`.
        while self.state.compare_exchange(RUNG, QUIET, Acquire, Relaxed).is_err() {
            // Relaxed: the end is final.
            if self.state.load(Relaxed) == ENDED {
                return false;
            }
            let late;
            (lock, late) = self.rung.wait(lock, until);
            if late {
                return self.wakes();
            }
        }
        true
    }

    /// After a sleep that nobody ended early: takes a ring that came at that moment; false when it has been ended.
    fn wakes(&self) -> bool {
        // Acquire: pairs with `raise`; no model sleeps for so long and no longer. Relaxed: the end is final.
        self.state.compare_exchange(RUNG, QUIET, Acquire, Relaxed).is_ok() || self.state.load(Relaxed) != ENDED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn no_ring_is_lost_and_the_end_ends() {
        let bell = Arc::new(Bell::new());
        let work = Arc::new(AtomicUsize::new(0));
        let worker = std::thread::spawn({
            let (bell, work) = (Arc::clone(&bell), Arc::clone(&work));
            move || {
                let mut done = 0;
                while bell.wait(None) {
                    done += work.swap(0, Relaxed);
                }
                done
            }
        });
        for _ in 0..10_000 {
            work.fetch_add(1, Relaxed);
            bell.ring();
        }
        while work.load(Relaxed) > 0 {
            std::thread::yield_now();
        }
        bell.end();
        assert_eq!(worker.join().expect("the worker ends"), 10_000);
    }

    #[test]
    fn a_sleep_ends_by_itself_and_the_end_ends_it() {
        let bell = Bell::new();
        assert!(bell.wait(Some(Duration::from_millis(1))));
        bell.ring();
        assert!(bell.wait(Some(Duration::from_secs(1_000))), "rung before");
        bell.end();
        assert!(!bell.wait(Some(Duration::from_millis(1))));
    }
}
