//! Records: bytes with their length and a checksum.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | bytes behind the checksum |
//! | 4..12 | the checksum of the length and of those bytes, under the record's number |
//! | 12.. | the bytes |
//!
//! A record is named by its number, the place among the records: one that is damaged changes no other's name. When a length is
//! damaged, the end of the record is not known, and no record behind it passes.

use std::io::{self, Write};

use super::checksum;

const HEAD: usize = 12;

/// Writes records, one after the other.
pub(crate) struct Records<W> {
    to: W,
    seed: u64,
    next: u64,
    /// Bytes of the records written.
    pub(crate) bytes: u64,
}

impl<W: Write> Records<W> {
    pub(crate) fn new(to: W, seed: u64) -> Self {
        Self { to, seed, next: 0, bytes: 0 }
    }

    /// Writes a record; its number.
    pub(crate) fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let length = u32::try_from(content.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let number = self.next;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&sum_of(self.seed, number, content).to_le_bytes())?;
        self.to.write_all(content)?;
        self.next += 1;
        self.bytes += (HEAD + content.len()) as u64;
        Ok(number as usize)
    }

    pub(crate) fn into_inner(self) -> W {
        self.to
    }
}

fn sum_of(seed: u64, number: u64, content: &[u8]) -> u64 {
    checksum(seed, number, content) ^ content.len() as u64
}

/// The contents of the records in `bytes`, by their numbers; nothing for one that is damaged.
pub(crate) fn records(mut bytes: &[u8], seed: u64) -> impl Iterator<Item = Option<&[u8]>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let Some((content, rest)) = rest.split_at_checked(length) else {
            bytes = &[];
            return Some(None);
        };
        bytes = rest;
        let whole = sum_of(seed, next, content) == u64::from_le_bytes(*sum);
        next += 1;
        Some(whole.then_some(content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_record_is_left_out_alone() {
        let mut written = Records::new(Vec::new(), 5);
        let contents: [&[u8]; 4] = [b"first", b"", b"second", b"third"];
        for (number, content) in contents.into_iter().enumerate() {
            assert_eq!(written.write(content).unwrap(), number);
        }
        let (length, bytes) = (written.bytes as usize, written.into_inner());
        assert_eq!(length, bytes.len());
        let found: Vec<_> = records(&bytes, 5).collect();
        assert_eq!(found, contents.map(Some));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x11;
            let found: Vec<_> = records(&other, 5).collect();
            assert!(found.iter().zip(contents).all(|(found, content)| found.is_none_or(|found| found == content)));
            assert!(found.iter().filter(|found| found.is_some()).count() < 4);
            assert!(records(&bytes[..at], 5).flatten().count() < 4);
        }
        // Under another seed, or in another place, none passes.
        assert!(records(&bytes, 6).all(|found| found.is_none()));
        assert!(records(&bytes[17..], 5).all(|found| found.is_none()));
    }
}
