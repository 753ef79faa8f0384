//! The keys of blocks: hashes of a block's identity and of all tokens before it.

use std::{fmt, sync::Arc};

use sha2::{Digest as _, Sha256};

use crate::layout::{Layout, LayoutDigest};

/// A token id.
pub type Token = u32;

/// Prefixes of the bytes that are hashed for a namespace and for a block: neither can be taken for
/// the other.
const NAMESPACE: &[u8; 16] = b"radixkv  scope 1";
const BLOCK: &[u8; 16] = b"radixkv  block 1";
/// The prefix of the bytes that are hashed for a digest.
const DIGEST: &[u8; 16] = b"radixkv digest 1";

/// The key of a block in every remote tier: the SHA-256 of its layout, its namespace, its tokens
/// and all tokens before them. If the block is named by a digest: the SHA-256 of its layout and the
/// digest.
///
/// Two blocks have the same key only if all of this is equal: no collision of SHA-256 is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey([u8; 32]);

/// A block to store or to read: its key, and its tokens or its digest, which every read compares.
///
/// Made by [`Layout::blocks`], a [`KeyChain`] or [`Layout::digest_block`]; cloning it copies no
/// tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    key: BlockKey,
    /// The key of the previous block in its sequence.
    parent: Option<BlockKey>,
    /// The number of blocks before it.
    number: u32,
    layout: LayoutDigest,
    name: Name,
}

/// The tokens or the digest of a block, which every read compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Tokens(Arc<[Token]>),
    Digest(Arc<[u8]>),
}

/// Computes the keys of one sequence, block by block.
///
/// # Examples
///
/// ```
/// # use radixkv_tiers::Layout;
/// let layout = Layout::new("llama-3-8b", "bf16", 2, 64)?;
/// // A sequence that grows: the chain goes on where it stopped.
/// let mut chain = layout.chain("tenant 7");
/// let first = chain.extend(&[1, 2]);
/// let second = chain.extend(&[3, 4, 5]);
/// assert_eq!([first, second].concat(), layout.blocks("tenant 7", &[1, 2, 3, 4]));
/// # Ok::<_, radixkv_tiers::LayoutError>(())
/// ```
#[derive(Debug, Clone)]
pub struct KeyChain {
    layout: LayoutDigest,
    block_size: usize,
    last: [u8; 32],
    /// The number of blocks so far.
    blocks: u32,
}

impl BlockKey {
    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Makes a key from its bytes, which another process may have sent.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses a key of 64 digits `0123456789abcdef`.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl Block {
    /// The block's key.
    pub fn key(&self) -> BlockKey {
        self.key
    }

    /// The block's own tokens, without those before it; empty if the block is named by a digest.
    pub fn tokens(&self) -> &[Token] {
        match &self.name {
            Name::Tokens(tokens) => tokens,
            Name::Digest(_) => &[],
        }
    }

    /// The digest, if the block is named by one.
    pub fn digest(&self) -> Option<&[u8]> {
        match &self.name {
            Name::Tokens(_) => None,
            Name::Digest(digest) => Some(digest),
        }
    }

    pub(crate) fn of_digest(layout: LayoutDigest, digest: &[u8]) -> Self {
        let key = Sha256::new().chain_update(DIGEST).chain_update(layout.0).chain_update(digest);
        let name = Name::Digest(digest.into());
        Self { key: BlockKey(key.finalize().into()), parent: None, number: 0, layout, name }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn layout(&self) -> LayoutDigest {
        self.layout
    }

    /// The key of the previous block in its sequence.
    pub(crate) fn parent(&self) -> Option<BlockKey> {
        self.parent
    }

    /// The number of blocks before it in its sequence.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl KeyChain {
    pub(crate) fn new(layout: &Layout, namespace: &[u8]) -> Self {
        let digest = layout.digest();
        let seed = Sha256::new().chain_update(NAMESPACE).chain_update(digest.0).chain_update(namespace);
        Self { layout: digest, block_size: layout.block_size(), last: seed.finalize().into(), blocks: 0 }
    }

    /// The whole blocks of the next tokens of the sequence; tokens after the last whole block are
    /// ignored.
    pub fn extend(&mut self, tokens: &[Token]) -> Vec<Block> {
        tokens.chunks_exact(self.block_size).map(|tokens| self.next(tokens)).collect()
    }

    fn next(&mut self, tokens: &[Token]) -> Block {
        let mut hash = Sha256::new().chain_update(BLOCK).chain_update(self.last);
        // Hashes 64 tokens at a time, which is efficient.
        for tokens in tokens.chunks(64) {
            let mut bytes = [0; 256];
            for (bytes, token) in bytes.chunks_exact_mut(4).zip(tokens) {
                bytes.copy_from_slice(&token.to_le_bytes());
            }
            hash.update(&bytes[..4 * tokens.len()]);
        }
        let (parent, number) = ((self.blocks > 0).then_some(BlockKey(self.last)), self.blocks);
        self.last = hash.finalize().into();
        self.blocks = self.blocks.saturating_add(1);
        Block { key: BlockKey(self.last), parent, number, layout: self.layout, name: Name::Tokens(tokens.into()) }
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockKey({self})")
    }
}

#[cfg(test)]
mod tests;
