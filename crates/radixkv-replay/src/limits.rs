//! How much of a trace is kept in memory.
//!
//! A file of some kilobytes can decompress to terabytes, and a row of some bytes can claim billions of tokens. What a
//! trace asks for is therefore bounded while it is read; a replay has limits of its own
//! ([`ReplayConfig`](crate::ReplayConfig)).

use super::tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT};

/// Each row has a hash id of its own for the tokens that no other row has, and there are this many such ids.
const MAX_ROWS: usize = (UNIQUE_OUTPUT - UNIQUE_PROMPT) as usize;

/// Limits for reading a trace; a file that exceeds one is refused with the line number.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Limits, Trace};
///
/// let limits = Limits::default().line_bytes(1 << 20).rows(100_000);
/// assert_eq!(limits.rows, 100_000);
/// let refused = Trace::open_within("no/such/trace.jsonl", None, None, &limits);
/// assert!(refused.is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a line, decompressed.
    pub line_bytes: usize,
    /// Rows and blank lines; more than 2^30 are always refused.
    pub rows: usize,
    /// Hash ids and spelled-out tokens of all rows together.
    pub tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 64 << 20, rows: 10_000_000, tokens: 1 << 28 }
    }
}

impl Limits {
    /// Bytes of a line, decompressed. Default: 64 MiB.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use radixkv_replay::{Limits, Trace};
    ///
    /// // Lines of at most 1 MiB.
    /// let limits = Limits::default().line_bytes(1 << 20);
    /// let trace = Trace::open_within("conversation.jsonl.zst", None, None, &limits)?;
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    pub fn line_bytes(self, line_bytes: usize) -> Self {
        Self { line_bytes, ..self }
    }

    /// Rows and blank lines; a row takes about a hundred bytes. More than 2^30 are always refused. Default: 10 million.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use radixkv_replay::{Limits, Trace};
    ///
    /// let limits = Limits::default().rows(100_000);
    /// let trace = Trace::open_within("conversation.jsonl.zst", None, None, &limits)?;
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    pub fn rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// Hash ids and spelled-out tokens of all rows together; an id takes 16 bytes and a token 4. Default: 2^28.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use radixkv_replay::{Limits, Trace};
    ///
    /// // 16 MiB of tokens at most.
    /// let limits = Limits::default().tokens(1 << 22);
    /// let trace = Trace::open_within("conversation.jsonl.zst", None, None, &limits)?;
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    pub fn tokens(self, tokens: usize) -> Self {
        Self { tokens, ..self }
    }

    /// Rows and blank lines that are read at most.
    pub(super) fn max_rows(&self) -> usize {
        self.rows.min(MAX_ROWS)
    }
}
