//! A trace in memory: requests in replay order, each a few segments long.
//!
//! A prompt is kept as segments, not as tokens: the 145 million prompt tokens of Mooncake's traces
//! are 290 thousand segments of 16 bytes. The replaying thread makes a request's tokens in its own
//! buffer when it replays the request.

use std::{cmp::Ordering, collections::TryReserveError, time::Duration};

use radixkv::{
    Priority,
    key::{Token, common_prefix},
};

use super::{
    row::{Prompt, Row},
    tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT, fill, token_id},
    warning::TraceWarning,
};

/// Consecutive tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment {
    /// The first `len` tokens of a hash id.
    Hashed { id: u64, len: u32 },
    /// `len` tokens that the trace spells out, stored from `start` in the trace's `literals`.
    Literal { start: usize, len: u32 },
}

impl Segment {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Hashed { len, .. } | Self::Literal { len, .. } => len as usize,
        }
    }
}

/// One request of a trace: its prompt, and how many tokens were generated.
///
/// # Examples
///
/// ```
/// use radixkv_replay::Trace;
///
/// let row = r#"{"timestamp": 7.5, "input_tok_ids": [1, 2, 3], "output_tok_ids": [4]}"#;
/// let trace = Trace::from_reader(row.as_bytes(), "row", None)?;
/// let request = &trace.requests()[0];
/// assert_eq!((request.timestamp(), request.prompt_tokens(), request.output_tokens()), (7.5, 3, 1));
/// # Ok::<_, radixkv_replay::TraceError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    timestamp: f64,
    row: u32,
    first: usize,
    end: usize,
    prompt_tokens: u32,
    output_tokens: u32,
    priority: Option<Priority>,
}

impl Request {
    /// The row that the request was read from, counted from 0; blank lines are not rows.
    #[must_use]
    pub fn row(&self) -> usize {
        self.row as usize
    }

    /// The arrival time, in the trace's own unit of time.
    #[must_use]
    pub fn timestamp(&self) -> f64 {
        self.timestamp
    }

    /// Tokens of the prompt.
    #[must_use]
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens as usize
    }

    /// Number of generated tokens.
    #[must_use]
    pub fn output_tokens(&self) -> usize {
        self.output_tokens as usize
    }

    /// The priority in its row; `None` if the trace was read without a field for priorities.
    #[must_use]
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Number of tokens to be cached: those of the prompt and, with `outputs`, the generated ones.
    ///
    /// # Examples
    ///
    /// ```
    /// # let row = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3], "output_tok_ids": [4]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(row.as_bytes(), "row", None)?;
    /// let request = &trace.requests()[0]; // of three prompt tokens and a generated one
    /// assert_eq!((request.key_tokens(false), request.key_tokens(true)), (3, 4));
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    #[must_use]
    pub fn key_tokens(&self, outputs: bool) -> usize {
        self.prompt_tokens() + if outputs { self.output_tokens() } else { 0 }
    }
}

/// A trace: its requests in replay order, and the data that their tokens are made from.
///
/// # Examples
///
/// ```
/// use radixkv_replay::Trace;
///
/// let row = r#"{"timestamp": 0, "input_length": 700, "output_length": 20, "hash_ids": [46, 57]}"#;
/// let trace = Trace::from_reader(row.as_bytes(), "row", Some(512))?;
/// assert_eq!((trace.requests().len(), trace.prompt_tokens(), trace.unit()), (1, 700, Some(512)));
/// # Ok::<_, radixkv_replay::TraceError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Trace {
    pub(super) requests: Vec<Request>,
    pub(super) segments: Vec<Segment>,
    pub(super) literals: Vec<Token>,
    pub(super) unit: Option<u32>,
    pub(super) priority_from: Option<Box<str>>,
    pub(super) read_time: Duration,
    pub(super) warnings: Vec<TraceWarning>,
}

impl Trace {
    /// The requests, sorted by arrival; requests with equal timestamps are in the order of the
    /// file.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Tokens per hash id, given or inferred; `None` if no row has hash ids.
    #[must_use]
    pub fn unit(&self) -> Option<usize> {
        self.unit.map(|unit| unit as usize)
    }

    /// The field that priorities were read from; `None` if there was none.
    #[must_use]
    pub fn priority_from(&self) -> Option<&str> {
        self.priority_from.as_deref()
    }

    /// Time spent reading, decompressing and parsing; zero for a built-in workload.
    #[must_use]
    pub fn read_time(&self) -> Duration {
        self.read_time
    }

    /// Warnings about rows that look wrong but can be replayed.
    #[must_use]
    pub fn warnings(&self) -> &[TraceWarning] {
        &self.warnings
    }

    /// Number of tokens of all prompts.
    #[must_use]
    pub fn prompt_tokens(&self) -> u64 {
        self.requests.iter().map(|r| u64::from(r.prompt_tokens)).sum()
    }

    /// Writes the first `out.len()` tokens of a request: its prompt, then its generated tokens.
    ///
    /// # Panics
    ///
    /// Panics if the request has fewer tokens.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{Trace, token_id};
    ///
    /// let row = r#"{"timestamp": 0, "input_length": 3, "output_length": 0, "hash_ids": [46, 57]}"#;
    /// let trace = Trace::from_reader(row.as_bytes(), "row", Some(2))?;
    /// let mut tokens = [0; 3];
    /// trace.fill(&trace.requests()[0], &mut tokens);
    /// assert_eq!(tokens, [46, token_id(46, 1), 57]);
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    pub fn fill(&self, request: &Request, out: &mut [Token]) {
        let mut rest = out;
        for segment in &self.segments[request.first..request.end] {
            let (piece, after) = rest.split_at_mut(segment.len().min(rest.len()));
            match *segment {
                Segment::Hashed { id, .. } => fill(id, piece),
                Segment::Literal { start, .. } => piece.copy_from_slice(&self.literals[start..start + piece.len()]),
            }
            rest = after;
            if rest.is_empty() {
                return;
            }
        }
        assert!(rest.is_empty(), "the request is {} tokens shorter than asked for", rest.len());
    }

    /// Compares two prompts, with `outputs` also the generated tokens. Returns the length of the
    /// common prefix and the order of the tokens after it; a proper prefix is less.
    pub(super) fn compare(&self, a: &Request, b: &Request, outputs: bool) -> (usize, Ordering) {
        let [mut x, mut y] = [a, b].map(|request| KeyCursor::new(self, request, outputs));
        let mut agreed = 0;
        while let (Some(left), Some(right)) = (x.piece(), y.piece()) {
            let both = left.len().min(right.len());
            let same = left.agreement(right, both);
            agreed += same;
            if same < both {
                return (agreed, left.token(same).cmp(&right.token(same)));
            }
            x.skip(both);
            y.skip(both);
        }
        (agreed, a.key_tokens(outputs).cmp(&b.key_tokens(outputs)))
    }
}

/// Building: rows arrive in the order of the file and are sorted once at the end.
impl Trace {
    /// Adds a request. Prompt tokens beyond the segments in `prompt` are unique to the request: no
    /// other request has them. Without an `output` segment its generated tokens are also unique.
    pub(super) fn push(
        &mut self,
        timestamp: f64,
        prompt: impl IntoIterator<Item = Segment>,
        prompt_tokens: u32,
        output: Option<Segment>,
        output_tokens: u32,
    ) {
        let (first, row) = (self.segments.len(), self.requests.len() as u32);
        self.segments.extend(prompt);
        let covered: usize = self.segments[first..].iter().map(|s| s.len()).sum();
        let uncovered = prompt_tokens - covered as u32;
        if uncovered > 0 {
            self.segments.push(Segment::Hashed { id: UNIQUE_PROMPT + u64::from(row), len: uncovered });
        }
        let own = Segment::Hashed { id: UNIQUE_OUTPUT + u64::from(row), len: output_tokens };
        self.segments.push(output.unwrap_or(own));
        let end = self.segments.len();
        let priority = None;
        self.requests.push(Request { timestamp, row, first, end, prompt_tokens, output_tokens, priority });
    }

    /// Adds a request that replaces `of` with other tokens; it keeps the row, timestamp and
    /// priority.
    #[cfg(feature = "sweep")]
    pub(super) fn push_for(&mut self, of: &Request, prompt: impl IntoIterator<Item = Segment>, prompt_tokens: u32) {
        self.push(of.timestamp, prompt, prompt_tokens, None, 0);
        if let Some(request) = self.requests.last_mut() {
            (request.row, request.priority) = (of.row, of.priority);
        }
    }

    /// Reserves memory for a row: its segments, one more for the unique prompt tokens, and one for
    /// the output.
    pub(super) fn reserve(&mut self, row: &Row) -> Result<(), TryReserveError> {
        let (segments, literals) = match &row.prompt {
            Prompt::HashIds(ids) => (ids.len(), row.listed() - ids.len()),
            Prompt::Tokens(_) => (1, row.listed()),
        };
        self.requests.try_reserve(1)?;
        self.segments.try_reserve(segments + 2)?;
        self.literals.try_reserve(literals)
    }

    /// Gives each hash id `unit` tokens up to the prompt's end; the rest of the prompt becomes
    /// unique tokens. Returns the number of prompts with more than `unit` unique tokens.
    pub(super) fn cut(&mut self, unit: u32) -> usize {
        let mut uncovered = 0;
        for request in &self.requests {
            // The prompt is spelled out, not hashed.
            let [ids @ .., Segment::Hashed { len: own, .. }] = &mut self.segments[request.first..request.end - 1]
            else {
                continue;
            };
            let mut left = request.prompt_tokens;
            for id in ids {
                if let Segment::Hashed { len, .. } = id {
                    *len = unit.min(left);
                    left -= *len;
                }
            }
            *own = left;
            uncovered += usize::from(left > unit);
        }
        uncovered
    }

    /// Sets the priority of the request that was added last.
    pub(super) fn prioritize_last(&mut self, priority: Option<Priority>) {
        if let Some(request) = self.requests.last_mut() {
            request.priority = priority;
        }
    }

    /// Stores spelled-out tokens and returns their segment.
    pub(super) fn literal(&mut self, tokens: &[Token]) -> Segment {
        let start = self.literals.len();
        self.literals.extend_from_slice(tokens);
        Segment::Literal { start, len: tokens.len() as u32 }
    }

    /// Sorts the requests into replay order.
    pub(super) fn sort(&mut self) {
        let by_time = |a: &Request, b: &Request| a.timestamp.partial_cmp(&b.timestamp).unwrap_or(Ordering::Equal);
        // A stable sort would allocate; the row number breaks ties.
        self.requests.sort_unstable_by(|a, b| by_time(a, b).then(a.row.cmp(&b.row)));
    }
}

/// A position in a request's key: in its prompt, or in the generated tokens after it.
struct KeyCursor<'a> {
    trace: &'a Trace,
    segment: usize,
    skipped: usize,
    left: usize,
}

impl<'a> KeyCursor<'a> {
    fn new(trace: &'a Trace, request: &Request, outputs: bool) -> Self {
        Self { trace, segment: request.first, skipped: 0, left: request.key_tokens(outputs) }
    }

    /// The rest of the segment at this position; `None` at the end.
    #[inline]
    fn piece(&mut self) -> Option<Piece<'a>> {
        if self.left == 0 {
            return None;
        }
        // Segments without tokens may precede the output.
        while self.trace.segments[self.segment].len() == self.skipped {
            (self.segment, self.skipped) = (self.segment + 1, 0);
        }
        let segment = self.trace.segments[self.segment];
        Some(match segment {
            Segment::Hashed { id, len } => Piece::Hashed { id, from: self.skipped, len: len as usize - self.skipped },
            Segment::Literal { start, len } => {
                Piece::Literal(&self.trace.literals[start + self.skipped..start + len as usize])
            }
        })
    }

    #[inline]
    fn skip(&mut self, tokens: usize) {
        self.skipped += tokens;
        self.left -= tokens;
    }
}

/// The tokens of one segment from the position of a [`KeyCursor`] on.
#[derive(Clone, Copy)]
enum Piece<'a> {
    Hashed { id: u64, from: usize, len: usize },
    Literal(&'a [Token]),
}

impl Piece<'_> {
    #[inline]
    fn len(self) -> usize {
        match self {
            Self::Hashed { len, .. } => len,
            Self::Literal(tokens) => tokens.len(),
        }
    }

    #[inline]
    fn token(self, at: usize) -> Token {
        match self {
            Self::Hashed { id, from, .. } => token_id(id, (from + at) as u64),
            Self::Literal(tokens) => tokens[at],
        }
    }

    /// Length of the common prefix of the first `len` tokens of two pieces.
    #[inline]
    fn agreement(self, other: Self, len: usize) -> usize {
        match (self, other) {
            (Self::Hashed { id: a, from: i, .. }, Self::Hashed { id: b, from: j, .. }) if a == b && i == j => len,
            (Self::Literal(a), Self::Literal(b)) => common_prefix(&a[..len], &b[..len]),
            _ => (0..len).take_while(|&at| self.token(at) == other.token(at)).count(),
        }
    }
}
