//! The participant through which one call pins the index.

use std::ops::Deref;

use super::inner::Inner;
use crate::reclaim::{Lent, Local};

/// A session's own participant, or one that is lent for the length of the call.
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
        // What is lent may not be asked for again for long.
        if let Self::Lent(lent) = self {
            lent.hand_over();
        }
    }
}

impl Inner {
    /// A participant for the length of a call.
    pub(super) fn participant(&self) -> Participant<'_> {
        self.lend(0)
    }

    /// The same, `near` a slot.
    pub(super) fn lend(&self, near: usize) -> Participant<'_> {
        Participant::Lent(self.idle.lend(near, || self.domain.register()))
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
