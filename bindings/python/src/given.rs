//! Texts of the caller's objects, for error messages.

use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// Maximum characters of an object's text. A longer text is cut.
const LONGEST: usize = 200;

/// Makes the error that refuses `given`, from the object's text. If making the text was
/// interrupted, for example by KeyboardInterrupt, returns that exception.
#[cold]
pub(crate) fn refusal(given: &Bound<'_, PyAny>, error: impl FnOnce(&str) -> PyErr) -> PyErr {
    match text(given) {
        Ok(text) => error(&text),
        Err(interrupt) => interrupt,
    }
}

/// `str(given)`, or the object's type if it has no text: `str` of a huge int raises ValueError, and
/// the caller's own `__repr__` may raise anything.
fn text(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = given.py();
    let text = match given.str() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(error) if error.is_instance_of::<PyException>(py) && !error.is_instance_of::<PyMemoryError>(py) => {
            return described(given);
        }
        Err(interrupt) => return Err(interrupt),
    };
    Ok(match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    })
}

fn described(given: &Bound<'_, PyAny>) -> PyResult<String> {
    if given.is_instance_of::<PyInt>() {
        let bits = given.py().get_type::<PyInt>().call_method1("bit_length", (given,))?;
        return Ok(format!("an int of {} bits", bits.extract::<u64>()?));
    }
    Ok(format!("an object of type {}", given.get_type().name()?.to_string_lossy()))
}
