//! The content of a record of a host tier's save: a namespace, a piece of a sequence, or blocks.

use radixkv::Token;

use super::cursor::Cursor;
use super::entry::{Place, SavedNamespace};

/// Kinds of records; namespaces, which `entry` defines, have 1.
const PIECE: u8 = 3;
const HELD: u8 = 4;

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostEntry {
    Namespace(SavedNamespace),
    Piece(SavedPiece),
    Held(SavedHeld),
}

/// A piece of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedPiece {
    /// The number of its namespace's record.
    pub(crate) namespace: usize,
    /// The number of its parent piece's record.
    pub(crate) parent: Option<usize>,
    /// Number of tokens before it.
    pub(crate) start: usize,
    pub(crate) tokens: Vec<Token>,
}

/// Blocks of a sequence; the first one was used last. The blocks of earlier records were used
/// before all of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedHeld {
    /// The number of the record of the piece in which the blocks end.
    pub(crate) piece: usize,
    /// The index of the first block in the sequence.
    pub(crate) first: usize,
    pub(crate) blocks: Vec<Place>,
}

impl SavedPiece {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![PIECE];
        // The parent's number plus one; 0 for none.
        let parent = self.parent.map_or(0, |parent| parent as u64 + 1);
        for number in [self.namespace as u64, parent, self.start as u64] {
            bytes.extend(number.to_le_bytes());
        }
        self.tokens.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        bytes
    }

    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let (namespace, parent, start) = (cursor.size()?, cursor.size()?, cursor.size()?);
        let chunks = cursor.0.chunks_exact(4);
        let tokens = chunks.clone().map(|token| u32::from_le_bytes([token[0], token[1], token[2], token[3]])).collect();
        cursor.0 = chunks.remainder();
        Some(Self { namespace, parent: parent.checked_sub(1), start, tokens })
    }
}

impl SavedHeld {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![HELD];
        for number in [self.piece as u64, self.first as u64] {
            bytes.extend(number.to_le_bytes());
        }
        for place in &self.blocks {
            bytes.extend(place.number.to_le_bytes());
            bytes.extend(place.sum.to_le_bytes());
        }
        bytes
    }

    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let (piece, first) = (cursor.size()?, cursor.size()?);
        let count = cursor.0.len() / 16;
        let places = (0..count).map(|_| Some(Place { number: cursor.u64()?, sum: cursor.u64()? }));
        let blocks = places.collect::<Option<_>>()?;
        Some(Self { piece, first, blocks })
    }
}

impl HostEntry {
    /// Reads the content of a record; `None` if this version writes no such record.
    pub(crate) fn read(content: &[u8]) -> Option<Self> {
        if let Some(namespace) = SavedNamespace::of_record(content) {
            return Some(Self::Namespace(namespace));
        }
        let mut cursor = Cursor(content);
        let entry = match cursor.u8()? {
            PIECE => Self::Piece(SavedPiece::read(&mut cursor)?),
            HELD => Self::Held(SavedHeld::read(&mut cursor)?),
            _ => return None,
        };
        cursor.0.is_empty().then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use radixkv::Keys;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_no_cut_of_it() {
        let namespace = SavedNamespace { parts: vec!["tenant".into()], keys: Keys::Bigrams };
        let piece = SavedPiece { namespace: 3, parent: Some(0), start: 16, tokens: vec![1, 2, u32::MAX] };
        let held = SavedHeld { piece: 7, first: 2, blocks: vec![Place { number: 1, sum: u64::MAX }; 2] };
        let entries = [
            (namespace.write(), HostEntry::Namespace(namespace)),
            (piece.write(), HostEntry::Piece(piece)),
            (held.write(), HostEntry::Held(held)),
        ];
        for (bytes, entry) in entries {
            assert_eq!(HostEntry::read(&bytes), Some(entry));
            for cut in 0..bytes.len() {
                let shorter = HostEntry::read(&bytes[..cut]);
                let is_one = match shorter {
                    None => true,
                    Some(HostEntry::Namespace(_)) => false,
                    Some(HostEntry::Piece(piece)) => piece.tokens.len() < 3,
                    Some(HostEntry::Held(held)) => held.blocks.len() < 2,
                };
                assert!(is_one, "{cut} of {bytes:?}");
            }
        }
    }
}
