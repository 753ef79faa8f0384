//! Verification of the parts of a save, and their encryption if the layout says so.
//!
//! A block or a record is encrypted before its checksum is computed. Encrypted bytes are bound to
//! their layout, their save, their kind and their number, so that no part can be taken for another
//! one.

use std::io;

use radixkv_tiers::Layout;

use super::checksum;

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Block = 1,
    Record = 2,
}

/// The checksums and the key of one save.
#[derive(Debug, Clone)]
pub(crate) struct Sealing {
    layout: Layout,
    /// The header's checksum, the seed of all others.
    seed: u64,
}

impl Sealing {
    pub(crate) fn new(layout: &Layout, seed: u64) -> Self {
        Self { layout: layout.clone(), seed }
    }

    /// The number of bytes that encryption adds to a part in the file.
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

    /// Decrypts a part; returns false if it has another key, was changed, or is a different part.
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
