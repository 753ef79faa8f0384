//! A trace in memory: requests in replay order, each a few segments long.
//!
//! A prompt is kept as segments, not as tokens: Mooncake's 145 million prompt tokens are 290 thousand segments of 16
//! bytes. Tokens are made when a request is replayed, into a buffer that is used again for the next.

use std::{cmp::Ordering, collections::TryReserveError, time::Duration};

use super::{
    row::{Prompt, Row},
    tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT, fill, token_id},
};
use radixkv::Priority;
use radixkv::key::{Token, common_prefix};

/// Some consecutive tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment {
    /// The first `len` tokens of a hash id.
    Hashed { id: u64, len: u32 },
    /// `len` tokens that the trace spells out, from `start` of its literal tokens on.
    Literal { start: usize, len: u32 },
}

impl Segment {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Hashed { len, .. } | Self::Literal { len, .. } => len as usize,
        }
    }
}

/// One request of a trace: what arrived, and how much was generated.
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
    /// Row of the file (lines that are not blank) that the request came from, counted from 0.
    #[must_use]
    pub fn row(&self) -> usize {
        self.row as usize
    }

    /// When it arrived, in the trace's own unit.
    #[must_use]
    pub fn timestamp(&self) -> f64 {
        self.timestamp
    }

    /// Length of the prompt.
    #[must_use]
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens as usize
    }

    /// Number of tokens generated.
    #[must_use]
    pub fn output_tokens(&self) -> usize {
        self.output_tokens as usize
    }

    /// What its row says, where the trace was read with a field for it.
    #[must_use]
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Tokens to be cached: the prompt, and what was generated if `outputs` says so.
    #[must_use]
    pub fn key_tokens(&self, outputs: bool) -> usize {
        self.prompt_tokens() + if outputs { self.output_tokens() } else { 0 }
    }
}

/// Requests in replay order, and what their tokens are made of.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    pub(super) requests: Vec<Request>,
    pub(super) segments: Vec<Segment>,
    pub(super) literals: Vec<Token>,
    pub(super) unit: Option<u32>,
    pub(super) priority_from: Option<Box<str>>,
    pub(super) read_time: Duration,
}

impl Trace {
    /// The requests, sorted by arrival; those that arrived together are in the order of the file.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Tokens per hash id, given or inferred; `None` where no row has hash ids.
    #[must_use]
    pub fn unit(&self) -> Option<usize> {
        self.unit.map(|unit| unit as usize)
    }

    /// The field that priorities were read from.
    #[must_use]
    pub fn priority_from(&self) -> Option<&str> {
        self.priority_from.as_deref()
    }

    /// Time spent reading, decompressing and parsing; zero for a built-in workload.
    #[must_use]
    pub fn read_time(&self) -> Duration {
        self.read_time
    }

    /// Length of all prompts together.
    #[must_use]
    pub fn prompt_tokens(&self) -> u64 {
        self.requests.iter().map(|r| u64::from(r.prompt_tokens)).sum()
    }

    /// Writes the first `out.len()` tokens of a request, those generated after those of the prompt.
    ///
    /// # Panics
    ///
    /// Panics if the request has fewer tokens.
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

    /// Tokens in which two prompts agree, and how they compare where they part; a proper prefix comes first.
    pub(super) fn compare(&self, a: &Request, b: &Request) -> (usize, Ordering) {
        let (mut x, mut y) = (Cursor::new(self, a), Cursor::new(self, b));
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
        (agreed, a.prompt_tokens.cmp(&b.prompt_tokens))
    }
}

/// Building: rows arrive in the order of the file and are sorted once at the end.
impl Trace {
    /// Adds a request whose prompt is covered by `prompt` as far as it goes, and by tokens of its own from there on.
    /// Without an `output` segment the generated tokens are its own as well.
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

    /// Makes room for a row: its segments, one for the tokens of its own, and one for what was generated.
    pub(super) fn reserve(&mut self, row: &Row) -> Result<(), TryReserveError> {
        let (segments, literals) = match &row.prompt {
            Prompt::HashIds(ids) => (ids.len(), row.listed() - ids.len()),
            Prompt::Tokens(_) => (1, row.listed()),
        };
        self.requests.try_reserve(1)?;
        self.segments.try_reserve(segments + 2)?;
        self.literals.try_reserve(literals)
    }

    /// Gives `unit` tokens to every hash id of a prompt, as far as that goes, and the rest to the tokens of its own.
    pub(super) fn cut(&mut self, unit: u32) {
        for request in &self.requests {
            // A prompt that is spelled out ends in another kind of segment.
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
        }
    }

    /// Gives the request that was added last its priority.
    pub(super) fn prioritize_last(&mut self, priority: Option<Priority>) {
        if let Some(request) = self.requests.last_mut() {
            request.priority = priority;
        }
    }

    /// Keeps spelled-out tokens and gives the segment that stands for them.
    pub(super) fn literal(&mut self, tokens: &[Token]) -> Segment {
        let start = self.literals.len();
        self.literals.extend_from_slice(tokens);
        Segment::Literal { start, len: tokens.len() as u32 }
    }

    /// Puts the requests into replay order.
    pub(super) fn sort(&mut self) {
        let by_time = |a: &Request, b: &Request| a.timestamp.partial_cmp(&b.timestamp).unwrap_or(Ordering::Equal);
        // In place: a stable sort takes memory.
        self.requests.sort_unstable_by(|a, b| by_time(a, b).then(a.row.cmp(&b.row)));
    }
}

/// A place in a prompt.
struct Cursor<'a> {
    trace: &'a Trace,
    segment: usize,
    skipped: usize,
    left: usize,
}

impl<'a> Cursor<'a> {
    fn new(trace: &'a Trace, request: &Request) -> Self {
        Self { trace, segment: request.first, skipped: 0, left: request.prompt_tokens() }
    }

    /// What is left of the segment here; `None` at the end of the prompt.
    #[inline]
    fn piece(&mut self) -> Option<Piece<'a>> {
        if self.left == 0 {
            return None;
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
        if self.skipped == self.trace.segments[self.segment].len() {
            (self.segment, self.skipped) = (self.segment + 1, 0);
        }
    }
}

/// Tokens that are made alike.
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

    /// Tokens of the first `len` in which the pieces agree.
    #[inline]
    fn agreement(self, other: Self, len: usize) -> usize {
        match (self, other) {
            (Self::Hashed { id: a, from: i, .. }, Self::Hashed { id: b, from: j, .. }) if a == b && i == j => len,
            (Self::Literal(a), Self::Literal(b)) => common_prefix(&a[..len], &b[..len]),
            _ => (0..len).take_while(|&at| self.token(at) == other.token(at)).count(),
        }
    }
}
