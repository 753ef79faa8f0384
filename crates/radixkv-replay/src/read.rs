//! Reads trace files into a [`Trace`].

use std::{
    collections::TryReserveError,
    io::{self, BufRead, Read},
    path::{Path, PathBuf},
    time::Instant,
};

use radixkv::Priority;

use super::{
    limits::Limits,
    lines::{LineFault, Lines},
    priority::{self, PriorityFault},
    request::{Request, Segment, Trace},
    row::{Prompt, Row, RowFault},
    source,
    unit::UnitBounds,
    warning::Doubts,
};

/// Why a trace could not be read. Every message names the file.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Trace, TraceError};
///
/// match Trace::open("no/such/trace.jsonl", None) {
///     Err(TraceError::Open { path, .. }) => assert!(path.ends_with("trace.jsonl")),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{}: cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be read to its end; an archive may have been cut short.
    #[error("{}: cannot be read past line {line}: {}", path.display(), reason(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The last line that could be read.
        line: usize,
        /// The error of the system or of the decompressor.
        source: io::Error,
    },
    /// A row is malformed.
    #[error("{}:{line}: {fault}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Line of the (decompressed) file, counted from 1.
        line: usize,
        /// What is wrong with it.
        fault: RowFault,
    },
    /// A row has no valid priority in the field that the caller named.
    #[error("{}:{line}: the field {field} is {fault}", path.display())]
    Priority {
        /// The file.
        path: PathBuf,
        /// Line of the (decompressed) file, counted from 1.
        line: usize,
        /// The field.
        field: Box<str>,
        /// What is wrong with it.
        fault: PriorityFault,
    },
    /// A line is longer than [`Limits::line_bytes`]: raise the limit if the line is right.
    #[error("{}:{line}: the line has more than {limit} bytes", path.display())]
    LongLine {
        /// The file.
        path: PathBuf,
        /// Line of the (decompressed) file, counted from 1.
        line: usize,
        /// The limit.
        limit: usize,
    },
    /// There are more rows than [`Limits::rows`]: raise the limit, or replay a part of the trace.
    #[error("{}:{line}: the trace has more than {limit} rows, blank lines included", path.display())]
    TooManyRows {
        /// The file.
        path: PathBuf,
        /// Line of the (decompressed) file, counted from 1.
        line: usize,
        /// The limit.
        limit: usize,
    },
    /// There are more hash ids and tokens than [`Limits::tokens`]: raise the limit, or replay a
    /// part of the trace.
    #[error("{}:{line}: the trace has more than {limit} hash ids and tokens", path.display())]
    TooManyTokens {
        /// The file.
        path: PathBuf,
        /// Line of the (decompressed) file, counted from 1.
        line: usize,
        /// The limit.
        limit: usize,
    },
    /// The trace does not fit into memory: replay a part of it.
    #[error("{}:{line}: not enough memory to read further: {source}", path.display())]
    NoMemory {
        /// The file.
        path: PathBuf,
        /// Line of the (decompressed) file, counted from 1.
        line: usize,
        /// The allocator's error.
        source: TryReserveError,
    },
    /// The trace has no requests.
    #[error("{}: the trace is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// One message for all streams that end early, which decompressors report in different words.
fn reason(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => "the archive is truncated".to_owned(),
        _ => source.to_string(),
    }
}

impl Trace {
    /// Reads a trace of JSON lines, plain or compressed with gzip or zstd; the file's first bytes
    /// determine the format.
    ///
    /// `unit` is the number of tokens per hash id. Without it the unit is inferred from the rows;
    /// [`Trace::unit`] returns it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read to its end, if a row is malformed, if there are no rows,
    /// and if the trace is larger than [`Limits::default`] allows.
    ///
    /// # Panics
    ///
    /// Panics if `unit` is zero.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let trace = radixkv_replay::Trace::open("conversation.jsonl.zst", Some(512))?;
    /// println!("{} requests, {} prompt tokens", trace.requests().len(), trace.prompt_tokens());
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, unit: Option<u32>) -> Result<Self, TraceError> {
        Self::open_within(path, unit, None, &Limits::default())
    }

    /// Reads a trace as [`open`](Self::open) does, and the [priority](super::Request::priority) of
    /// each request from `field`, which must be an integer of 64 bits in every row.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`TraceError::Priority`].
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let trace = radixkv_replay::Trace::open_prioritized("conversation.jsonl.zst", None, "slo")?;
    /// assert!(trace.requests()[0].priority().is_some());
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    pub fn open_prioritized(path: impl AsRef<Path>, unit: Option<u32>, field: &str) -> Result<Self, TraceError> {
        Self::open_within(path, unit, Some(field), &Limits::default())
    }

    /// Reads a trace within `limits`, with priorities if `priority_from` names the field that has
    /// them.
    ///
    /// # Errors
    ///
    /// As [`open_prioritized`](Self::open_prioritized), with `limits` instead of the default ones.
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{Limits, Trace, TraceError};
    ///
    /// let limits = Limits::default().line_bytes(1 << 20);
    /// let missing = Trace::open_within("no/such/trace.jsonl", Some(512), None, &limits);
    /// assert!(matches!(missing, Err(TraceError::Open { .. })));
    /// ```
    pub fn open_within(
        path: impl AsRef<Path>,
        unit: Option<u32>,
        priority_from: Option<&str>,
        limits: &Limits,
    ) -> Result<Self, TraceError> {
        let (path, began) = (path.as_ref(), Instant::now());
        Self::from_lines(source::open(path), path, unit, priority_from, limits, began)
    }

    /// Reads a trace as [`open`](Self::open) does, from any reader; errors use `name` as the file's
    /// name.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::Trace;
    ///
    /// let row = r#"{"timestamp": 0, "input_length": 700, "output_length": 20, "hash_ids": [46, 57]}"#;
    /// let trace = Trace::from_reader(row.as_bytes(), "row", None)?;
    /// assert_eq!(trace.unit(), Some(512)); // inferred
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    pub fn from_reader(reader: impl Read + 'static, name: &str, unit: Option<u32>) -> Result<Self, TraceError> {
        Self::from_reader_within(reader, name, unit, None, &Limits::default())
    }

    /// Reads a trace as [`open_within`](Self::open_within) does, from any reader; errors use `name`
    /// as the file's name.
    ///
    /// # Errors
    ///
    /// As [`open_within`](Self::open_within).
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{Limits, Trace, TraceError};
    ///
    /// let rows = "{\"timestamp\": 0, \"input_tok_ids\": [1, 2, 3]}\n".repeat(3);
    /// let limits = Limits::default().rows(2);
    /// let refused = Trace::from_reader_within(std::io::Cursor::new(rows), "rows", None, None, &limits);
    /// assert!(matches!(refused, Err(TraceError::TooManyRows { limit: 2, .. })));
    /// ```
    pub fn from_reader_within(
        reader: impl Read + 'static,
        name: &str,
        unit: Option<u32>,
        priority_from: Option<&str>,
        limits: &Limits,
    ) -> Result<Self, TraceError> {
        let began = Instant::now();
        Self::from_lines(source::decompress(reader), Path::new(name), unit, priority_from, limits, began)
    }

    fn from_lines(
        text: io::Result<Box<dyn BufRead>>,
        path: &Path,
        unit: Option<u32>,
        priority_from: Option<&str>,
        limits: &Limits,
        began: Instant,
    ) -> Result<Self, TraceError> {
        let text = text.map_err(|source| TraceError::Open { path: path.into(), source })?;
        let mut trace = TraceReader::new(path, unit, priority_from, limits).read(text)?;
        trace.priority_from = priority_from.map(Box::from);
        trace.read_time = began.elapsed();
        Ok(trace)
    }
}

/// A trace that is being read. Hash ids have length 0 until `finish`, when the unit is known.
struct TraceReader<'a> {
    path: &'a Path,
    unit: Option<u32>,
    priority_from: Option<&'a str>,
    limits: &'a Limits,
    /// Number of lines so far.
    line: usize,
    /// Number of hash ids and spelled-out tokens so far.
    tokens: usize,
    bounds: UnitBounds,
    any_hashed: bool,
    doubts: Doubts,
    trace: Trace,
}

impl<'a> TraceReader<'a> {
    fn new(path: &'a Path, unit: Option<u32>, priority_from: Option<&'a str>, limits: &'a Limits) -> Self {
        assert!(unit != Some(0), "a hash id stands for at least one token");
        let (bounds, trace) = (UnitBounds::default(), Trace::default());
        let doubts = Doubts::new(unit);
        Self { path, unit, priority_from, limits, line: 0, tokens: 0, bounds, any_hashed: false, doubts, trace }
    }

    fn read(mut self, text: Box<dyn BufRead>) -> Result<Trace, TraceError> {
        let mut lines = Lines::new(text, self.limits.line_bytes);
        while let Some(line) = lines.next().map_err(|fault| self.unreadable(fault))? {
            self.line += 1;
            let limit = self.limits.max_rows();
            if self.line > limit {
                return Err(TraceError::TooManyRows { path: self.path.into(), line: self.line, limit });
            }
            let line = line.trim_ascii();
            if !line.is_empty() {
                self.add(line)?;
            }
        }
        if self.trace.requests.is_empty() {
            return Err(TraceError::Empty { path: self.path.into() });
        }
        Ok(self.finish())
    }

    /// Parses a line that is not blank, and adds its row.
    fn add(&mut self, line: &[u8]) -> Result<(), TraceError> {
        let mut row = Row::parse(line).map_err(|fault| self.faulty(fault))?;
        self.doubts.see(&row, self.trace.requests.last().map(Request::timestamp), self.line);
        row.cut_ids(self.unit.map_or(1, |unit| unit as usize));
        let priority = self.priority(line)?;
        self.tokens += row.listed();
        if self.tokens > self.limits.tokens {
            let (path, line, limit) = (self.path.into(), self.line, self.limits.tokens);
            return Err(TraceError::TooManyTokens { path, line, limit });
        }
        self.keep(&row).map_err(|source| self.no_memory(source))?;
        self.trace.prioritize_last(priority);
        Ok(())
    }

    fn priority(&self, line: &[u8]) -> Result<Option<Priority>, TraceError> {
        let Some(field) = self.priority_from else {
            return Ok(None);
        };
        let at_fault =
            |fault| TraceError::Priority { path: self.path.into(), line: self.line, field: field.into(), fault };
        priority::parse(line, field).map(Some).map_err(at_fault)
    }

    /// Adds a row to the trace; its hash ids have no length yet.
    fn keep(&mut self, row: &Row) -> Result<(), TryReserveError> {
        self.trace.reserve(row)?;
        let output = row.output.as_deref().map(|tokens| self.trace.literal(tokens));
        let (timestamp, length, output_tokens) = (row.timestamp, row.prompt_tokens, row.output_tokens);
        match &row.prompt {
            Prompt::Tokens(tokens) => {
                let prompt = self.trace.literal(tokens);
                self.trace.push(timestamp, [prompt], length, output, output_tokens);
            }
            Prompt::HashIds(ids) => {
                self.any_hashed = true;
                self.bounds.add(u64::from(length), ids.len() as u64);
                let ids = ids.iter().map(|&id| Segment::Hashed { id, len: 0 });
                self.trace.push(timestamp, ids, length, output, output_tokens);
            }
        }
        Ok(())
    }

    /// Sets the lengths of the hash ids and sorts the requests.
    fn finish(mut self) -> Trace {
        let unit = self.unit.unwrap_or_else(|| u32::try_from(self.bounds.infer()).unwrap_or(u32::MAX));
        self.trace.unit = self.any_hashed.then_some(unit);
        let uncovered = self.trace.cut(unit);
        self.trace.warnings = self.doubts.warnings(unit, uncovered);
        self.trace.sort();
        self.trace
    }

    fn unreadable(&self, fault: LineFault) -> TraceError {
        let (path, next) = (self.path.into(), self.line + 1);
        match fault {
            LineFault::Read(source) => TraceError::Read { path, line: self.line, source },
            LineFault::TooLong => TraceError::LongLine { path, line: next, limit: self.limits.line_bytes },
            LineFault::NoMemory(source) => TraceError::NoMemory { path, line: next, source },
        }
    }

    fn faulty(&self, fault: RowFault) -> TraceError {
        TraceError::Row { path: self.path.into(), line: self.line, fault }
    }

    fn no_memory(&self, source: TryReserveError) -> TraceError {
        TraceError::NoMemory { path: self.path.into(), line: self.line, source }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT, token_id};

    fn read(text: &'static str, unit: Option<u32>) -> Result<Trace, TraceError> {
        Trace::from_reader(Cursor::new(text), "t.jsonl", unit)
    }

    fn key(trace: &Trace, at: usize) -> Vec<u32> {
        let request = &trace.requests()[at];
        let mut tokens = vec![0; request.key_tokens(true)];
        trace.fill(request, &mut tokens);
        tokens
    }

    #[test]
    fn tokens_follow_the_rule() {
        let trace = read(
            "{\"timestamp\": 2, \"input_length\": 6, \"output_length\": 2, \"hash_ids\": [9, 8]}\n\n\
             {\"timestamp\": 1, \"input_length\": 3, \"output_length\": 0, \"hash_ids\": [9, 7]}\n\
             {\"timestamp\": 2, \"input_tok_ids\": [5, 6], \"output_tok_ids\": [4]}\n",
            Some(2),
        )
        .expect("a trace");
        let rows: Vec<usize> = trace.requests().iter().map(|r| r.row()).collect();
        assert_eq!(rows, [1, 0, 2], "sorted by time, ties in file order");
        assert_eq!(key(&trace, 0), [9, token_id(9, 1), 7]);
        let own = |base, at| token_id(base, at);
        let (prompt, output) = (UNIQUE_PROMPT, UNIQUE_OUTPUT);
        let expected =
            [9, token_id(9, 1), 8, token_id(8, 1), own(prompt, 0), own(prompt, 1), own(output, 0), own(output, 1)];
        assert_eq!(key(&trace, 1), expected);
        assert_eq!(key(&trace, 2), [5, 6, 4]);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let error =
            read("{\"timestamp\": 0, \"input_tok_ids\": [], \"output_length\": 0}\n\n{\"timestamp\": 0}\n", None);
        assert_eq!(error.expect_err("a fault").to_string(), "t.jsonl:3: the field hash_ids is missing");
        let line = "{\"timestamp\": 0, \"input_length\": 900, \"output_length\": 0, \"hash_ids\": [1, 2]}";
        assert_eq!(read(line, None).expect("a trace").unit(), Some(512));
        // Hash ids beyond the prompt's end are ignored.
        let cut = read(line, Some(1000)).expect("a trace");
        assert_eq!(key(&cut, 0)[..900], [1].into_iter().chain((1..900).map(|j| token_id(1, j))).collect::<Vec<_>>());
    }

    #[test]
    fn an_empty_trace_is_refused() {
        assert_eq!(read("\n \n", None).expect_err("empty").to_string(), "t.jsonl: the trace is empty");
    }
}
