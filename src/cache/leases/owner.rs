//! Checks the leases and tokens that a session is given; see [misuse](crate::PrefixCache#misuse).

use super::lease::Lease;
use crate::cache::session::Session;
use crate::key::Token;

impl Session {
    /// # Panics
    ///
    /// If another cache owns the lease.
    #[inline]
    pub(in crate::cache) fn check_lease(&self, lease: &Lease) {
        assert!(lease.cache.is_of(self.strong_refs.inner()), "the lease belongs to another cache");
    }

    /// # Panics
    ///
    /// If another cache owns the lease, or `tokens` is shorter than the sequence with which it was
    /// matched.
    #[inline]
    pub(in crate::cache) fn check_sequence(&self, lease: &Lease, tokens: &[Token]) {
        self.check_lease(lease);
        let leased = lease.layout(self.inner()).depth_of(lease.len_tokens());
        let given = tokens.len();
        assert!(given >= leased, "{given} tokens given, but the lease covers {leased}: pass the whole sequence");
    }
}
