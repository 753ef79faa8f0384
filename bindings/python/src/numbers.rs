//! Numbers that a caller passes: one that is out of range is a `ValueError`, as other bad values
//! are.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// An integer in the range of its kind.
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

/// The same, or None.
pub(crate) fn number_or_none<'py, T>(given: &Bound<'py, PyAny>) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if given.is_none() { Ok(None) } else { number(given).map(Some) }
}
