//! Reads lists, tuples and other sequences item by item. Reading runs the caller's code, which may
//! change the sequence, and whose length and items may contradict each other.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::numbers::{Integer, Refused, integer};

/// Whether an object is a list, a tuple, or another `collections.abc.Sequence`. A str is refused.
pub(crate) fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return Ok(true);
    }
    if object.is_instance_of::<PyString>() {
        return Ok(false);
    }
    object.is_instance(&object.py().import("collections.abc")?.getattr("Sequence")?)
}

/// Calls `read` with each item and its index. Raises ValueError if the number of items is not the
/// length of the sequence. `name` is the argument's name for errors.
pub(crate) fn each<'py>(
    given: &Bound<'py, PyAny>,
    name: &str,
    mut read: impl FnMut(usize, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    let len = given.len()?;
    let mut items = given.try_iter()?;
    for at in 0..len {
        let Some(item) = items.next() else { return Err(changed(name, len, "fewer")) };
        read(at, &item?)?;
    }
    match items.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(changed(name, len, "more")),
        Some(Err(error)) => Err(error),
    }
}

#[cold]
fn changed(name: &str, len: usize, given: &str) -> PyErr {
    PyValueError::new_err(format!("{name} has length {len}, but {given} items: it must not change while it is read"))
}

/// Appends the integers of a sequence to `integers`.
pub(crate) fn integers<T: Integer>(given: &Bound<'_, PyAny>, name: &str, integers: &mut Vec<T>) -> PyResult<()> {
    each(given, name, |at, item| {
        integers.push(integer(item).map_err(|refused| refused_item::<T>(item, name, at, refused))?);
        Ok(())
    })
}

#[cold]
fn refused_item<T: Integer>(item: &Bound<'_, PyAny>, name: &str, at: usize, refused: Refused) -> PyErr {
    if let Refused::NotAnInteger(_) = refused {
        let kind = item.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
        return PyTypeError::new_err(format!("{name}[{at}] is {kind}: must be an integer"));
    }
    refused.error(item, |text| format!("{name}[{at}] is {text}: must be an integer from {}", T::RANGE))
}
