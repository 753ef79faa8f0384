//! The interface of mistral.rs's pull request 2364, as of commit a59965a (August 2026): names and
//! signatures, so that the code of the recipe is compiled. Not merged at the time of writing.

/// The chained hash of a block: of the hash of the block before it, of its tokens, and of what else
/// its keys and values depend on (images, an adapter, a salt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHash(u64);

impl BlockHash {
    /// A hash for the recipe's example; mistral.rs computes them.
    pub fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number.
    pub fn value(&self) -> u64 {
        self.0
    }
}

/// A block's hash with the group of layers that the block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHashWithGroupId {
    /// The hash.
    pub block_hash: BlockHash,
    /// The group.
    pub group_id: u32,
}

/// What mistral.rs's block pool asks and tells a connector.
pub trait KvCacheConnector: Send + Sync {
    /// The ids of cached blocks with these hashes, from the first on; `None` lets the pool look.
    fn lookup_blocks(&self, _block_hashes: &[BlockHash], _group_ids: &[u32], _max_blocks: usize) -> Option<Vec<usize>> {
        None
    }

    /// A lookup found these blocks.
    fn observe_hit(&self, _block_hashes: &[BlockHash], _block_ids: &[usize], _num_computed_tokens: usize) {}

    /// The first `num_full_blocks` blocks of a request are full.
    fn observe_store(&self, _block_hashes: &[BlockHash], _block_ids: &[usize], _num_full_blocks: usize) {}

    /// The pool gives this block to another request.
    fn observe_evict(&self, _block_hashes: &[BlockHashWithGroupId], _block_id: usize) {}
}
