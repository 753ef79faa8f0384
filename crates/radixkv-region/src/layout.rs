//! The layout of a region: the model and the sizes of its blocks. All its processes must agree on
//! it.

use sha2::{Digest, Sha256};

use crate::key::Chain;

/// The maximum length of a text in bytes.
pub(crate) const TEXT: usize = 120;
/// The maximum number of blocks of a region.
const CAPACITY: u32 = 1 << 31;

/// The parameters that all processes of a region must agree on.
///
/// Opening a region that was made with another layout is refused; the error names both values.
///
/// ```
/// use radixkv_region::Layout;
///
/// // 4,096 blocks of 16 tokens, 128 KiB each.
/// let layout = Layout::new(16, 128 << 10, 4096).model("Qwen/Qwen3-8B").dtype("bf16").arrangement("layer, k|v, head").shard("tp 0 of 2");
/// assert_eq!(layout.block_bytes(), 131_072);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Model, dtype, arrangement, shard.
    pub(crate) texts: [String; 4],
    pub(crate) block_size: u32,
    pub(crate) block_bytes: u64,
    pub(crate) capacity: u32,
    pub(crate) keys: Keys,
}

/// How the blocks of a region are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Tokens, which every read compares.
    Tokens = 0,
    /// Digests that the caller computed.
    Digests = 1,
}

/// The names of the texts, for messages.
pub(crate) const TEXTS: [&str; 4] = ["model", "dtype", "arrangement", "shard"];

/// Why a layout is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A size is zero.
    #[error("{field} is 0: at least 1 is needed")]
    Zero {
        /// Which size.
        field: &'static str,
    },
    /// A text is too long: use a digest of it.
    #[error("{field} has {len} bytes, at most {TEXT} fit")]
    TextTooLong {
        /// Which text.
        field: &'static str,
        /// Its bytes.
        len: usize,
    },
    /// The region does not fit in the address space: use fewer or smaller blocks.
    #[error("{capacity} blocks of {block_bytes} bytes and {block_size} tokens do not fit in the address space")]
    TooLarge {
        /// Blocks of the region.
        capacity: u32,
        /// Bytes of a block.
        block_bytes: u64,
        /// Tokens of a block.
        block_size: u32,
    },
}

impl Layout {
    /// Creates a layout of `capacity` blocks of `block_size` tokens and `block_bytes` bytes.
    pub fn new(block_size: u32, block_bytes: usize, capacity: u32) -> Self {
        Self { texts: Default::default(), block_size, block_bytes: block_bytes as u64, capacity, keys: Keys::Tokens }
    }

    /// Sets the model and its version. Default: empty.
    pub fn model(self, model: impl Into<String>) -> Self {
        self.text(0, model.into())
    }

    /// Sets the element type, with the kind of its scales if it has any. Default: empty.
    pub fn dtype(self, dtype: impl Into<String>) -> Self {
        self.text(1, dtype.into())
    }

    /// Sets how keys and values are arranged in a block. Default: empty.
    pub fn arrangement(self, arrangement: impl Into<String>) -> Self {
        self.text(2, arrangement.into())
    }

    /// Sets which part of the model's heads or layers the blocks hold: the rank of tensor or
    /// pipeline parallelism, and the number of ranks. Default: empty.
    pub fn shard(self, shard: impl Into<String>) -> Self {
        self.text(3, shard.into())
    }

    /// Tokens of a block.
    pub fn block_size(&self) -> usize {
        self.block_size as usize
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes as usize
    }

    /// Blocks of the region.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Starts the chain of keys for a sequence of a namespace.
    ///
    /// The keys depend on all parameters of the layout except the capacity.
    ///
    /// # Panics
    ///
    /// If the block size is 0.
    pub fn chain(&self, namespace: &[u8]) -> Chain {
        let mut seed = Sha256::new_with_prefix("radixkv-region 1\0");
        for text in self.texts.iter().map(String::as_bytes).chain([namespace]) {
            seed.update((text.len() as u64).to_le_bytes());
            seed.update(text);
        }
        seed.update(self.block_size.to_le_bytes());
        seed.update(self.block_bytes.to_le_bytes());
        Chain::new(seed.finalize().into(), self.block_size())
    }

    /// Bytes that a region of this layout takes in total: blocks, tokens and index.
    ///
    /// # Errors
    ///
    /// [`LayoutError`], if no region can have this layout.
    pub fn region_bytes(&self) -> Result<usize, LayoutError> {
        Ok(crate::geometry::Geometry::of(self)?.bytes())
    }

    /// Checks the sizes and the texts. Whether the region fits in the address space is checked by
    /// `Geometry::of`.
    pub(crate) fn check(&self) -> Result<(), LayoutError> {
        let sizes = [
            ("block_size", self.block_size as u64),
            ("block_bytes", self.block_bytes),
            ("capacity", self.capacity.into()),
        ];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(LayoutError::Zero { field });
        }
        if let Some((text, field)) = self.texts.iter().zip(TEXTS).find(|(text, _)| text.len() > TEXT) {
            return Err(LayoutError::TextTooLong { field, len: text.len() });
        }
        if self.capacity > CAPACITY { Err(self.too_large()) } else { Ok(()) }
    }

    pub(crate) fn too_large(&self) -> LayoutError {
        LayoutError::TooLarge { capacity: self.capacity, block_bytes: self.block_bytes, block_size: self.block_size }
    }

    fn text(mut self, at: usize, text: String) -> Self {
        self.texts[at] = text;
        self
    }
}
