//! Limits the output of a single step of a chat template. The library limits the total output of a
//! template, but counts the steps here only after they have made their output.

use std::fmt::{self, Write};
use std::io;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Maximum bytes that one step may make.
pub(super) const MOST: usize = 32 << 20;

/// Bytes that are counted for a value in a list.
const SLOT: usize = 32;

/// A buffer that refuses to grow beyond [`MOST`] bytes.
#[derive(Default)]
pub(super) struct Bounded(pub(super) Vec<u8>);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        io::Write::write_all(self, text.as_bytes()).map_err(|_| fmt::Error)
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST {
            return Err(io::Error::other(too_long().to_string()));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn too_long() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("one step makes more than {MOST} bytes"))
}

/// The text of a value; an error if it is longer than [`MOST`] bytes.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    let mut text = Bounded::default();
    write!(text, "{value}").map_err(|_| too_long())?;
    Ok(String::from_utf8(text.0).expect("texts alone were written"))
}

/// Whether the text of a value may be much longer than the value in memory: a list may contain the
/// same other list many times.
pub(super) fn is_nested(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain)
}

/// Calls one of Python's methods. The output of methods that can make a long text from a short one
/// is measured first.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let most = value.as_str().map_or(Ok(0), |receiver| measure(receiver, name, args))?;
    if most > MOST {
        return Err(too_long());
    }
    unknown_method_callback(state, value, name, args)
}

/// An upper bound of the bytes that a method of a text makes.
fn measure(receiver: &str, name: &str, args: &[Value]) -> Result<usize, Error> {
    let first = args.first().and_then(Value::as_str);
    Ok(match (name, first, args) {
        ("replace", Some(old), [_, new, ..]) => {
            let times = receiver.matches(old).count();
            times.saturating_mul(new.as_str().map_or(0, str::len)).saturating_add(receiver.len())
        }
        ("join", _, [values]) => {
            let mut bytes = 0_usize;
            for value in values.try_iter()? {
                let own = if is_nested(&value) { text(&value)?.len() } else { value.as_str().map_or(SLOT, str::len) };
                bytes = bytes.saturating_add(own).saturating_add(receiver.len());
                if bytes > MOST {
                    break;
                }
            }
            bytes
        }
        ("split", Some(separator), _) => SLOT.saturating_mul(receiver.matches(separator).count()),
        ("split", ..) => SLOT.saturating_mul(receiver.split_whitespace().count()),
        ("splitlines", ..) => SLOT.saturating_mul(receiver.lines().count()),
        ("format", ..) => {
            let mut longest = 0;
            for value in args {
                longest = longest
                    .max(value.as_str().map_or_else(|| text(value).map(|text| text.len()), |text| Ok(text.len()))?);
            }
            let numbers = receiver.split(|letter: char| !letter.is_ascii_digit()).filter(|number| !number.is_empty());
            let widths =
                numbers.map(|number| number.parse().unwrap_or(usize::MAX)).fold(0_usize, usize::saturating_add);
            let places = receiver.matches('{').count();
            receiver.len().saturating_add(widths).saturating_add(places.saturating_mul(longest))
        }
        _ => 0,
    })
}
