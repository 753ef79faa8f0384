//! Errors of decoding.

use super::{MAX_HASHES, MAX_PAYLOAD};

/// Why a payload is not a batch. Nothing of it is applied; the batch counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload is too long.
    #[error("the payload has {bytes} bytes, at most {MAX_PAYLOAD} are read")]
    TooLong {
        /// Bytes of the payload.
        bytes: usize,
    },
    /// The payload ends before its announced end.
    #[error("the payload ends at byte {at}, before its announced end")]
    Truncated {
        /// The offset of the end in bytes.
        at: usize,
    },
    /// A value has another type than expected.
    #[error("expected {wanted} at byte {at}")]
    Unexpected {
        /// The expected value.
        wanted: &'static str,
        /// The offset of the value in bytes.
        at: usize,
    },
    /// A required field is missing.
    #[error("an event lacks {field}")]
    Missing {
        /// The name of the field.
        field: &'static str,
    },
    /// An event has too many hashes.
    #[error("an event has {hashes} hashes, at most {MAX_HASHES} are read")]
    TooManyHashes {
        /// Hashes of the event.
        hashes: usize,
    },
    /// The number of tokens does not fit the event's blocks.
    #[error("{tokens} tokens do not match {blocks} blocks of {block_size}")]
    Tokens {
        /// Tokens of the event.
        tokens: usize,
        /// Blocks of the event.
        blocks: usize,
        /// Tokens per block.
        block_size: u32,
    },
    /// Values are nested too deeply.
    #[error("values are nested too deeply at byte {at}")]
    TooDeep {
        /// The offset of the value in bytes.
        at: usize,
    },
    /// Bytes follow the batch.
    #[error("{bytes} trailing bytes after the batch")]
    Trailing {
        /// The number of those bytes.
        bytes: usize,
    },
}
