//! Limits on how much of a trace is read into memory.
//!
//! A file of some kilobytes can decompress to terabytes, and a row of some bytes can claim billions
//! of tokens, so the size of a trace is bounded while it is read. A replay has its own limits
//! ([`ReplayConfig`](crate::ReplayConfig)).

use super::tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT};

/// Each row has its own hash id for the tokens that no other row has; this is the number of such
/// ids.
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
    /// Largest number of bytes of a line, after decompression.
    pub line_bytes: usize,
    /// Largest number of rows and blank lines; more than 2^30 are always refused.
    pub rows: usize,
    /// Largest number of hash ids and spelled-out tokens of all rows together.
    pub tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 64 << 20, rows: 10_000_000, tokens: 1 << 28 }
    }
}

impl Limits {
    /// Limits the bytes of a line, after decompression. Default: 64 MiB.
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

    /// Limits the number of rows and blank lines; a row takes about a hundred bytes of memory. More
    /// than 2^30 are always refused. Default: 10 million.
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

    /// Limits the hash ids and spelled-out tokens of all rows together; an id takes 16 bytes, a
    /// token 4 bytes. Default: 2^28.
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

    /// The effective limit on rows and blank lines.
    pub(super) fn max_rows(&self) -> usize {
        self.rows.min(MAX_ROWS)
    }
}
