//! Converts integer arguments. A number that is out of range raises `ValueError`, like other
//! invalid values, not `OverflowError`.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// Converts an integer that must be in the range of `T`.
pub(crate) fn number<'py, T>(given: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    given.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(given.py()) {
            return error;
        }
        PyValueError::new_err(format!("{given} is negative, or too large for {}", std::any::type_name::<T>()))
    })
}

/// Same as [`number`], but also accepts None.
pub(crate) fn number_or_none<'py, T>(given: &Bound<'py, PyAny>) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if given.is_none() { Ok(None) } else { number(given).map(Some) }
}
