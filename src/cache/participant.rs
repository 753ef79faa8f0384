//! A participant of the epochs for the length of one call.

use std::ops::Deref;

use crate::reclaim::{Domain, Idle, Local};

/// Borrowed from the idle ones, or new; dropping it leaves it to the next call.
pub(super) struct Participant<'a> {
    idle: &'a Idle,
    /// `None` while it is being dropped.
    local: Option<Local>,
}

impl<'a> Participant<'a> {
    pub(super) fn of(domain: &Domain, idle: &'a Idle) -> Self {
        Self { idle, local: Some(idle.take().unwrap_or_else(|| domain.register())) }
    }
}

impl Deref for Participant<'_> {
    type Target = Local;

    fn deref(&self) -> &Local {
        self.local.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            local.hand_over();
            drop(self.idle.put(local));
        }
    }
}
