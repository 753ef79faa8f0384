//! Standard output and standard error, either of which may be full, or closed at the other end.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Says something on standard error. If it cannot be said there, nothing can be done about it.
pub(crate) fn say(message: impl Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Prints a text and a line end on standard output, to the last byte, unless its reader has read enough.
pub(crate) fn print(text: &str) -> io::Result<()> {
    unless_closed(writeln!(io::stdout(), "{text}").and_then(|()| flush()))
}

/// Sends what was printed on its way: at the end of the process it would be too late to say that this failed.
pub(crate) fn flush() -> io::Result<()> {
    io::stdout().flush()
}

/// A reader that has read enough is no fault.
pub(crate) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
