//! What verifies the parts of a save, and encrypts them if the layout says so.
//!
//! A block or a record is encrypted first: its checksum is of what the file has. What is encrypted
//! belongs to its layout, its save, its kind and its number, so that no part passes for another
//! one.

use std::io;

use radixkv_tiers::Layout;

use super::checksum;

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Block = 1,
    Record = 2,
}

/// The checksums and the key of one save.
#[derive(Debug, Clone)]
pub(crate) struct Sealing {
    layout: Layout,
    /// The header's checksum, from which all others follow.
    seed: u64,
}

impl Sealing {
    pub(crate) fn new(layout: &Layout, seed: u64) -> Self {
        Self { layout: layout.clone(), seed }
    }

    /// Bytes that a part has more in the file.
    pub(crate) fn extra_bytes(&self) -> usize {
        self.layout.seal_bytes()
    }

    /// The checksum of a part as it is in the file.
    pub(crate) fn sum(&self, number: u64, bytes: &[u8]) -> u64 {
        checksum(self.seed, number, bytes)
    }

    /// Encrypts a part, if the layout says so.
    pub(crate) fn seal(&self, part: Part, number: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.layout.encrypt(&self.associated(part, number), bytes).map_err(io::Error::other)
    }

    /// Decrypts a part; false if it was encrypted with another key.
    pub(crate) fn open(&self, part: Part, number: u64, bytes: &mut Vec<u8>) -> bool {
        self.layout.decrypt(&self.associated(part, number), bytes).is_ok()
    }

    fn associated(&self, part: Part, number: u64) -> [u8; 17] {
        let mut associated = [part as u8; 17];
        associated[1..9].copy_from_slice(&self.seed.to_le_bytes());
        associated[9..].copy_from_slice(&number.to_le_bytes());
        associated
    }
}
