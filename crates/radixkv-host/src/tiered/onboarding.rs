//! A request whose blocks are on their way from the host.

use std::{fmt, sync::mpsc::Receiver};

use super::start::TieredStart;

/// A request whose blocks are being copied to the device: by the mover's thread, while the caller goes on.
///
/// Dropped, the copies are made all the same, and what they bring stays cached.
#[must_use = "dropping it gives up what the request was to start with"]
pub struct Onboarding(State);

enum State {
    Done(Box<TieredStart>),
    UnderWay(Receiver<TieredStart>),
}

impl Onboarding {
    pub(super) fn done(start: TieredStart) -> Self {
        Self(State::Done(Box::new(start)))
    }

    pub(super) fn under_way(start: Receiver<TieredStart>) -> Self {
        Self(State::UnderWay(start))
    }

    /// What the request starts with, if all copies are made; else itself, to be asked again. Never waits.
    ///
    /// # Errors
    ///
    /// Itself.
    ///
    /// # Panics
    ///
    /// If the mover's thread panicked outside of the mover: a bug of this package.
    pub fn poll(self) -> Result<TieredStart, Self> {
        match self.0 {
            State::Done(start) => Ok(*start),
            State::UnderWay(start) => match start.try_recv() {
                Ok(start) => Ok(start),
                Err(std::sync::mpsc::TryRecvError::Empty) => Err(Self(State::UnderWay(start))),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => panic!("the mover's thread gave a request up"),
            },
        }
    }

    /// Waits until all copies are made.
    ///
    /// # Panics
    ///
    /// As [`poll`](Self::poll).
    pub fn wait(self) -> TieredStart {
        match self.0 {
            State::Done(start) => *start,
            State::UnderWay(start) => start.recv().expect("the mover's thread gave a request up"),
        }
    }
}

impl fmt::Debug for Onboarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = matches!(self.0, State::Done(_));
        f.debug_struct("Onboarding").field("is_done", &is_done).finish_non_exhaustive()
    }
}
