//! Why bytes are no batch.

use super::{MAX_HASHES, MAX_PAYLOAD};

/// Why a payload is no batch. Nothing of it was taken over: the batch counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The publisher has to send smaller batches.
    #[error("{bytes} bytes, {MAX_PAYLOAD} at most")]
    TooLong {
        /// Bytes of the payload.
        bytes: usize,
    },
    /// The payload ends before what it announces.
    #[error("ends at byte {at}, before what it announces")]
    Truncated {
        /// Where it ends.
        at: usize,
    },
    /// Something else stands where a value of some type has to.
    #[error("no {wanted} at byte {at}")]
    Unexpected {
        /// What has to stand there.
        wanted: &'static str,
        /// Where.
        at: usize,
    },
    /// A field without which the event means nothing.
    #[error("an event without {field}")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// One event has more hashes than are read.
    #[error("{hashes} hashes in one event, {MAX_HASHES} at most")]
    TooManyHashes {
        /// Hashes of the event.
        hashes: usize,
    },
    /// The tokens of an event are not those of its blocks.
    #[error("{tokens} tokens for {blocks} blocks of {block_size}")]
    Tokens {
        /// Tokens of the event.
        tokens: usize,
        /// Blocks of the event.
        blocks: usize,
        /// Tokens per block.
        block_size: u32,
    },
    /// Values within values within values.
    #[error("values are nested too deeply at byte {at}")]
    TooDeep {
        /// Where.
        at: usize,
    },
    /// Bytes follow the batch.
    #[error("{bytes} bytes after the batch")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}
