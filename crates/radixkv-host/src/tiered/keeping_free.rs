//! A thread that evicts ahead, so that requests find free blocks: what it evicts is copied to the host meanwhile.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
};

use super::Shared;

/// Blocks that are evicted at once.
const SLICE: usize = 64;

/// When the thread begins to evict, and when it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) low: usize,
    pub(super) high: usize,
}

/// What the thread sleeps on; it ends after this was dropped.
#[derive(Debug)]
pub(super) struct KeepingFree {
    marks: Marks,
    bell: Arc<Bell>,
}

#[derive(Debug, Default)]
struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    is_rung: bool,
    closed: bool,
}

impl KeepingFree {
    pub(super) fn new(marks: Marks) -> Self {
        Self { marks, bell: Arc::default() }
    }

    /// Starts the thread.
    pub(super) fn start(&self, shared: Weak<Shared>) -> io::Result<()> {
        let (marks, bell) = (self.marks, Arc::clone(&self.bell));
        let run = move || {
            while bell.wait() {
                let Some(shared) = shared.upgrade() else { return };
                shared.evict_ahead(marks);
            }
        };
        thread::Builder::new().name("radixkv-offload".to_owned()).spawn(run).map(drop)
    }

    /// Wakes the thread if too few blocks are free.
    pub(super) fn look(&self, free: usize) {
        if free < self.marks.low {
            self.bell.lock().is_rung = true;
            self.bell.rung.notify_one();
        }
    }
}

impl Drop for KeepingFree {
    fn drop(&mut self) {
        self.bell.lock().closed = true;
        self.bell.rung.notify_one();
    }
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, BellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until it is rung; false if it is closed.
    fn wait(&self) -> bool {
        let mut state = self.lock();
        while !state.is_rung && !state.closed {
            state = self.rung.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_rung = false;
        !state.closed
    }
}

impl Shared {
    /// Evicts until enough blocks are free, or on their way to the host. Where the line of copies has no room, blocks are evicted
    /// and not copied: that a request finds free blocks comes first.
    fn evict_ahead(self: &Arc<Self>, marks: Marks) {
        loop {
            let ready = self.cache.free_blocks() + self.leaving();
            let want = marks.high.saturating_sub(ready).min(SLICE);
            let evicted = match &self.copies {
                _ if want == 0 => return,
                None => self.evict_here(want),
                Some(copies) => match copies.try_room(want) {
                    Some(room) => self.evict_there(want, room, || {}),
                    None => {
                        let evicted = self.cache.evict(want);
                        self.counters.dropped_blocks.add(evicted);
                        evicted
                    }
                },
            };
            if evicted == 0 {
                return;
            }
        }
    }
}
