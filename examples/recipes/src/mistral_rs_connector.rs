//! The names and signatures of the interface in mistral.rs's pull request 2364, as of commit
//! a59965a (August 2026), so that the recipe's code compiles. The request was not merged at the
//! time of writing.

/// The chained hash of a block. It covers the hash of the block before it, the block's tokens, and
/// everything else that its keys and values depend on (images, an adapter, a salt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHash(u64);

impl BlockHash {
    /// Makes a hash for the recipe's example; in mistral.rs the engine computes hashes.
    pub fn new(value: u64) -> Self {
        Self(value)
    }

    /// The hash as a number.
    pub fn value(&self) -> u64 {
        self.0
    }
}

/// The hash of a block, and the group of layers that the block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHashWithGroupId {
    /// The hash.
    pub block_hash: BlockHash,
    /// The group.
    pub group_id: u32,
}

/// The calls that mistral.rs's block pool makes to a connector.
pub trait KvCacheConnector: Send + Sync {
    /// Returns the ids of the cached blocks with these hashes, from the first on; `None` leaves the
    /// lookup to the pool.
    fn lookup_blocks(&self, _block_hashes: &[BlockHash], _group_ids: &[u32], _max_blocks: usize) -> Option<Vec<usize>> {
        None
    }

    /// Called when a lookup found these blocks.
    fn observe_hit(&self, _block_hashes: &[BlockHash], _block_ids: &[usize], _num_computed_tokens: usize) {}

    /// Called when the first `num_full_blocks` blocks of a request are full.
    fn observe_store(&self, _block_hashes: &[BlockHash], _block_ids: &[usize], _num_full_blocks: usize) {}

    /// Called when the pool gives this block to another request.
    fn observe_evict(&self, _block_hashes: &[BlockHashWithGroupId], _block_id: usize) {}
}
