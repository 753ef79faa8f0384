//! The trailer of a save: its last bytes, which locate its records.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `rkv save` |
//! | 8..16 | the offset of the records |
//! | 16..24 | length of the records in bytes |
//! | 24..32 | number of saved blocks |
//! | 32..40 | the time of the save, in milliseconds since 1970 |
//! | 40..48 | the checksum of all bytes before it |

use std::time::{Duration, SystemTime};

use super::checksum;
use super::cursor::Cursor;
use super::header::{self, Header};

pub(crate) const BYTES: usize = 48;
const MAGIC: &[u8; 8] = b"rkv save";
/// The part number in the trailer's checksum; no record has this number.
const NUMBER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// The offset of the records in the file.
    pub(crate) records_at: u64,
    pub(crate) records_bytes: u64,
    pub(crate) blocks: u64,
    /// In milliseconds since 1970.
    pub(crate) saved_at: u64,
}

impl Trailer {
    /// Number of saved blocks.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.blocks).unwrap_or(usize::MAX)
    }

    /// The time of the save.
    pub(crate) fn time(&self) -> SystemTime {
        let since = Duration::from_millis(self.saved_at);
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    pub(crate) fn write(&self, header: &Header) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.records_at, self.records_bytes, self.blocks, self.saved_at] {
            bytes.extend(number.to_le_bytes());
        }
        let sum = checksum(header.seed, NUMBER, &bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads the bytes at the end of a file of this length; `None` if they are not the trailer of
    /// the header's save.
    pub(crate) fn read(bytes: &[u8], header: &Header, file_bytes: u64) -> Option<Self> {
        let (before, sum) = bytes.split_last_chunk()?;
        if u64::from_le_bytes(*sum) != checksum(header.seed, NUMBER, before) {
            return None;
        }
        let mut cursor = Cursor(before);
        let magic = cursor.bytes(MAGIC.len())? == MAGIC;
        let [records_at, records_bytes, blocks, saved_at] =
            [cursor.u64()?, cursor.u64()?, cursor.u64()?, cursor.u64()?];
        let fits = records_at.checked_add(records_bytes)?.checked_add(BYTES as u64)? == file_bytes;
        let found = Self { records_at, records_bytes, blocks, saved_at };
        (magic && fits && records_at >= header::BYTES as u64).then_some(found)
    }
}
