//! Reads token arguments: arrays and buffers directly, other objects through a numpy array,
//! sequences item by item.

use std::cell::Cell;
use std::fmt::Display;

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::integers::{has_negative, narrow};
use crate::memory::{ACCEPTED, Items, Region, as_signed, as_signed_wide, as_unsigned};
use crate::sequences;

/// Maximum length of the token buffer that a thread keeps between two calls.
const KEPT_TOKENS: usize = 1 << 20;

thread_local! {
    static SCRATCH: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

/// This thread's reusable buffer with `len` tokens of unspecified value.
fn take_scratch(len: usize) -> Vec<u32> {
    let mut scratch = SCRATCH.take();
    scratch.resize(len, 0);
    scratch
}

enum Source<'py> {
    Region(Region<'py>),
    Copied(Vec<u32>),
}

/// The tokens of one call.
pub(crate) struct Tokens<'py>(Source<'py>);

impl<'py> Tokens<'py> {
    /// Reads at least one token, for comparing. 32-bit tokens are not copied, except in
    /// free-threaded builds.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let tokens = Self::of_any_number(object, "tokens")?;
        if tokens.as_slice().is_empty() {
            return Err(PyValueError::new_err("tokens is empty: at least one token is needed"));
        }
        Ok(tokens)
    }

    /// Reads any number of tokens or block ids. `name` is the argument's name for errors.
    pub(crate) fn of_any_number(object: &Bound<'py, PyAny>, name: &'static str) -> PyResult<Self> {
        let Some(region) = region_of(object, name)? else {
            let mut tokens = take_scratch(0);
            sequences::integers(object, name, &mut tokens)?;
            return Ok(Self(Source::Copied(tokens)));
        };
        Ok(Self(match region.items() {
            Items::U32(_) if !cfg!(Py_GIL_DISABLED) => Source::Region(region),
            Items::I32(tokens) if !cfg!(Py_GIL_DISABLED) => {
                check_signed(tokens, name)?;
                Source::Region(region)
            }
            items => Source::Copied(copy(items, name)?),
        }))
    }

    /// Reads at least one token, for storing. Always copied, so that no other thread can change
    /// them during the insert.
    pub(crate) fn stored(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let tokens = Self::of(object)?;
        Ok(match tokens.0 {
            Source::Region(ref region) => Self(Source::Copied(copy(region.items(), "tokens")?)),
            Source::Copied(_) => tokens,
        })
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        match &self.0 {
            Source::Copied(tokens) => tokens,
            Source::Region(region) => match region.items() {
                Items::U32(tokens) => tokens,
                Items::I32(tokens) => as_unsigned(tokens),
                Items::I64(_) | Items::U64(_) => unreachable!("wide tokens were copied"),
            },
        }
    }

    /// Copies tokens that are in the memory of a Python object, for a method that releases the GIL.
    pub(crate) fn copied(self) -> Self {
        if matches!(self.0, Source::Copied(_)) {
            return self;
        }
        let mut copied = take_scratch(0);
        copied.extend_from_slice(self.as_slice());
        Self(Source::Copied(copied))
    }

    /// Copies the tokens, for a request that outlives the call.
    pub(crate) fn boxed(&self) -> Box<[u32]> {
        self.as_slice().into()
    }
}

impl Drop for Tokens<'_> {
    fn drop(&mut self) {
        if let Source::Copied(tokens) = &mut self.0
            && tokens.capacity() <= KEPT_TOKENS
        {
            SCRATCH.set(std::mem::take(tokens));
        }
    }
}

/// The memory of an array or buffer, or of the numpy array that the object converts to; `None` for
/// sequences.
fn region_of<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Region<'py>>> {
    if let Some(region) = Region::of(object, name)? {
        return Ok(Some(region));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return Ok(None);
    }
    let (py, kind) = (object.py(), object.get_type().name()?);
    let through = |function: &str| py.import("numpy")?.call_method1(function, (object,));
    let array = if object.hasattr("__dlpack__")? {
        through("from_dlpack")
    } else if object.hasattr("__array__")? {
        through("asarray")
    } else if sequences::is_sequence(object)? {
        return Ok(None);
    } else {
        return Err(PyTypeError::new_err(format!("{name} is {kind}: {ACCEPTED}, and sequences of integers")));
    };
    let array = array.map_err(|refused| {
        if !is_refusal(py, &refused) {
            return refused;
        }
        let error = PyTypeError::new_err(format!("{name} is {kind}, which is not an array in CPU memory: {ACCEPTED}"));
        error.set_cause(py, Some(refused));
        error
    })?;
    Region::of(&array, name)
}

/// Whether an exception says that an object is not an array in CPU memory. Objects raise
/// BufferError or TypeError for that, and numpy also others. An exception without a traceback is
/// numpy's own: no Python code raised it.
fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    let is_of_numpy = || error.is_instance_of::<PyRuntimeError>(py) || error.is_instance_of::<PyValueError>(py);
    error.is_instance_of::<PyBufferError>(py)
        || error.is_instance_of::<PyTypeError>(py)
        || error.traceback(py).is_none() && is_of_numpy()
}

fn check_signed(tokens: &[i32], name: &str) -> PyResult<()> {
    if !has_negative(tokens) {
        return Ok(());
    }
    let at = tokens.iter().position(|&token| token < 0).unwrap_or_default();
    Err(out_of_range(name, at, tokens[at]))
}

#[cold]
fn out_of_range(name: &str, at: usize, given: impl Display) -> PyErr {
    PyValueError::new_err(format!("{name}[{at}] is {given}: must be an integer from 0 to 2^32 - 1"))
}

fn copy(items: Items<'_>, name: &str) -> PyResult<Vec<u32>> {
    let (len, is_signed) = match items {
        Items::I32(tokens) => (tokens.len(), true),
        Items::U32(tokens) => (tokens.len(), false),
        Items::I64(tokens) => (tokens.len(), true),
        Items::U64(tokens) => (tokens.len(), false),
    };
    let mut copied = take_scratch(len);
    let wide = match items {
        Items::U32(tokens) => {
            copied.copy_from_slice(tokens);
            return Ok(copied);
        }
        Items::I32(tokens) => {
            copied.copy_from_slice(as_unsigned(tokens));
            // Checks the copy, because the original may change meanwhile.
            check_signed(as_signed(&copied), name)?;
            return Ok(copied);
        }
        Items::I64(tokens) => tokens,
        Items::U64(tokens) => as_signed_wide(tokens),
    };
    if narrow(wide, &mut copied) {
        let at = wide.iter().position(|token| *token as u64 >> 32 != 0).unwrap_or_default();
        let token = if is_signed { i128::from(wide[at]) } else { i128::from(wide[at] as u64) };
        return Err(out_of_range(name, at, token));
    }
    Ok(copied)
}
