//! The lower cache tier, which fills the first blocks of requests that a scheduler admits.

use std::fmt;

use radixkv::{Lease, Namespace, PrefixMatch, Reservation, Token};

/// The result of a lower tier ([`Scheduler::above`](super::Scheduler::above)).
#[derive(Debug)]
pub struct Filled {
    /// A lease on the whole prefix of the request that is now cached.
    pub lease: Lease,
    /// The blocks that were not inserted.
    pub blocks: Reservation,
}

/// The function that fills the first blocks of a request.
pub(super) type Fill = dyn FnMut(&Namespace, &[Token], PrefixMatch, Reservation) -> Filled + Send;

/// The lower tier, if there is one.
#[derive(Default)]
pub(super) struct Below(pub(super) Option<Box<Fill>>);

impl fmt::Debug for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a tier" } else { "nothing" })
    }
}
