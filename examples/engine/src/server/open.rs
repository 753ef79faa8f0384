//! Connections that are open, and which of them gives way to a new one.
//!
//! Where there are as many as there may be, the one that was opened first gives way among those without a request that is served: it
//! is silent, or its client has not finished a request. Where each has one, further connections are *spare*: so many more, for
//! `/health` and `/metrics` only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Spare connections at once; a further one takes the place of the one that was opened first.
const SPARE: usize = 32;

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Open {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    usual: BTreeMap<u64, Arc<Connection>>,
    spare: BTreeMap<u64, Arc<Connection>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    number: u64,
    pub(super) is_spare: bool,
    gives_way: Notify,
    in_use: Arc<()>,
}

/// A request that is served: its connection does not give way while this lives.
#[derive(Debug)]
pub(super) struct InUse(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl Connection {
    /// A request of it is served from now on.
    pub(super) fn in_use(&self) -> InUse {
        InUse(Arc::clone(&self.in_use))
    }

    /// Waits until it gives way to another one.
    pub(super) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl State {
    /// Ends the connection that was opened first among those that may give way.
    fn end_oldest(&mut self) -> bool {
        let oldest = self.usual.values().find(|connection| Arc::strong_count(&connection.in_use) == 1).cloned();
        let oldest = oldest.and_then(|connection| self.usual.remove(&connection.number));
        if let Some(connection) = &oldest {
            connection.gives_way.notify_one();
        }
        oldest.is_some()
    }
}

impl Open {
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that may panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in; another one may give way to it.
    pub(super) fn add(&self) -> Arc<Connection> {
        let mut state = self.lock();
        let is_spare = state.usual.len() >= self.most && !state.end_oldest();
        let number = state.next;
        state.next += 1;
        let connection = Arc::new(Connection { number, is_spare, gives_way: Notify::new(), in_use: Arc::default() });
        let kind = if is_spare { &mut state.spare } else { &mut state.usual };
        kind.insert(number, Arc::clone(&connection));
        if state.spare.len() > SPARE {
            if let Some((_, oldest)) = state.spare.pop_first() {
                oldest.gives_way.notify_one();
            }
        }
        connection
    }

    /// Ends a connection, if one may give way: the system has no sockets left.
    pub(super) fn make_room(&self) {
        self.lock().end_oldest();
    }

    /// A connection has ended.
    pub(super) fn remove(&self, connection: &Connection) {
        let mut state = self.lock();
        state.usual.remove(&connection.number);
        state.spare.remove(&connection.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_a_request_give_way_and_then_there_are_spare_ones() {
        let open = Open::new(3);
        let first: Vec<_> = (0..3).map(|_| open.add()).collect();
        let used = first[0].in_use();
        let fourth = open.add();
        let held = |connection: &Connection| open.lock().usual.contains_key(&connection.number);
        assert!(held(&first[0]) && !held(&first[1]) && held(&first[2]) && held(&fourth) && !fourth.is_spare);
        let all: Vec<_> = [&first[2], &fourth].map(|connection| connection.in_use()).into();
        let spare: Vec<_> = (0..SPARE + 1).map(|_| open.add()).collect();
        assert!(spare.iter().all(|connection| connection.is_spare));
        assert_eq!(open.lock().usual.len(), 3);
        assert_eq!(open.lock().spare.len(), SPARE);
        drop((used, all));
        assert!(!open.add().is_spare);
        open.remove(&fourth);
        assert!(!held(&fourth));
    }
}
