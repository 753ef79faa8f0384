//! The format of a save's file.
//!
//! | part | contents |
//! |---|---|
//! | header, [`header::BYTES`] | the version, the layout as text, the number of bytes of a block, a number that no other save has |
//! | blocks | the bytes of the blocks, in the order in which they were copied |
//! | records | namespaces, then runs, parents first: their tokens, and for each block its place and the checksum of its bytes; for a host tier, pieces of sequences, then blocks in the order of their uses |
//! | trailer, [`trailer::BYTES`] | the offset of the records, and the number of blocks |
//!
//! Numbers are little-endian, checksums are XXH3 of 64 bits. The header's checksum is the seed of
//! all others, so that bytes of another save do not match. A save with a damaged header or trailer
//! is refused; a damaged record or block is left out.
//!
//! With an encrypted layout, each block and each record is encrypted separately, followed by its
//! nonce and tag; header and trailer are not encrypted.
//!
//! The file may be any bytes. Every number in it is compared with the file's size before it is
//! used: none decides an allocation beyond the file's length, an index or a loop.

mod cursor;
pub(crate) mod entry;
pub(crate) mod header;
pub(crate) mod host_entry;
pub(crate) mod record;
pub(crate) mod seal;
pub(crate) mod trailer;

use twox_hash::XxHash3_64;

/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;

/// The checksum of a part's bytes, seeded by the header's checksum and the part's number.
pub(crate) fn checksum(seed: u64, number: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes)
}
