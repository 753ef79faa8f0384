//! Objects: stored blocks with a header, tokens or digest, keys and values. `worker` encodes and
//! verifies them; stores keep them as bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `radixkvB` |
//! | 8..12 | version of the format |
//! | 12..16 | tokens of a block |
//! | 16..48 | digest of the layout |
//! | 48..80 | key |
//! | 80..88 | bytes of keys and values |
//! | 88..96 | when the block expires, in milliseconds since 1970; 0: never |
//! | 96..104 | checksum: XXH3 of all other bytes |
//! | 104.. | tokens or digest, then keys and values; or encrypted keys and values, nonce and tag |
//!
//! Numbers are little-endian. The checksum is computed by three calls of XXH3 (64 bits): over the
//! keys and values; over the tokens or the digest, with the first result as the seed; over the 96
//! bytes before the checksum, with the second result as the seed.
//!
//! All objects of a layout have the same length. A read object may be any bytes: nothing is trusted
//! before it is compared, and no length in it decides an allocation or an index.

use std::borrow::Cow;

use twox_hash::XxHash3_64;

use crate::{
    key::{Block, Name, Token},
    layout::{FORMAT, Layout, LayoutDigest},
    tier::Failure,
};

pub(crate) const HEADER_BYTES: usize = 104;
const CHECKSUM_AT: usize = 96;
const MAGIC: &[u8; 8] = b"radixkvB";

/// Why a requested block was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// The store has nothing under the key.
    #[error("absent")]
    Absent,
    /// The block has expired.
    #[error("expired")]
    Expired,
    /// The object's length is not the one it states, or not that of the layout's objects.
    #[error("torn: {bytes} bytes instead of {expected}")]
    Torn {
        /// Bytes found.
        bytes: usize,
        /// Bytes of an object of the layout.
        expected: usize,
    },
    /// The object was encrypted with another key, or for another block. It is kept.
    #[error("the object was encrypted with another key")]
    Undecryptable,
    /// The object was changed since it was written.
    #[error("the checksum does not match")]
    WrongChecksum,
    /// Another program wrote the object.
    #[error("not an object of radixkv-tiers")]
    NotAnObject,
    /// Another version of this package wrote the object.
    #[error("the object has format {version}, this version reads format {FORMAT}")]
    UnknownVersion {
        /// The version found.
        version: u32,
    },
    /// The object has another model, element type, arrangement, rank or size.
    #[error("the object has another layout")]
    WrongLayout,
    /// The object is stored under a key that is not its own.
    #[error("the object has another key")]
    WrongKey,
    /// The object has the key, but other tokens or another digest.
    #[error("the object has other tokens or another digest")]
    WrongTokens,
}

impl Miss {
    /// Whether the object is useless to all readers: then it is removed, and the block can be put
    /// again.
    pub(crate) fn is_for_good(self) -> bool {
        !matches!(self, Self::Absent | Self::Undecryptable)
    }
}

/// Writes an object into `out`, which has [`Layout::object_bytes`].
///
/// # Panics
///
/// If the lengths do not fit the layout: callers have compared them.
pub(crate) fn encode(
    layout: &Layout,
    block: &Block,
    expires: u64,
    payload: &[u8],
    out: &mut [u8],
) -> Result<(), Failure> {
    let (head, rest) = out.split_at_mut(HEADER_BYTES);
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..16].copy_from_slice(&(layout.block_size() as u32).to_le_bytes());
    head[16..48].copy_from_slice(&block.layout().0);
    head[48..80].copy_from_slice(block.key().as_bytes());
    head[80..88].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    head[88..96].copy_from_slice(&expires.to_le_bytes());
    let (name_bytes, payload_bytes) = rest.split_at_mut(layout.name_bytes());
    if let Some(key) = layout.seal() {
        let (bytes, seal) = payload_bytes.split_at_mut(payload.len());
        bytes.copy_from_slice(payload);
        let sealed = key.seal(&associated(&head[..CHECKSUM_AT], block), bytes);
        seal.copy_from_slice(&sealed.map_err(|_| Failure::KeyExhausted)?);
    } else {
        write_name(block.name(), name_bytes);
        payload_bytes.copy_from_slice(payload);
    }
    // Computed over the copy, so that the object is consistent even if the payload changes
    // meanwhile.
    let sum = checksum(&head[..CHECKSUM_AT], name_bytes, payload_bytes);
    head[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Verifies the object that was found under a block's key, and returns its keys and values.
pub(crate) fn verify<'a>(object: &'a [u8], layout: &Layout, block: &Block, now: u64) -> Result<Cow<'a, [u8]>, Miss> {
    let expected = layout.object_bytes();
    let torn = Miss::Torn { bytes: object.len(), expected };
    let (head, rest) = object.split_first_chunk::<HEADER_BYTES>().ok_or(torn)?;
    let head = Head(head);
    if head.field::<8>(0) != *MAGIC {
        return Err(Miss::NotAnObject);
    }
    match u32::from_le_bytes(head.field(8)) {
        FORMAT => {}
        version => return Err(Miss::UnknownVersion { version }),
    }
    if LayoutDigest(head.field(16)) != block.layout() {
        return Err(Miss::WrongLayout);
    }
    let lengths = (u32::from_le_bytes(head.field(12)) as usize, u64::from_le_bytes(head.field(80)));
    if lengths != (layout.block_size(), layout.block_bytes() as u64) || object.len() != expected {
        return Err(torn);
    }
    let (name, payload) = rest.split_at(layout.name_bytes());
    if checksum(&head.0[..CHECKSUM_AT], name, payload) != u64::from_le_bytes(head.field(CHECKSUM_AT)) {
        return Err(Miss::WrongChecksum);
    }
    if head.field(48) != *block.key().as_bytes() {
        return Err(Miss::WrongKey);
    }
    if layout.seal().is_none() && !is_named(name, block.name()) {
        return Err(Miss::WrongTokens);
    }
    let expires = u64::from_le_bytes(head.field(88));
    if expires != 0 && expires <= now {
        return Err(Miss::Expired);
    }
    let Some(key) = layout.seal() else { return Ok(Cow::Borrowed(payload)) };
    let (bytes, seal) = payload.split_last_chunk().ok_or(torn)?;
    let mut bytes = bytes.to_vec();
    let associated = associated(&head.0[..CHECKSUM_AT], block);
    key.open(&associated, &mut bytes, seal).map_err(|_| Miss::Undecryptable)?;
    Ok(Cow::Owned(bytes))
}

/// The associated data of an encrypted block: the header, and the tokens or the digest, which the
/// object does not contain.
fn associated(head: &[u8], block: &Block) -> Vec<u8> {
    let mut associated = vec![0; head.len() + 4 * block.tokens().len() + block.digest().map_or(0, <[u8]>::len)];
    let (head_bytes, name_bytes) = associated.split_at_mut(head.len());
    head_bytes.copy_from_slice(head);
    write_name(block.name(), name_bytes);
    associated
}

fn write_name(name: &Name, bytes: &mut [u8]) {
    match name {
        Name::Tokens(tokens) => {
            for (bytes, token) in bytes.chunks_exact_mut(4).zip(tokens.iter()) {
                bytes.copy_from_slice(&token.to_le_bytes());
            }
        }
        Name::Digest(digest) => bytes.copy_from_slice(digest),
    }
}

/// Whether the bytes are a block's tokens or its digest.
fn is_named(bytes: &[u8], name: &Name) -> bool {
    match name {
        Name::Tokens(tokens) => {
            let stored = bytes.chunks_exact(4);
            let stored = stored.map(|bytes| Token::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            stored.eq(tokens.iter().copied())
        }
        Name::Digest(digest) => bytes == &digest[..],
    }
}

/// When the object that begins with these bytes expires, in milliseconds since 1970; `None` if they
/// do not begin an object.
#[cfg(feature = "object-store")]
pub(crate) fn expires(object: &[u8]) -> Option<u64> {
    let head = Head(object.first_chunk::<HEADER_BYTES>()?);
    (head.field::<8>(0) == *MAGIC).then(|| u64::from_le_bytes(head.field(88)))
}

/// The fixed part of an object.
struct Head<'a>(&'a [u8; HEADER_BYTES]);

impl Head<'_> {
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.0[at..at + N]);
        field
    }
}

fn checksum(head: &[u8], name: &[u8], payload: &[u8]) -> u64 {
    let of_payload = XxHash3_64::oneshot(payload);
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(of_payload, name), head)
}

#[cfg(test)]
mod tests;
