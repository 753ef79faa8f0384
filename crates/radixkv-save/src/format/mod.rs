//! The file of a save.
//!
//! | part | has |
//! |---|---|
//! | header, [`header::BYTES`] | the version, the layout as text, bytes of a block, a number that no other save has |
//! | blocks | the bytes of the blocks, one after the other, in the order in which they were copied |
//! | records | namespaces, then runs, parents first: their tokens, and for each block its place and the checksum of its bytes; of a host tier pieces of sequences, and then blocks in the order of their uses |
//! | trailer, [`trailer::BYTES`] | where the records begin, and how many blocks there are |
//!
//! Numbers are little-endian, checksums are XXH3 of 64 bits. The header's checksum is the seed of all others: bytes of another
//! save do not pass. Header and trailer are needed; a record or a block that does not fit its checksum is left out.
//!
//! With an encrypted layout, blocks and records are encrypted each by itself, with nonce and tag
//! behind them; header and trailer are not.
//!
//! The file may be any bytes. No number in it is believed before it is compared with what the file has: it decides no
//! allocation beyond the file's length, no index and no loop.

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

/// The checksum of bytes, under the header's and a number of their own.
pub(crate) fn checksum(seed: u64, number: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes)
}
