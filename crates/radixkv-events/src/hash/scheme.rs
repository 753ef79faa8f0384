//! The hash chains of vLLM, SGLang and routers.

use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

use super::{BlockHash, Digest, cbor};
use crate::event::{Scope, Token};

/// The seed of routers' hash chains.
const ROUTERS_SEED: u64 = 1337;

/// The hash scheme that names blocks. A block's hash covers the tokens from the start of its
/// sequence to its end, and its [`Scope`].
///
/// | scheme | a block's hash | its name |
/// |---|---|---|
/// | [`sha256_cbor`](Self::sha256_cbor) | SHA-256 of parent, tokens and extra keys as CBOR (vLLM) | the last 64 bits |
/// | the same with [`digests`](Self::digests) | the same | all of it |
/// | [`sglang`](Self::sglang) | SHA-256 of parent and tokens (SGLang) | the first 64 bits, signed |
/// | [`xxh3`](Self::xxh3) | XXH3 of the parent's hash and of that of the tokens | 64 bits |
///
/// The hashes name blocks; they do not prove which tokens a block holds. Only whole 256-bit digests
/// are safe from deliberate collisions.
///
/// # Examples
///
/// ```
/// use radixkv_events::{BlockHash, HashScheme, Scope};
///
/// let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
/// let hashes = HashScheme::xxh3().chain(&Scope::default(), &tokens, 4);
/// assert_eq!(hashes, [BlockHash::Unsigned(14643705804678351452), BlockHash::Unsigned(4945711292740353085)]);
/// assert_ne!(hashes, HashScheme::xxh3().chain(&Scope::salted("a tenant"), &tokens, 4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashScheme(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sha256Cbor { root: [u8; 32], is_whole: bool },
    Sglang,
    Xxh3 { seed: u64 },
}

/// The whole hash of a block, which is part of the input of the next block's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link([u8; 32]);

impl HashScheme {
    /// vLLM's `sha256_cbor`. The seed corresponds to `PYTHONHASHSEED` of vLLM: workers with the
    /// same seed have the same hashes.
    ///
    /// As in vLLM, a salt and an adapter with the same text give the first block the same hash:
    /// choose salts that are not names of adapters.
    pub fn sha256_cbor(seed: &str) -> Self {
        let mut bytes = Vec::new();
        cbor::text(&mut bytes, seed);
        Self(Kind::Sha256Cbor { root: Sha256::digest(bytes).into(), is_whole: false })
    }

    /// SGLang's chain. SGLang has no scopes; here, the chain of a scope begins with a digest of the
    /// scope.
    pub fn sglang() -> Self {
        Self(Kind::Sglang)
    }

    /// A chain of 64-bit XXH3 hashes, with the seed that routers use. The chain of a scope begins
    /// with a hash of the scope.
    pub fn xxh3() -> Self {
        Self(Kind::Xxh3 { seed: ROUTERS_SEED })
    }

    /// Uses whole digests as names in [`sha256_cbor`](Self::sha256_cbor). No effect on other
    /// schemes.
    pub fn digests(self) -> Self {
        match self.0 {
            Kind::Sha256Cbor { root, .. } => Self(Kind::Sha256Cbor { root, is_whole: true }),
            _ => self,
        }
    }

    /// Returns the names of the whole blocks of a sequence.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` is zero.
    pub fn chain(&self, scope: &Scope, tokens: &[Token], block_size: usize) -> Vec<BlockHash> {
        let (mut parent, mut bytes) = (None, Vec::new());
        let blocks = tokens.chunks_exact(block_size).map(|block| {
            let link = self.next(scope, parent.as_ref(), block, &mut bytes);
            parent = Some(link);
            self.name(&link)
        });
        blocks.collect()
    }

    /// Computes the hash of the block after `parent`, or of the first block of a scope. `bytes` is
    /// a buffer for the hash's input.
    pub(crate) fn next(&self, scope: &Scope, parent: Option<&Link>, block: &[Token], bytes: &mut Vec<u8>) -> Link {
        bytes.clear();
        match self.0 {
            Kind::Sha256Cbor { root, .. } => {
                let before = parent.map_or(&root, |link| &link.0);
                cbor::block(bytes, before, block, scope.extra_keys(parent.is_none()));
                Link(Sha256::digest(bytes).into())
            }
            Kind::Sglang => {
                match parent {
                    Some(link) => bytes.extend(link.0),
                    None if scope.is_plain() => {}
                    None => bytes.extend(Sha256::digest(scope_bytes(scope))),
                }
                append(bytes, block);
                Link(Sha256::digest(bytes).into())
            }
            Kind::Xxh3 { seed } => {
                append(bytes, block);
                let local = XxHash3_64::oneshot_with_seed(seed, bytes);
                let before = match parent {
                    Some(link) => Some(link.head()),
                    None if scope.is_plain() => None,
                    None => Some(XxHash3_64::oneshot_with_seed(seed, &scope_bytes(scope))),
                };
                Link::from_head(before.map_or(local, |before| xxh3_of_pair(seed, before, local)))
            }
        }
    }

    /// The name in events of a block with this hash.
    pub(crate) fn name(&self, link: &Link) -> BlockHash {
        let ends = |at: usize| u64::from_be_bytes(link.0[at..at + 8].try_into().expect("eight bytes"));
        match self.0 {
            Kind::Sha256Cbor { is_whole: true, .. } => {
                BlockHash::Digest(Digest::new(&link.0).expect("a digest of 32 bytes"))
            }
            Kind::Sha256Cbor { is_whole: false, .. } => BlockHash::Unsigned(ends(24)),
            Kind::Sglang => BlockHash::from_signed(ends(0).cast_signed()),
            Kind::Xxh3 { .. } => BlockHash::Unsigned(link.head()),
        }
    }
}

impl Link {
    fn head(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"))
    }

    fn from_head(head: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&head.to_le_bytes());
        Self(bytes)
    }
}

/// The hash of a block's own tokens, independent of the blocks before it. `bytes` is a buffer for
/// the hash's input.
#[cfg(feature = "index")]
pub(crate) fn of_tokens(block: &[Token], bytes: &mut Vec<u8>) -> u64 {
    bytes.clear();
    append(bytes, block);
    XxHash3_64::oneshot_with_seed(ROUTERS_SEED, bytes)
}

/// The hash of the first block of a sequence: its tokens and its scope.
#[cfg(feature = "index")]
pub(crate) fn of_first(scope: &Scope, block: &[Token], bytes: &mut Vec<u8>) -> u64 {
    HashScheme::xxh3().next(scope, None, block, bytes).head()
}

/// Appends tokens, each as four bytes, little-endian.
fn append(bytes: &mut Vec<u8>, block: &[Token]) {
    // Allocates once: a capacity check for each token costs more than the hash.
    let at = bytes.len();
    bytes.resize(at + 4 * block.len(), 0);
    bytes[at..].chunks_exact_mut(4).zip(block).for_each(|(to, token)| to.copy_from_slice(&token.to_le_bytes()));
}

fn xxh3_of_pair(seed: u64, before: u64, local: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&before.to_le_bytes());
    bytes[8..].copy_from_slice(&local.to_le_bytes());
    XxHash3_64::oneshot_with_seed(seed, &bytes)
}

/// Encodes a scope as bytes that no other scope has.
fn scope_bytes(scope: &Scope) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [&scope.lora_name, &scope.cache_salt] {
        bytes.push(u8::from(part.is_some()));
        cbor::text(&mut bytes, part.as_deref().unwrap_or(""));
    }
    bytes
}
