//! The participant that pins the epoch (`reclaim`) for a call: the session's own, or one lent for
//! the call.

use std::ops::Deref;

use super::inner::Inner;
use crate::reclaim::{Lent, Local};

/// A session's own participant, or one that is lent for the duration of a call.
#[derive(Debug)]
pub(super) enum Participant<'a> {
    Own(&'a Local),
    Lent(Lent<'a, Local>),
}

impl Deref for Participant<'_> {
    type Target = Local;

    #[inline]
    fn deref(&self) -> &Local {
        match self {
            Self::Own(local) => local,
            Self::Lent(lent) => lent,
        }
    }
}

impl Drop for Participant<'_> {
    #[inline]
    fn drop(&mut self) {
        // Its garbage is handed over, because it may not be lent again for a long time.
        if let Self::Lent(lent) = self {
            lent.hand_over();
        }
    }
}

impl Inner {
    /// Borrows a participant for the duration of a call.
    pub(super) fn participant(&self) -> Participant<'_> {
        self.lend(0)
    }

    /// As `participant`; the search for an idle one starts at slot `near`.
    pub(super) fn lend(&self, near: usize) -> Participant<'_> {
        Participant::Lent(self.idle.lend(near, || self.domain.register()))
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
