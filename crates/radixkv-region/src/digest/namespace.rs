//! Namespaces of digest-keyed blocks: the meaning of their bytes.

use sha2::{Digest as _, Sha256};

use super::key::{MAX_BYTES, MIN_BYTES};
use crate::layout::TEXT;

/// The names of the texts, in their order.
pub(crate) const TEXTS: [&str; 7] = ["name", "model", "dtype", "arrangement", "shard", "hash scheme", "hash seed"];
/// The names of the numbers, in their order.
pub(crate) const NUMBERS: [&str; 5] = ["block tokens", "block bytes", "key bytes", "checksum", "encryption"];

/// The meaning of the bytes of a namespace's blocks, and how their keys were computed.
///
/// A region holds blocks of many namespaces: of several models, of the ranks of a tensor-parallel
/// group, or of the pools of a hybrid model. Equal keys in two namespaces are two blocks. Opening a
/// namespace is refused if any field differs from the namespace of the same name in the region; the
/// error names both values.
///
/// ```
/// use radixkv_region::Namespace;
///
/// // Keys of 36 bytes, blocks of 64 KiB.
/// let namespace = Namespace::new("vllm, rank 0 of 2", 36, 64 << 10)
///     .model("Qwen/Qwen3-8B")
///     .dtype("bf16")
///     .rank(0, 2)
///     .block_tokens(16)
///     .hash("sha256_cbor", "0");
/// assert_eq!(namespace.block_bytes(), 65_536);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub(crate) texts: [String; TEXTS.len()],
    pub(crate) block_tokens: u64,
    pub(crate) block_bytes: u64,
    pub(crate) key_bytes: u64,
    pub(crate) has_checksums: bool,
    pub(crate) is_sealed: bool,
}

/// Why a namespace was not opened. Nothing in the region was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// A text is too long: use a digest of it.
    #[error("the {field} of the namespace has {len} bytes, at most {TEXT} fit: use a digest of it")]
    TextTooLong {
        /// Which text.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// Keys of this length cannot be digests.
    #[error("keys of {got} bytes requested, {MIN_BYTES} to {MAX_BYTES} are allowed")]
    KeyBytes {
        /// Bytes of a key.
        got: usize,
    },
    /// A block of the namespace does not fit in an entry of the region, or has no bytes.
    #[error("blocks of {got} bytes requested, the region has room for 1 to {max} bytes a block")]
    BlockBytes {
        /// Bytes of a block of the namespace.
        got: usize,
        /// Bytes of an entry of the region.
        max: usize,
    },
    /// The namespace of that name in the region differs: use another name, or another region.
    #[error("{field} is {region} in the region, {expected} was requested: use another name for the namespace")]
    Mismatch {
        /// What differs.
        field: &'static str,
        /// Its value in the region.
        region: String,
        /// The requested value.
        expected: String,
    },
    /// The region cannot hold more namespaces: remove the region and create it again.
    #[error("the region already has the maximum of {max} namespaces: use one of them, or another region")]
    TooMany {
        /// The maximum number of namespaces of a region.
        max: usize,
    },
}

impl Namespace {
    /// Describes a namespace whose keys have `key_bytes` bytes, and whose blocks have
    /// `block_bytes`.
    pub fn new(name: impl Into<String>, key_bytes: usize, block_bytes: usize) -> Self {
        let texts = std::array::from_fn(|_| String::new());
        let (key_bytes, block_bytes) = (key_bytes as u64, block_bytes as u64);
        Self { texts, block_tokens: 0, block_bytes, key_bytes, has_checksums: true, is_sealed: false }.text(0, name)
    }

    /// Sets the model and its version. Default: empty.
    pub fn model(self, model: impl Into<String>) -> Self {
        self.text(1, model)
    }

    /// Sets the element type, with the kind of its scales if it has any. Default: empty.
    pub fn dtype(self, dtype: impl Into<String>) -> Self {
        self.text(2, dtype)
    }

    /// Sets how keys and values are arranged in a block. Default: empty.
    pub fn arrangement(self, arrangement: impl Into<String>) -> Self {
        self.text(3, arrangement)
    }

    /// Sets which rank of a tensor-parallel group the blocks belong to. Default: the ranks share
    /// the blocks, as in models with multi-head latent attention.
    pub fn rank(self, rank: u32, ranks: u32) -> Self {
        self.shard(format!("rank {rank} of {ranks}"))
    }

    /// Sets which part of the model's heads or layers the blocks belong to, if a rank does not
    /// describe it. Default: empty.
    pub fn shard(self, shard: impl Into<String>) -> Self {
        self.text(4, shard)
    }

    /// Sets the tokens of a block. Default: 0, for engines whose blocks have no fixed number of
    /// tokens.
    pub fn block_tokens(self, tokens: u32) -> Self {
        Self { block_tokens: tokens.into(), ..self }
    }

    /// Sets how the keys were computed: the scheme, and the resolved seed. Default: empty.
    pub fn hash(self, scheme: impl Into<String>, seed: impl Into<String>) -> Self {
        self.text(5, scheme).text(6, seed)
    }

    /// Sets whether each block has a checksum of its bytes, which is computed during the copy and
    /// compared on every read. Default: yes. Without it, bit flips in memory are not detected.
    pub fn checksum(self, has_checksums: bool) -> Self {
        Self { has_checksums, ..self }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.texts[0]
    }

    /// Bytes of a key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes as usize
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes as usize
    }

    /// All fields except the name, as text.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let texts = TEXTS.into_iter().zip(self.texts.iter().cloned()).skip(1);
        texts.chain(NUMBERS.into_iter().zip(self.numbers().map(|number| number.to_string()))).collect()
    }

    pub(crate) fn numbers(&self) -> [u64; NUMBERS.len()] {
        [self.block_tokens, self.block_bytes, self.key_bytes, self.has_checksums.into(), self.is_sealed.into()]
    }

    /// Checks the lengths that a region with entries of `entry_bytes` accepts.
    pub(crate) fn check(&self, entry_bytes: usize) -> Result<(), NamespaceError> {
        if let Some((text, field)) = self.texts.iter().zip(TEXTS).find(|(text, _)| text.len() > TEXT) {
            return Err(NamespaceError::TextTooLong { field, len: text.len() });
        }
        if !(MIN_BYTES..=MAX_BYTES).contains(&self.key_bytes()) {
            return Err(NamespaceError::KeyBytes { got: self.key_bytes() });
        }
        if !(1..=entry_bytes).contains(&self.block_bytes()) {
            return Err(NamespaceError::BlockBytes { got: self.block_bytes(), max: entry_bytes });
        }
        Ok(())
    }

    /// A hash of the name, and one of all fields; neither is 0.
    pub(crate) fn hashes(&self) -> [u64; 2] {
        let mut all = Sha256::new_with_prefix("radixkv-region namespace 1\0");
        let mut hashes = [0; 2];
        for (at, text) in self.texts.iter().enumerate() {
            all.update((text.len() as u64).to_le_bytes());
            all.update(text);
            if at == 0 {
                hashes[0] = number(all.clone());
            }
        }
        self.numbers().into_iter().for_each(|number| all.update(number.to_le_bytes()));
        hashes[1] = number(all);
        hashes
    }

    fn text(mut self, at: usize, text: impl Into<String>) -> Self {
        self.texts[at] = text.into();
        self
    }
}

/// The first eight bytes of a digest, as a number that is not 0.
fn number(digest: Sha256) -> u64 {
    let digest: [u8; 32] = digest.finalize().into();
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) | 1
}
