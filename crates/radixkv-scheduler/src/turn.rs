//! The turn: one scheduler of a queue at a time tries to admit a request, or puts one back.

use crate::sync::{Mutex, MutexGuard, ThreadId, current_thread};

/// A lock that knows which thread holds it.
///
/// Actions in a turn may wake tasks, and their wakers are the caller's code. A waker that runs
/// another scheduler of the queue finds that its own thread has the turn, and does not wait for
/// itself.
#[derive(Debug)]
pub(super) struct Turns {
    turn: Mutex<()>,
    holder: Mutex<Option<ThreadId>>,
}

/// The turn: while it lives, no other thread has one.
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    _lock: MutexGuard<'t, ()>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { turn: Mutex::new(()), holder: Mutex::new(None) }
    }

    /// Waits for the turn; `None` if the calling thread has it already.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        if *self.holder.lock() == Some(current_thread()) {
            return None;
        }
        let lock = self.turn.lock();
        *self.holder.lock() = Some(current_thread());
        Some(Turn { turns: self, _lock: lock })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.turns.holder.lock() = None;
    }
}
