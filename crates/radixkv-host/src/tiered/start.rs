//! What a request starts with.

use radixkv::{BlockId, Lease, Reservation};

/// What a request starts with: its cached prefix, leased, and blocks for the rest, the first of which may be filled in part.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping it releases the lease and gives the blocks back"]
pub struct TieredStart {
    /// A lease on the prefix that the device caches now: what it had, and the whole blocks that came from below.
    pub lease: Lease,
    /// The blocks of that prefix.
    pub cached: Vec<BlockId>,
    /// Blocks of the request's own, for the tokens beyond the lease.
    pub blocks: Reservation,
    /// Tokens that the device had.
    pub device_tokens: usize,
    /// Tokens that came from the host, which had them when the prompt was matched.
    pub host_tokens: usize,
    /// Tokens that came from remote tiers, over the host.
    pub remote_tokens: usize,
}

impl TieredStart {
    /// Tokens whose keys and values are there: compute what follows. Those beyond the lease are at the beginning of
    /// [`blocks`](Self::blocks).
    pub fn len_tokens(&self) -> usize {
        self.device_tokens + self.host_tokens + self.remote_tokens
    }
}
