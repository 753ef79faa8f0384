//! The start of a request: its cached prefix and its own blocks.

use radixkv::{BlockId, Lease, Reservation};

/// The start of a request: a lease on its cached prefix, and blocks for the remaining tokens, the
/// first of which may be partly filled.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping it releases the lease and gives the blocks back"]
pub struct TieredStart {
    /// A lease on the prefix that the device caches now: the device's own hit and the whole blocks
    /// copied from the tiers below.
    pub lease: Lease,
    /// The blocks of that prefix.
    pub cached: Vec<BlockId>,
    /// The request's own blocks for the tokens beyond the lease.
    pub blocks: Reservation,
    /// Tokens that the device had.
    pub device_tokens: usize,
    /// Tokens that were copied from the host, which had them when the prompt was matched.
    pub host_tokens: usize,
    /// Tokens that were copied from remote tiers, through the host.
    pub remote_tokens: usize,
}

impl TieredStart {
    /// Tokens whose keys and values are present: computation starts after them. Those beyond the
    /// lease are in the first of [`blocks`](Self::blocks); there are none unless host blocks are
    /// smaller than device blocks.
    pub fn len_tokens(&self) -> usize {
        self.device_tokens + self.host_tokens + self.remote_tokens
    }
}
