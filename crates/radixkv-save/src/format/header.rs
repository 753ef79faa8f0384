//! The header of a save: its kind, and the meaning of its blocks' bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 0..12 | `radixkv-save`; `radixkv-host` for a host tier |
//! | 12..16 | the version |
//! | 16..24 | a number that no other save has |
//! | 24..32 | bytes of a block; 0 if only the tree was saved |
//! | 32..36 | length of the layout's text in bytes |
//! | 36.. | the layout, a line for each field; then zeros |
//! | 8184..8192 | the checksum of all bytes before it |

use radixkv_tiers::{Layout, LayoutDifference};

use super::cursor::Cursor;
use super::seal::Sealing;
use super::{VERSION, checksum};

/// Bytes of the header. The blocks begin after it, aligned to a disk's blocks.
pub(crate) const BYTES: usize = 8192;
/// The first bytes of a cache's save.
pub(crate) const CACHE: &Magic = b"radixkv-save";
/// The first bytes of a host tier's save.
pub(crate) const HOST: &Magic = b"radixkv-host";
const SUM_AT: usize = BYTES - 8;
const TEXT_AT: usize = 36;

/// The first bytes of a file: the kind of the save.
pub(crate) type Magic = [u8; 12];

/// The values of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) block_bytes: usize,
    /// The header's checksum, the seed of all others.
    pub(crate) seed: u64,
}

impl Header {
    /// Number of bytes that a block has in the file.
    pub(crate) fn stored_bytes(&self, sealing: &Sealing) -> u64 {
        if self.block_bytes == 0 { 0 } else { (self.block_bytes + sealing.extra_bytes()) as u64 }
    }
}

/// Why bytes are not the header of a save with this layout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    NotASave,
    Version(u32),
    Damaged,
    Field { field: String, stored: String, asked: String },
}

/// Makes a header; returns its values and its bytes.
pub(crate) fn write(magic: &Magic, layout: &Layout, block_bytes: usize, number: u64) -> (Header, Vec<u8>) {
    let text: String = layout.said().map(|(field, value)| format!("{field}: {value}\n")).collect();
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend(magic);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend((block_bytes as u64).to_le_bytes());
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    assert!(bytes.len() <= SUM_AT, "the bounds of a layout's names leave room");
    bytes.resize(SUM_AT, 0);
    let seed = checksum(0, 0, &bytes);
    bytes.extend(seed.to_le_bytes());
    (Header { block_bytes, seed }, bytes)
}

/// Compares a header, which may be any bytes, with a layout.
pub(crate) fn read(bytes: &[u8], magic: &Magic, layout: &Layout) -> Result<Header, Mismatch> {
    let mut cursor = Cursor(bytes);
    if cursor.bytes(magic.len()) != Some(magic) {
        return Err(Mismatch::NotASave);
    }
    match cursor.u32().ok_or(Mismatch::Damaged)? {
        VERSION => {}
        version => return Err(Mismatch::Version(version)),
    }
    let (before, sum) = bytes.split_last_chunk().ok_or(Mismatch::Damaged)?;
    let seed = checksum(0, 0, before);
    if bytes.len() != BYTES || u64::from_le_bytes(*sum) != seed {
        return Err(Mismatch::Damaged);
    }
    let (_number, block_bytes) = (cursor.u64(), cursor.size());
    let length = cursor.u32().ok_or(Mismatch::Damaged)?;
    let text = bytes.get(TEXT_AT..TEXT_AT + length as usize).and_then(|text| std::str::from_utf8(text).ok());
    compare(text.ok_or(Mismatch::Damaged)?, layout)?;
    // Only a tree, or blocks of the layout's size.
    let block_bytes = block_bytes.filter(|&bytes| bytes == 0 || bytes == layout.block_bytes());
    Ok(Header { block_bytes: block_bytes.ok_or(Mismatch::Damaged)?, seed })
}

fn compare(text: &str, layout: &Layout) -> Result<(), Mismatch> {
    layout.compare_lines(text.lines()).map_err(|difference| match difference {
        LayoutDifference::NotALayout => Mismatch::Damaged,
        LayoutDifference::Field { field, stored, asked } => Mismatch::Field { field: field.to_owned(), stored, asked },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("m", "bf16", 4, 32).unwrap().kv_layout("x".repeat(1024)).unwrap()
    }

    #[test]
    fn every_field_is_compared() {
        let (header, bytes) = write(CACHE, &layout(), 32, 7);
        assert_eq!((read(&bytes, CACHE, &layout()), bytes.len()), (Ok(header), BYTES));
        let others = [
            ("model", Layout::new("n", "bf16", 4, 32)),
            ("dtype", Layout::new("m", "fp8", 4, 32)),
            ("kv layout", layout().kv_layout("y")),
            ("tensor parallel", layout().tensor_parallel(0, 2)),
            ("block size", Layout::new("m", "bf16", 5, 32)),
            ("block bytes", Layout::new("m", "bf16", 4, 33)),
        ];
        for (differs, other) in others {
            let other = other.unwrap();
            // A new layout has no text about its arrangement.
            let other = if differs == "kv layout" { other } else { other.kv_layout("x".repeat(1024)).unwrap() };
            match read(&bytes, CACHE, &other) {
                Err(Mismatch::Field { field, stored, asked }) => assert!(field == differs && stored != asked),
                found => panic!("{differs}: {found:?}"),
            }
        }
    }

    #[test]
    fn no_cut_and_no_changed_byte_passes() {
        let (_, bytes) = write(CACHE, &layout(), 32, 7);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            let found = read(&other, CACHE, &layout()).unwrap_err();
            match at {
                0..12 => assert_eq!(found, Mismatch::NotASave),
                12..16 => assert!(matches!(found, Mismatch::Version(version) if version != VERSION)),
                _ => assert_eq!(found, Mismatch::Damaged),
            }
            assert!(read(&bytes[..at], CACHE, &layout()).is_err());
        }
        assert!(read(&[], CACHE, &layout()).is_err());
        assert_eq!(read(&bytes, HOST, &layout()), Err(Mismatch::NotASave));
    }
}
