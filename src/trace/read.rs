//! Reading a trace file.

use std::{
    io::{self, BufRead, Read},
    ops::Range,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    priority::{self, PriorityFault},
    request::{Segment, Trace},
    row::{Prompt, Row, RowFault},
    source,
    unit::UnitBounds,
};
use crate::Priority;

/// Why a trace could not be read. Every message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{}: cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be read to its end; an archive may have been cut short.
    #[error("{}: cannot be read past line {line}: {}", path.display(), reason(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The last line that could be read.
        line: usize,
        /// What the system or the decompressor says.
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
    /// A row has no priority in the field that was named for it.
    #[error("{}:{line}: {field} is {fault}", path.display())]
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
    /// There is nothing to replay.
    #[error("{}: the trace is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// What a decompressor says of a stream that ends early differs from one to the next.
fn reason(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => "the archive is truncated".to_owned(),
        _ => source.to_string(),
    }
}

impl Trace {
    /// Reads a trace: JSON lines, plain, gzip or zstd, told apart by what the file begins with.
    ///
    /// `unit` is the number of tokens that a hash id stands for; without it, it is inferred from the rows
    /// ([`Trace::unit`] tells).
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read to its end, if a row is malformed, and if there is none.
    ///
    /// # Panics
    ///
    /// Panics if `unit` is zero.
    pub fn open(path: impl AsRef<Path>, unit: Option<u32>) -> Result<Self, TraceError> {
        let (path, began) = (path.as_ref(), Instant::now());
        Self::from_lines(source::open(path), path, unit, None, began)
    }

    /// The same, with each request's [priority](super::Request::priority) from the field of that name: an integer from
    /// 0 to 100 in every row.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`TraceError::Priority`].
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open).
    pub fn open_prioritized(path: impl AsRef<Path>, unit: Option<u32>, field: &str) -> Result<Self, TraceError> {
        let (path, began) = (path.as_ref(), Instant::now());
        Self::from_lines(source::open(path), path, unit, Some(field), began)
    }

    /// The same from anything that can be read; `name` stands for the file in errors.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open).
    pub fn from_reader(reader: impl Read + 'static, name: &str, unit: Option<u32>) -> Result<Self, TraceError> {
        let began = Instant::now();
        Self::from_lines(source::decompress(reader), Path::new(name), unit, None, began)
    }

    fn from_lines(
        lines: io::Result<Box<dyn BufRead>>,
        path: &Path,
        unit: Option<u32>,
        priority_from: Option<&str>,
        began: Instant,
    ) -> Result<Self, TraceError> {
        let lines = lines.map_err(|source| TraceError::Open { path: path.into(), source })?;
        let mut trace = Rows::read(lines, path, unit, priority_from)?.into_trace(unit);
        trace.priority_from = priority_from.map(Box::from);
        trace.read_time = began.elapsed();
        Ok(trace)
    }
}

/// All rows of a file, before it is known what a hash id stands for.
#[derive(Default)]
struct Rows {
    rows: Vec<Known>,
    hash_ids: Vec<u64>,
    bounds: UnitBounds,
    any_hashed: bool,
    trace: Trace,
}

/// A row whose hash ids have moved to the common list.
struct Known {
    timestamp: f64,
    prompt: KnownPrompt,
    prompt_tokens: u32,
    output: Option<Segment>,
    output_tokens: u32,
    priority: Option<Priority>,
}

enum KnownPrompt {
    Hashed(Range<usize>),
    Literal(Segment),
}

impl Rows {
    fn read(
        mut lines: Box<dyn BufRead>,
        path: &Path,
        unit: Option<u32>,
        priority_from: Option<&str>,
    ) -> Result<Self, TraceError> {
        let unit = unit.map_or(1, |unit| unit as usize);
        assert!(unit > 0, "a hash id stands for at least one token");
        let (mut rows, mut text, mut line) = (Self::default(), Vec::new(), 0);
        loop {
            text.clear();
            let read = lines.read_until(b'\n', &mut text);
            if read.map_err(|source| TraceError::Read { path: path.into(), line, source })? == 0 {
                break;
            }
            line += 1;
            let text = text.trim_ascii();
            if text.is_empty() {
                continue;
            }
            let mut row = Row::parse(text);
            if let Ok(row) = &mut row {
                row.cut_ids(unit);
            }
            let row = row.map_err(|fault| TraceError::Row { path: path.into(), line, fault })?;
            let priority = priority_from.map(|field| {
                let (path, name) = (path.into(), field.into());
                priority::parse(text, field).map_err(|fault| TraceError::Priority { path, line, field: name, fault })
            });
            rows.add(row, priority.transpose()?);
        }
        if rows.rows.is_empty() {
            return Err(TraceError::Empty { path: path.into() });
        }
        Ok(rows)
    }

    fn add(&mut self, row: Row, priority: Option<Priority>) {
        let prompt = match &row.prompt {
            Prompt::Tokens(tokens) => KnownPrompt::Literal(self.trace.literal(tokens)),
            Prompt::HashIds(ids) => {
                self.any_hashed = true;
                self.bounds.add(u64::from(row.prompt_tokens), ids.len() as u64);
                let start = self.hash_ids.len();
                self.hash_ids.extend_from_slice(ids);
                KnownPrompt::Hashed(start..self.hash_ids.len())
            }
        };
        let output = row.output.map(|tokens| self.trace.literal(&tokens));
        let (timestamp, prompt_tokens, output_tokens) = (row.timestamp, row.prompt_tokens, row.output_tokens);
        self.rows.push(Known { timestamp, prompt, prompt_tokens, output, output_tokens, priority });
    }

    /// Cuts every row into segments and sorts.
    fn into_trace(self, unit: Option<u32>) -> Trace {
        let unit = unit.unwrap_or_else(|| u32::try_from(self.bounds.infer()).unwrap_or(u32::MAX));
        let mut trace = self.trace;
        trace.unit = self.any_hashed.then_some(unit);
        for row in self.rows {
            let (length, output_tokens) = (row.prompt_tokens, row.output_tokens);
            match row.prompt {
                KnownPrompt::Hashed(ids) => {
                    let segments = segments(&self.hash_ids[ids], unit, length);
                    trace.push(row.timestamp, segments, length, row.output, output_tokens);
                }
                KnownPrompt::Literal(prompt) => {
                    trace.push(row.timestamp, [prompt], length, row.output, output_tokens);
                }
            }
            trace.prioritize_last(row.priority);
        }
        trace.sort();
        trace
    }
}

/// `unit` tokens of every id, the last one cut where the prompt ends.
fn segments(ids: &[u64], unit: u32, length: u32) -> impl Iterator<Item = Segment> {
    ids.iter().enumerate().map(move |(at, &id)| {
        let covered = at as u64 * u64::from(unit);
        let left = u64::from(length).saturating_sub(covered);
        Segment::Hashed { id, len: u64::from(unit).min(left) as u32 }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::trace::tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT, token_id};

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
        assert_eq!(error.expect_err("a fault").to_string(), "t.jsonl:3: hash_ids is missing");
        let line = "{\"timestamp\": 0, \"input_length\": 900, \"output_length\": 0, \"hash_ids\": [1, 2]}";
        assert_eq!(read(line, None).expect("a trace").unit(), Some(512));
        // What stands beyond the prompt's end stands for nothing.
        let cut = read(line, Some(1000)).expect("a trace");
        assert_eq!(key(&cut, 0)[..900], [1].into_iter().chain((1..900).map(|j| token_id(1, j))).collect::<Vec<_>>());
    }

    #[test]
    fn an_empty_trace_says_so() {
        assert_eq!(read("\n \n", None).expect_err("empty").to_string(), "t.jsonl: the trace is empty");
    }
}
