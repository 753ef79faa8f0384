//! Warnings about traces that look wrong but can be replayed.

use super::row::{Prompt, Row};

/// A warning about a trace that can be replayed, but whose results may not mean what they seem to.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Trace, TraceWarning};
///
/// let rows = "{\"timestamp\": 5, \"input_tok_ids\": [1, 2]}\n{\"timestamp\": 3, \"input_tok_ids\": [1, 2]}";
/// let trace = Trace::from_reader(rows.as_bytes(), "rows", None)?;
/// assert_eq!(trace.warnings(), [TraceWarning::Backwards { rows: 1, line: 2 }]);
/// # Ok::<_, radixkv_replay::TraceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceWarning {
    /// Requests are replayed in the order of time, not of the file.
    #[error("time goes backwards in {rows} rows, first in line {line}: requests are served in the order of time")]
    Backwards {
        /// Rows with an earlier timestamp than the row before.
        rows: usize,
        /// Line of the first, counted from 1.
        line: usize,
    },
    /// Prompts end before their hash ids do: the unit is too large.
    #[error(
        "{unit} tokens per hash id are too many for {rows} rows, which have ids beyond the end of their prompts; the rows \
         allow {largest} at most"
    )]
    UnitTooLarge {
        /// Tokens per hash id.
        unit: u64,
        /// The largest unit that leaves no id without a token.
        largest: u64,
        /// Rows whose last id has no token.
        rows: usize,
    },
    /// Whole units of prompts have no hash id and are shared by no other request: the unit is too
    /// small.
    #[error(
        "{unit} tokens per hash id are too few for {rows} rows, whose ids end more than a unit before their prompts do; \
         tokens without an id are not shared"
    )]
    UnitTooSmall {
        /// Tokens per hash id.
        unit: u64,
        /// Rows with more than a unit that no id covers.
        rows: usize,
    },
}

/// Counts of suspicious rows so far, which become warnings.
#[derive(Debug)]
pub(super) struct Doubts {
    unit: Option<u32>,
    /// Rows with an earlier timestamp than the row before, and the line of the first.
    backwards: usize,
    line: usize,
    /// Rows whose last id has no token, and the largest unit that leaves no id without one.
    beyond: usize,
    largest: u64,
}

impl Doubts {
    /// No suspicious rows yet; `unit` is the given one, `None` if it will be inferred.
    pub(super) fn new(unit: Option<u32>) -> Self {
        Self { unit, backwards: 0, line: 0, beyond: 0, largest: u64::MAX }
    }

    /// Checks the row of `line`; `before` is the timestamp of the row before.
    pub(super) fn see(&mut self, row: &Row, before: Option<f64>, line: usize) {
        if before.is_some_and(|before| row.timestamp < before) {
            self.line = if self.backwards == 0 { line } else { self.line };
            self.backwards += 1;
        }
        let (Prompt::HashIds(ids), Some(unit)) = (&row.prompt, self.unit) else {
            return;
        };
        let (ids, tokens) = (ids.len() as u64, u64::from(row.prompt_tokens));
        if ids > 1 {
            self.largest = self.largest.min((tokens - 1) / (ids - 1));
            self.beyond += usize::from((ids - 1) * u64::from(unit) >= tokens);
        }
    }

    /// The warnings; `unit` is the one in use, and `uncovered` the number of rows with more than a
    /// unit that no id covers.
    pub(super) fn warnings(&self, unit: u32, uncovered: usize) -> Vec<TraceWarning> {
        let (unit, largest) = (u64::from(unit), self.largest);
        let backwards = TraceWarning::Backwards { rows: self.backwards, line: self.line };
        let large = TraceWarning::UnitTooLarge { unit, largest, rows: self.beyond };
        let small = TraceWarning::UnitTooSmall { unit, rows: uncovered };
        let counted = [(self.beyond, large), (uncovered, small), (self.backwards, backwards)];
        counted.into_iter().filter(|&(rows, _)| rows > 0).map(|(_, warning)| warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::Trace;

    const ROWS: &str = r#"{"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 2, "input_length": 300, "output_length": 1, "hash_ids": [1]}
{"timestamp": 1, "input_length": 1100, "output_length": 1, "hash_ids": [1, 2, 3]}
{"timestamp": 0, "input_tok_ids": [1, 2]}
"#;

    fn warnings(unit: Option<u32>) -> Vec<TraceWarning> {
        Trace::from_reader(Cursor::new(ROWS), "rows", unit).expect("a trace").warnings().to_vec()
    }

    #[test]
    fn units_that_do_not_fit_the_rows_are_doubted() {
        let backwards = TraceWarning::Backwards { rows: 2, line: 3 };
        assert_eq!(warnings(None), [backwards], "512, inferred");
        assert_eq!(warnings(Some(512)), [backwards]);
        assert_eq!(warnings(Some(549)), [backwards]);
        let large = TraceWarning::UnitTooLarge { unit: 550, largest: 549, rows: 1 };
        assert_eq!(warnings(Some(550)), [large, backwards]);
        let small = TraceWarning::UnitTooSmall { unit: 250, rows: 2 };
        assert_eq!(warnings(Some(250)), [small, backwards]);
    }
}
