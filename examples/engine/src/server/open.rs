//! The open connections, and the choice of the connection that is closed to make room for a new
//! one.
//!
//! At the limit, the oldest connection without a request in service is closed: it is silent, or its
//! client has not finished sending a request. If all connections have a request in service, new
//! connections are *spare*: there are at most [`SPARE`] of them, and they serve only `/health` and
//! `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Maximum number of spare connections; a further one replaces the oldest.
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

/// Marks a connection as serving a request: the connection is not closed for another one while this
/// exists.
#[derive(Debug)]
pub(super) struct InUse(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl Connection {
    /// Marks the connection as serving a request.
    pub(super) fn in_use(&self) -> InUse {
        InUse(Arc::clone(&self.in_use))
    }

    /// Waits until the connection must be closed for another one.
    pub(super) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl State {
    /// Closes the oldest connection without a request in service. Returns whether there was one.
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

    /// Adds a connection; this may close another one.
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

    /// Closes a connection, if possible. Called when the system has no sockets left.
    pub(super) fn make_room(&self) {
        self.lock().end_oldest();
    }

    /// Removes a connection that has ended.
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
