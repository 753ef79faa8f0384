//! The input of vLLM's block hash, as canonical CBOR:
//! `(parent, (token, ...), (extra key, ...) or null)`.
//!
//! Written by hand, because a library's encoder took as long as the hash. Only heads of one to nine
//! bytes are needed.

use crate::event::Token;

/// The types of values, in the first three bits of a head.
const UNSIGNED: u8 = 0 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const NULL: u8 = 7 << 5 | 22;

/// Appends the hash input of a block to `bytes`.
pub(super) fn block<'a>(
    bytes: &mut Vec<u8>,
    parent: &[u8],
    tokens: &[Token],
    mut extra_keys: impl Iterator<Item = &'a str>,
) {
    bytes.reserve(32 + parent.len() + 5 * tokens.len());
    head(bytes, ARRAY, 3);
    head(bytes, BYTES, parent.len() as u64);
    bytes.extend_from_slice(parent);
    head(bytes, ARRAY, tokens.len() as u64);
    tokens.iter().for_each(|&token| head(bytes, UNSIGNED, token.into()));
    let keys: [Option<&str>; 2] = [extra_keys.next(), extra_keys.next()];
    match keys.iter().flatten().count() {
        0 => bytes.push(NULL),
        count => head(bytes, ARRAY, count as u64),
    }
    keys.into_iter().flatten().for_each(|key| text(bytes, key));
}

/// Appends a text.
pub(super) fn text(bytes: &mut Vec<u8>, text: &str) {
    head(bytes, TEXT, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// Appends a head: a type and a number, in as few bytes as possible.
fn head(bytes: &mut Vec<u8>, kind: u8, number: u64) {
    match number {
        0..=23 => bytes.push(kind | number as u8),
        24..=0xff => bytes.extend_from_slice(&[kind | 24, number as u8]),
        0x100..=0xffff => {
            let [a, b] = (number as u16).to_be_bytes();
            bytes.extend_from_slice(&[kind | 25, a, b]);
        }
        0x1_0000..=0xffff_ffff => {
            let [a, b, c, d] = (number as u32).to_be_bytes();
            bytes.extend_from_slice(&[kind | 26, a, b, c, d]);
        }
        _ => {
            bytes.push(kind | 27);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the standard (RFC 8949, appendix A).
    #[test]
    fn heads_are_as_short_as_they_can_be() {
        let written = |number: u64| {
            let mut bytes = Vec::new();
            head(&mut bytes, UNSIGNED, number);
            bytes
        };
        for (number, bytes) in [
            (0, &[0x00][..]),
            (23, &[0x17]),
            (24, &[0x18, 0x18]),
            (255, &[0x18, 0xff]),
            (256, &[0x19, 0x01, 0x00]),
            (65_535, &[0x19, 0xff, 0xff]),
            (65_536, &[0x1a, 0x00, 0x01, 0x00, 0x00]),
            (1_000_000_000_000, &[0x1b, 0x00, 0x00, 0x00, 0xe8, 0xd4, 0xa5, 0x10, 0x00]),
            (u64::MAX, &[0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(written(number), bytes, "{number}");
        }
    }
}
