//! The two effects of a use, one at a time: makes a leased prefix recent, or counts a use of it.

use super::lease::Lease;
use crate::cache::session::Session;

pub(in crate::cache) fn renew(session: &Session, lease: &Lease) {
    let inner = session.inner();
    session.check_lease(lease);
    let now = inner.time.now();
    let participant = session.participant();
    let guard = participant.pin();
    if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
        inner.hot.statistics(&held).stamp(now);
        inner.undo_demotions(held.point, now, &guard);
    }
}

pub(in crate::cache) fn count_use(session: &Session, lease: &Lease) {
    session.check_lease(lease);
    if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
        session.inner().hot.statistics(&held).count();
    }
}
