//! How much of a trace is kept in memory.
//!
//! A file of some kilobytes can decompress to terabytes, and a row of some bytes can claim billions of tokens. What a
//! trace asks for is therefore bounded while it is read; a replay has bounds of its own
//! ([`ReplayConfig`](super::ReplayConfig)).

use super::tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT};

/// Each row has a hash id of its own for what is in no other, and these ids are so many.
const MOST_ROWS: usize = (UNIQUE_OUTPUT - UNIQUE_PROMPT) as usize;

/// Bounds on what is read of a trace; a file beyond one of them is refused with the number of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a line, decompressed. Default: 64 MiB.
    pub line_bytes: usize,
    /// Rows, of which each takes about a hundred bytes, and blank lines, of which there may be no end either. More than
    /// 2^30 are refused whatever this says. Default: 10 million.
    pub rows: usize,
    /// Hash ids and spelled-out tokens of all rows together; an id takes 16 bytes and a token 4. Default: 2^28.
    pub tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 64 << 20, rows: 10_000_000, tokens: 1 << 28 }
    }
}

impl Limits {
    /// Rows and blank lines that are read at most.
    pub(super) fn most_rows(&self) -> usize {
        self.rows.min(MOST_ROWS)
    }
}
