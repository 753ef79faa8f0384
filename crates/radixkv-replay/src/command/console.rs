//! Standard output and standard error; either may be full, or closed by its reader.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Writes a message to standard error; a message that cannot be written is dropped.
pub(crate) fn say(message: impl Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Prints a text and a line end on standard output, to the last byte, unless its reader has closed it.
pub(crate) fn print(text: &str) -> io::Result<()> {
    unless_closed(writeln!(io::stdout(), "{text}").and_then(|()| flush()))
}

/// Flushes standard output: at the end of the process a failure could not be reported.
pub(crate) fn flush() -> io::Result<()> {
    io::stdout().flush()
}

/// No error if the reader has closed the stream.
pub(crate) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
