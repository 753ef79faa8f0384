//! Writes to standard output and standard error; either may be full, or closed by its reader.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Writes a message to standard error; a message that cannot be written is dropped.
pub(crate) fn say(message: impl Display) {
    let lines: Vec<_> = message.to_string().split('\n').map(printable).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}

/// Escapes the control and invisible characters of a text. A name may contain any characters,
/// including control sequences of a terminal and characters that SVG forbids.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_obeyed(character) { shown.extend(character.escape_default()) } else { shown.push(character) }
    }
    shown
}

/// Whether a character is a control character, changes the direction of the text that follows, or
/// is invisible. Invisible characters can make two names look the same.
pub(crate) fn is_obeyed(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    character.is_control() || is_invisible
}

/// Prints a text and a newline on standard output and flushes it. No error if the reader has closed
/// it.
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_while_read(text).map(drop)
}

/// As [`print`], but returns whether the reader may still be there.
pub(crate) fn print_while_read(text: &str) -> io::Result<bool> {
    match writeln!(io::stdout(), "{text}").and_then(|()| flush()) {
        Ok(()) => Ok(true),
        closed => unless_closed(closed).map(|()| false),
    }
}

/// Flushes standard output now: a failure at the end of the process could not be reported.
pub(crate) fn flush() -> io::Result<()> {
    io::stdout().flush()
}

/// Ignores the error if the reader has closed the stream.
pub(crate) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(printable("a\u{1b}[31m\nb\u{85}"), "a\\u{1b}[31m\\nb\\u{85}");
        assert_eq!(printable("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}");
        assert_eq!(printable("日本語 \\ é"), "日本語 \\ é");
    }
}
