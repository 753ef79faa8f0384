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
mod tests {
    use crate::PrefixCache;

    #[test]
    fn participants_do_not_follow_the_number_of_sessions() {
        let cache = PrefixCache::builder(1, 1_024).build().expect("valid");
        let space = cache.default_namespace();
        let sessions: Vec<_> = (0..500).map(|_| cache.session()).collect();
        for (session, token) in sessions.iter().zip(0..) {
            let miss = session.match_prefix(&space, &[token]);
            let filled = session.reserve(1).expect("room");
            drop(session.insert(miss.lease(), &[token], filled).expect("it fits"));
        }
        let found =
            sessions.iter().zip(0..).map(|(session, token)| session.match_prefix(&space, &[token]).len_tokens());
        assert_eq!(found.sum::<usize>(), 500);
        // The sessions' own, the evictor's, and one that is lent again and again for each stripe.
        assert!(cache.inner.domain.registered() <= 64 + 64 + 1, "{}", cache.inner.domain.registered());
        drop(sessions);
        assert_eq!((cache.evict(usize::MAX), cache.validate()), (500, Ok(())));
    }
}
