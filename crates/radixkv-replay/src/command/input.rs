//! The input of the command: a file, or standard input under the name `-`.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use radixkv_replay::{Limits, Trace, TraceError};

use crate::{bytes::shown, console, file_id::FileId, output::OutputError};

/// The argument that means standard input instead of a file.
const STDIN: &str = "-";

/// A file, or standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    File(PathBuf),
    Stdin,
}

impl Input {
    pub(crate) fn new(path: &Path) -> Self {
        if path.as_os_str() == STDIN { Self::Stdin } else { Self::File(path.into()) }
    }

    /// The name in messages, tables and pictures.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => console::printable(&path.display().to_string()),
            Self::Stdin => "standard input".to_owned(),
        }
    }

    /// The name of the file without its folders, for titles.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::File(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                console::printable(&name.to_string_lossy())
            }
            Self::Stdin => self.name(),
        }
    }

    /// The identity of the file that is read; `None` for a terminal, a socket or a pipe that is
    /// read.
    pub(crate) fn file_id(&self) -> Option<FileId> {
        match self {
            Self::File(path) => FileId::of_contents(path),
            Self::Stdin => FileId::of_stdin(),
        }
    }

    /// Opens the input for reading.
    pub(crate) fn open(&self) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::File(path) => Box::new(File::open(path)?),
            Self::Stdin => Box::new(io::stdin()),
        })
    }

    /// Reads all bytes; fails if there are more than `limit`: a device may be endless.
    pub(crate) fn bytes(&self, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open()?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::other(format!("more than {}", shown(limit))));
        }
        Ok(bytes)
    }

    /// Reads a trace; prints the inferred unit, and warnings about rows that look wrong.
    pub(crate) fn trace(
        &self,
        unit: Option<u32>,
        priority_from: Option<&str>,
        limits: &Limits,
    ) -> Result<Trace, TraceError> {
        let trace = match self {
            Self::File(path) => Trace::open_within(path, unit, priority_from, limits),
            Self::Stdin => Trace::from_reader_within(io::stdin(), &self.name(), unit, priority_from, limits),
        }?;
        if let (None, Some(unit)) = (unit, trace.unit()) {
            console::say(format_args!("radixkv: {unit} tokens per hash id, inferred from the rows; --unit sets it"));
        }
        for warning in trace.warnings() {
            console::say(format_args!("radixkv: warning: {warning}"));
        }
        Ok(trace)
    }

    /// Fails if standard output is the file that is read.
    pub(crate) fn check_stdout(&self) -> Result<(), OutputError> {
        if self.file_id().is_some_and(|input| FileId::of_stdout() == Some(input)) {
            return Err(OutputError::IsInput { path: "standard output".into() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_standard_input() {
        assert_eq!(Input::new(Path::new("-")), Input::Stdin);
        assert_eq!(Input::new(Path::new("./-")).name(), "./-");
        assert_eq!(Input::new(Path::new("some/trace.jsonl")).title(), "trace.jsonl");
    }
}
