//! The peers of a relay, and which of them gives way to a further one.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{task::AbortHandle, time::Instant};

/// How long a peer may leave bytes unread before others take its place first.
const UNREAD: Duration = Duration::from_secs(1);

/// How far a peer is.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Whether it has greeted and sent a frame.
    has_begun: bool,
    /// Since when bytes wait for it to read.
    unread: Option<Instant>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has greeted and sent a frame.
    pub(super) fn begin(&self) {
        self.lock().has_begun = true;
    }

    /// Bytes wait for the peer to read.
    pub(super) fn write(&self) {
        self.lock().unread = Some(Instant::now());
    }

    /// They were taken.
    pub(super) fn written(&self) {
        self.lock().unread = None;
    }
}

/// Peers in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Peers(Vec<(Progress, AbortHandle)>);

impl Peers {
    pub(super) fn add(&mut self, progress: Progress, task: AbortHandle) {
        self.0.push((progress, task));
    }

    /// Makes room for one more where there may be `most`: the first one ends that leaves bytes unread, else the first that has not begun,
    /// else the first.
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
            // Such as a moment ago.
            tasks[1].0.write();
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
