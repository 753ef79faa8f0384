//! The names of blocks in events: a hash of all tokens up to the end of the block.

mod cbor;
mod scheme;

pub use scheme::HashScheme;
pub(crate) use scheme::Link;
#[cfg(feature = "index")]
pub(crate) use scheme::{of_first, of_tokens};

use std::fmt;

/// The name of a block in events: a number of 64 bits, or a digest.
///
/// A non-negative number from a publisher of signed numbers is stored as
/// [`Unsigned`](Self::Unsigned): both have the same bytes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockHash {
    /// A number from zero on.
    Unsigned(u64),
    /// A number below zero, from publishers of signed numbers (SGLang).
    Signed(i64),
    /// A digest.
    Digest(Digest),
}

impl BlockHash {
    /// Makes a name from a signed number; if it is not negative, [`Unsigned`](Self::Unsigned).
    pub fn from_signed(number: i64) -> Self {
        u64::try_from(number).map_or(Self::Signed(number), Self::Unsigned)
    }

    /// The 64-bit form of the name: the number in two's complement, or the last eight bytes of the
    /// digest (vLLM's rule).
    pub fn bits(&self) -> u64 {
        match self {
            Self::Unsigned(number) => *number,
            Self::Signed(number) => number.cast_unsigned(),
            Self::Digest(digest) => {
                digest.as_bytes().iter().rev().take(8).rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
            }
        }
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => write!(f, "{number:#018x}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Digest(digest) => digest.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// A digest of at most 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    bytes: [u8; Self::LONGEST],
    length: u8,
}

impl Digest {
    /// Length in bytes of the longest digest: SHA-256.
    pub const LONGEST: usize = 32;

    /// Makes a digest from its bytes; `None` if there are more than [`LONGEST`](Self::LONGEST).
    pub fn new(digest: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::LONGEST];
        bytes.get_mut(..digest.len())?.copy_from_slice(digest);
        Some(Self { bytes, length: digest.len() as u8 })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_64_bits() {
        assert_eq!(BlockHash::from_signed(7), BlockHash::Unsigned(7));
        assert_eq!(BlockHash::from_signed(-1).bits(), u64::MAX);
        let digest = |bytes: &[u8]| BlockHash::Digest(Digest::new(bytes).unwrap()).bits();
        assert_eq!(digest(&[1, 2]), 0x0102);
        assert_eq!(digest(&[9, 1, 2, 3, 4, 5, 6, 7, 8]), 0x0102_0304_0506_0708);
        assert_eq!(Digest::new(&[0; 33]), None);
    }
}
