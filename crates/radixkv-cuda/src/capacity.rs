//! The maximum size of a batch that is replaced in place.

use super::abi::{DecodeItem, MergeItem};
use super::error::GpuError;
use super::upload::Upload;
use radixkv::BlockId;
use radixkv_attention::Batch;

/// The maximum size of a reserved batch ([`Attention::reserve`](super::Attention::reserve)).
///
/// A plain struct without a constructor: no field has a default.
/// [`Attention::items`](super::Attention::items) says how many items are enough.
///
/// ```
/// use radixkv_cuda::Capacity;
///
/// // 64 sequences of 8,192 tokens in blocks of 16; 8 heads of keys and values, and twice as many thread blocks.
/// let capacity = Capacity { sequences: 64, blocks: 64 * 512, items: 2 * 64 * 8 };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Sequences, each with one row. Queries, outputs, keys and values have this many rows in every
    /// step; rows after the batch's own are neither read nor written.
    pub sequences: usize,
    /// Entries of the block table.
    pub blocks: usize,
    /// Thread blocks of a decode: at least one for each KV head of a sequence, or over latent vectors
    /// for each of its equal groups of up to 32 query heads. Further thread blocks are for cutting
    /// long contexts, which are cut into fewer parts if there are too few.
    pub items: usize,
}

impl Capacity {
    /// Words of all arrays, for `head_groups` groups of query heads.
    pub(super) fn words(self, head_groups: usize) -> usize {
        let Self { sequences, blocks, items } = self;
        Upload::room::<u64>(sequences)
            + Upload::room::<DecodeItem>(items)
            + Upload::room::<MergeItem>(sequences * head_groups)
            + Upload::room::<u32>(items)
            + Upload::room::<BlockId>(blocks)
    }

    pub(super) fn check(self, batch: &Batch<'_>) -> Result<(), GpuError> {
        let fits =
            |what, given, room| if given <= room { Ok(()) } else { Err(GpuError::Capacity { what, given, room }) };
        fits("sequences", batch.len(), self.sequences)?;
        fits("blocks", batch.tables.blocks.len(), self.blocks)
    }
}
