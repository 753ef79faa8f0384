//! The keys of blocks: hashes of a block and of all blocks before it.

use sha2::{Digest, Sha256};

/// A token id.
pub type Token = u32;

/// The key of a block: the hash of its sequence up to the block's end, in its namespace and layout.
///
/// A key only finds a block: the tokens, which are compared, prove that it is the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) hash: [u64; 2],
    /// Bits of the previous block's hash that are not part of that block's own `hash`.
    pub(crate) parent: u64,
    pub(crate) namespace: u64,
}

impl Key {
    /// Makes a key from hashes that another program computed.
    ///
    /// `hash` and `parent` are the sequence hashes of the block and of the previous one. They must
    /// come from a hash function without known collisions, and cover the whole layout and the
    /// namespace. `namespace` is the same for all blocks of one namespace.
    pub fn from_parts(namespace: u64, parent: u128, hash: u128) -> Self {
        Self { hash: [hash as u64, (hash >> 64) as u64], parent: (parent ^ parent >> 64) as u64, namespace }
    }
}

/// Computes the keys of a sequence, block by block.
///
/// ```
/// use radixkv_region::Layout;
///
/// let layout = Layout::new(2, 4096, 8).model("a model");
/// let (mut one, mut other) = (layout.chain(b"tenant"), layout.chain(b"tenant"));
/// assert_eq!(one.keys(&[1, 2, 3, 4, 5]), other.keys(&[1, 2, 3, 4]));
/// // Where the sequences part, so do the keys, for good.
/// assert_ne!(one.next(&[5, 6]), other.next(&[5, 7]));
/// assert_ne!(one.next(&[8, 8]), other.next(&[8, 8]));
/// ```
#[derive(Debug, Clone)]
pub struct Chain {
    last: [u8; 32],
    namespace: u64,
    block_size: usize,
}

impl Chain {
    pub(crate) fn new(seed: [u8; 32], block_size: usize) -> Self {
        assert!(block_size > 0, "the block size is 0: at least 1 is needed");
        Self { last: seed, namespace: word(&seed, 0), block_size }
    }

    /// The key of the next block.
    ///
    /// # Panics
    ///
    /// If `tokens` is not one block.
    pub fn next(&mut self, tokens: &[Token]) -> Key {
        assert_eq!(tokens.len(), self.block_size, "tokens of one block");
        let parent = word(&self.last, 2);
        let mut hash = Sha256::new_with_prefix(self.last);
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
        self.last = hash.finalize().into();
        Key { hash: [word(&self.last, 0), word(&self.last, 1)], parent, namespace: self.namespace }
    }

    /// The keys of the next whole blocks.
    pub fn keys(&mut self, tokens: &[Token]) -> Vec<Key> {
        tokens.chunks_exact(self.block_size).map(|block| self.next(block)).collect()
    }

    /// A number that all blocks of the namespace have in common.
    pub(crate) fn namespace(&self) -> u64 {
        self.namespace
    }
}

/// One of the four words of a digest.
fn word(digest: &[u8; 32], at: usize) -> u64 {
    digest
        .chunks_exact(8)
        .nth(at)
        .map_or(0, |bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}
