//! The list of a relay's peers, and the choice of the peer that is disconnected to make room for
//! another.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{task::AbortHandle, time::Instant};

/// How long a peer may leave bytes unread before it is the first to be replaced.
const UNREAD: Duration = Duration::from_secs(1);

/// The state of a peer's connection, shared by its task and [`Peers`].
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Whether it has greeted and sent a frame.
    has_begun: bool,
    /// When the write started that waits for the peer to read, if any.
    unread: Option<Instant>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the peer has sent the greeting and a frame.
    pub(super) fn begin(&self) {
        self.lock().has_begun = true;
    }

    /// Records that a write to the peer starts.
    pub(super) fn write(&self) {
        self.lock().unread = Some(Instant::now());
    }

    /// Records that the write is complete.
    pub(super) fn written(&self) {
        self.lock().unread = None;
    }
}

/// Peers, in the order in which they connected.
#[derive(Debug, Default)]
pub(super) struct Peers(Vec<(Progress, AbortHandle)>);

impl Peers {
    pub(super) fn add(&mut self, progress: Progress, task: AbortHandle) {
        self.0.push((progress, task));
    }

    /// Makes room for one more peer if there are `most` already. Disconnects the oldest peer that
    /// has left bytes unread for too long, else the oldest that has not sent a frame, else the
    /// oldest.
    pub(super) fn make_room(&mut self, most: usize) {
        self.0.retain(|(_, task)| !task.is_finished());
        if self.0.len() < most {
            return;
        }
        let now = Instant::now();
        let first =
            |gives_way: &dyn Fn(&State) -> bool| self.0.iter().position(|(progress, _)| gives_way(&progress.lock()));
        let unread = first(&|state| state.unread.is_some_and(|since| now - since > UNREAD));
        let at = unread.or_else(|| first(&|state| !state.has_begun)).unwrap_or(0);
        let (_, task) = self.0.remove(at);
        task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_read_goes_first_then_who_has_not_begun_then_the_first() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut peers, mut tasks) = (Peers::default(), Vec::new());
            for _ in 0..4 {
                let (progress, task) = (Progress::default(), tokio::spawn(std::future::pending::<()>()));
                peers.add(progress.clone(), task.abort_handle());
                tasks.push((progress, task));
            }
            [0, 1, 3].into_iter().for_each(|at| tasks[at].0.begin());
            tasks[3].0.0.lock().unwrap().unread = Instant::now().checked_sub(2 * UNREAD);
            tasks[1].0.write();
            // Later than any time of this test, so not yet too long.
            tasks[1].0.0.lock().unwrap().unread = Some(Instant::now() + Duration::from_secs(3_600));
            for (left, at) in [(4, 3), (3, 2), (2, 0)] {
                peers.make_room(left + 1);
                assert_eq!(peers.0.len(), left);
                peers.make_room(left);
                let (_, task) = &mut tasks[at];
                assert!(task.await.unwrap_err().is_cancelled());
            }
            assert!(!tasks[1].1.is_finished());
        });
    }
}
