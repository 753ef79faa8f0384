//! Writes JSON like Python's `json.dumps`: a space after each comma and colon, and characters not
//! escaped to ASCII.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::bounded::Bounded;

/// The JSON of a value, limited to the output of a template's step. With `indent`, on several
/// lines.
pub(super) fn dumps(value: &impl Serialize, indent: Option<usize>) -> Result<String, serde_json::Error> {
    let mut bytes = Bounded::default();
    match indent {
        Some(spaces) => {
            let spaces = " ".repeat(spaces);
            value.serialize(&mut Serializer::with_formatter(
                &mut bytes,
                PrettyFormatter::with_indent(spaces.as_bytes()),
            ))?;
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, Spaced))?,
    }
    Ok(String::from_utf8(bytes.0).expect("JSON is UTF-8"))
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
