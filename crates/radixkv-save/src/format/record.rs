//! Records: bytes with their length and a checksum, written by a save and read when it is opened.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | number of bytes after the checksum |
//! | 4..12 | the checksum of the length and of those bytes, with the record's number |
//! | 12.. | the bytes |
//!
//! A record is identified by its number, its position among the records: a damaged record does not
//! change the numbers of the others. If a length is damaged, the end of the record is unknown, and
//! all later records are rejected.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use super::seal::{Part, Sealing};

const HEAD: usize = 12;

/// Writes records.
pub(crate) struct Records<W> {
    to: W,
    sealing: Sealing,
    next: u64,
    /// Number of bytes of the written records.
    pub(crate) bytes: u64,
}

impl<W: Write> Records<W> {
    pub(crate) fn new(to: W, sealing: Sealing) -> Self {
        Self { to, sealing, next: 0, bytes: 0 }
    }

    /// Writes a record; returns its number.
    pub(crate) fn write(&mut self, mut content: Vec<u8>) -> io::Result<usize> {
        self.sealing.seal(Part::Record, self.next, &mut content)?;
        let length = u32::try_from(content.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let number = self.next;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&sum_of(&self.sealing, number, &content).to_le_bytes())?;
        self.to.write_all(&content)?;
        self.next += 1;
        self.bytes += (HEAD + content.len()) as u64;
        Ok(number as usize)
    }

    pub(crate) fn into_inner(self) -> W {
        self.to
    }
}

fn sum_of(sealing: &Sealing, number: u64, content: &[u8]) -> u64 {
    sealing.sum(number, content) ^ content.len() as u64
}

/// The contents of the records in `bytes`, by their numbers; `None` for a record that is damaged or
/// was encrypted with another key.
pub(crate) fn records<'a>(mut bytes: &'a [u8], sealing: &'a Sealing) -> impl Iterator<Item = Option<Cow<'a, [u8]>>> {
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
        let (number, is_whole) = (next, sum_of(sealing, next, content) == u64::from_le_bytes(*sum));
        next += 1;
        Some(is_whole.then(|| opened(sealing, number, content)).flatten())
    })
}

/// Whether the first record matches its checksum but cannot be decrypted: it has another key.
pub(crate) fn is_of_another_key(bytes: &[u8], sealing: &Sealing) -> bool {
    let first = bytes.split_first_chunk::<4>().and_then(|(length, rest)| {
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let content = rest.get(..u32::from_le_bytes(*length) as usize)?;
        (sum_of(sealing, 0, content) == u64::from_le_bytes(*sum)).then_some(content)
    });
    first.is_some_and(|content| opened(sealing, 0, content).is_none())
}

fn opened<'a>(sealing: &Sealing, number: u64, content: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if sealing.extra_bytes() == 0 {
        return Some(Cow::Borrowed(content));
    }
    let mut content = content.to_vec();
    sealing.open(Part::Record, number, &mut content).then_some(Cow::Owned(content))
}

#[cfg(test)]
mod tests {
    use radixkv_tiers::Layout;

    use super::*;

    fn sealing(seed: u64) -> Sealing {
        Sealing::new(&Layout::new("m", "bf16", 1, 1).unwrap(), seed)
    }

    #[test]
    fn a_damaged_record_is_left_out_alone() {
        let mut written = Records::new(Vec::new(), sealing(5));
        let five = sealing(5);
        let contents: [&[u8]; 4] = [b"first", b"", b"second", b"third"];
        for (number, content) in contents.into_iter().enumerate() {
            assert_eq!(written.write(content.to_vec()).unwrap(), number);
        }
        let (length, bytes) = (written.bytes as usize, written.into_inner());
        assert_eq!(length, bytes.len());
        let found: Vec<_> = records(&bytes, &five).collect();
        assert_eq!(found, contents.map(|content| Some(content.into())));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x11;
            let found: Vec<_> = records(&other, &five).collect();
            let mut pairs = found.iter().zip(contents);
            assert!(pairs.all(|(found, content)| found.as_ref().is_none_or(|found| **found == *content)));
            assert!(found.iter().filter(|found| found.is_some()).count() < 4);
            assert!(records(&bytes[..at], &five).flatten().count() < 4);
        }
        // Under another seed, or in another place, none passes.
        assert!(records(&bytes, &sealing(6)).all(|found| found.is_none()));
        assert!(records(&bytes[17..], &five).all(|found| found.is_none()));
    }
}
