//! Converts numbers given as arguments. A number that is out of range raises `ValueError`, like
//! other invalid values, not `OverflowError`. Exceptions of the caller's own `__index__` and
//! `__float__` propagate.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyTuple};

use crate::given::refusal;

/// A type of integer arguments.
pub(crate) trait Integer: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr> {
    /// The range of the type, for errors.
    const RANGE: &'static str;
}

impl Integer for u32 {
    const RANGE: &'static str = "0 to 2^32 - 1";
}

impl Integer for u64 {
    const RANGE: &'static str = "0 to 2^64 - 1";
}

impl Integer for usize {
    const RANGE: &'static str = if usize::BITS == 64 { u64::RANGE } else { u32::RANGE };
}

impl Integer for i64 {
    const RANGE: &'static str = "-2^63 to 2^63 - 1";
}

/// Why an object is not an integer of the required type.
pub(crate) enum Refused {
    /// The object has no `__index__`.
    NotAnInteger(PyErr),
    OutOfRange,
    /// The object's `__index__` raised this exception.
    Raised(PyErr),
}

impl Refused {
    /// The error for the caller: TypeError or ValueError with the message that `message` makes from
    /// the text of `given`, or the exception of the object's own code.
    pub(crate) fn error(self, given: &Bound<'_, PyAny>, message: impl FnOnce(&str) -> String) -> PyErr {
        match self {
            Self::NotAnInteger(_) => refusal(given, |text| PyTypeError::new_err(message(text))),
            Self::OutOfRange => refusal(given, |text| PyValueError::new_err(message(text))),
            Self::Raised(error) => error,
        }
    }
}

/// Converts an integer, and says why an object is none.
pub(crate) fn integer<T: Integer>(given: &Bound<'_, PyAny>) -> Result<T, Refused> {
    // An int runs no code of the caller, so the only error is its range.
    if given.is_instance_of::<PyInt>() {
        return given.extract().map_err(|_| Refused::OutOfRange);
    }
    index(given)?.extract().map_err(|_| Refused::OutOfRange)
}

/// The int that an object stands for, by its `__index__`.
fn index<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Refused> {
    static INDEX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = given.py();
    let called = INDEX.import(py, "operator", "index").and_then(|index| index.call1((given,)));
    called.map_err(|error| {
        let has_none = matches!(given.get_type().hasattr("__index__"), Ok(false));
        if has_none { Refused::NotAnInteger(error) } else { Refused::Raised(error) }
    })
}

/// Converts an integer that must be in the range of `T`.
pub(crate) fn number<T: Integer>(given: &Bound<'_, PyAny>) -> PyResult<T> {
    integer(given).map_err(|refused| match refused {
        Refused::NotAnInteger(error) => error,
        refused => refused.error(given, |text| format!("{text} is out of range: must be an int from {}", T::RANGE)),
    })
}

/// Same as [`number`], but also accepts None.
pub(crate) fn number_or_none<T: Integer>(given: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    if given.is_none() { Ok(None) } else { number(given).map(Some) }
}

/// Converts a number to a float; `None` for an int that no float holds. `accepted` says what the
/// argument `name` accepts. Exceptions of the object's own `__float__` propagate.
pub(crate) fn float(given: &Bound<'_, PyAny>, name: &str, accepted: &str) -> PyResult<Option<f64>> {
    let error: PyErr = match given.extract() {
        Ok(float) => return Ok(Some(float)),
        Err(error) => error,
    };
    if given.is_instance_of::<PyInt>() && error.is_instance_of::<PyOverflowError>(given.py()) {
        return Ok(None);
    }
    let kind = given.get_type();
    if kind.hasattr("__float__")? || kind.hasattr("__index__")? {
        return Err(error);
    }
    Err(refusal(given, |text| PyTypeError::new_err(format!("{name} is {text}: must be {accepted}"))))
}

/// The accepted values of arguments named `rank`.
pub(crate) const RANK: &str = "(rank, ranks) of ints from 0 to 2^32 - 1";

/// Converts a tuple of two integers. `name` is the argument's name, and `accepted` says what it
/// accepts, for errors.
pub(crate) fn pair<T: Integer>(given: &Bound<'_, PyAny>, name: &str, accepted: &str) -> PyResult<(T, T)> {
    let message = |text: &str| format!("{name} is {text}: must be {accepted}");
    let Ok(tuple) = given.cast::<PyTuple>() else {
        return Err(refusal(given, |text| PyTypeError::new_err(message(text))));
    };
    if tuple.len() != 2 {
        return Err(refusal(given, |text| PyValueError::new_err(message(text))));
    }
    let item = |at| -> PyResult<T> { integer(&tuple.get_item(at)?).map_err(|refused| refused.error(given, message)) };
    Ok((item(0)?, item(1)?))
}
