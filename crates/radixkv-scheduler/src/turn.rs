//! The turn: a lock under which one scheduler of a queue at a time tries to admit a request or puts
//! one back.

use crate::sync::{Mutex, MutexGuard, ThreadId, current_thread};

/// A lock that knows its holder's thread.
///
/// Actions in a turn may wake tasks, and their wakers are user code. If a waker runs another
/// scheduler of the queue, it finds that its own thread already has the turn, and does not wait for
/// itself.
#[derive(Debug)]
pub(super) struct Turns {
    turn: Mutex<()>,
    holder: Mutex<Option<ThreadId>>,
}

/// A held turn: while it lives, no other thread has one.
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    _lock: MutexGuard<'t, ()>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { turn: Mutex::new(()), holder: Mutex::new(None) }
    }

    /// Waits for the turn; `None` if the calling thread already has it.
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
