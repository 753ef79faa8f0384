//! The steps that ask for a prefix to be kept, or not.

use super::{Difference, Driver, equal};
use crate::subject::Subject;

impl<S: Subject> Driver<S> {
    pub(super) fn prioritize(&mut self, at: usize, priority: i64, ttl: Option<u8>) {
        let Some(at) = at.checked_rem(self.leases.len()) else { return };
        let ttl = ttl.map(u64::from);
        Subject::prioritize(&mut self.reference, &self.leases[at].expected, priority, ttl);
        self.subject.prioritize(&self.leases[at].actual, priority, ttl);
    }

    pub(super) fn retain(&mut self, at: usize, duration: u8) -> Result<(), Difference> {
        let Some(at) = at.checked_rem(self.leases.len()) else { return Ok(()) };
        let duration = u64::from(duration);
        let expected = Subject::retain(&mut self.reference, &self.leases[at].expected, duration);
        equal("retained", self.subject.retain(&self.leases[at].actual, duration), expected)
    }

    pub(super) fn release_retained(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.leases.len()) else { return };
        Subject::release_retained(&mut self.reference, &self.leases[at].expected);
        self.subject.release_retained(&self.leases[at].actual);
    }

    pub(super) fn demote(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.leases.len()) else { return };
        Subject::demote(&mut self.reference, &self.leases[at].expected);
        self.subject.demote(&self.leases[at].actual);
    }
    pub(super) fn renew(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.leases.len()) else { return };
        Subject::renew(&mut self.reference, &self.leases[at].expected);
        self.subject.renew(&self.leases[at].actual);
    }

    pub(super) fn count_use(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.leases.len()) else { return };
        Subject::count_use(&mut self.reference, &self.leases[at].expected);
        self.subject.count_use(&self.leases[at].actual);
    }
}
