//! Converts errors of the core to the package's exceptions, which `_errors.py` defines. Every call
//! into the core runs inside [`catch`].

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use radixkv::{
    AdoptError, BuildError, GrowError, InsertErrorKind, NamespaceInUse, ReserveError, RetainError, SettingError,
};

/// The value of an exception's attribute.
pub(crate) enum Carried {
    Number(usize),
    Word(&'static str),
    Text(String),
}

impl From<usize> for Carried {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Carried {
    fn from(number: u32) -> Self {
        Self::Number(number as usize)
    }
}

impl From<u64> for Carried {
    fn from(number: u64) -> Self {
        Self::Number(number as usize)
    }
}

impl From<String> for Carried {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&'static str> for Carried {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

/// Makes an exception of class `class`, with the values `carried` as attributes.
pub(crate) fn exception(class: &str, message: impl ToString, carried: &[(&str, Carried)]) -> PyErr {
    Python::attach(|py| {
        let made = || {
            let class = py.import("radixkv._errors")?.getattr(class)?;
            let numbers = PyDict::new(py);
            for (name, value) in carried {
                let value = match value {
                    Carried::Number(number) => number.into_bound_py_any(py)?,
                    Carried::Word(word) => word.into_bound_py_any(py)?,
                    Carried::Text(text) => text.into_bound_py_any(py)?,
                };
                numbers.set_item(name, value)?;
            }
            class.call((message.to_string(),), Some(&numbers))
        };
        made().map_or_else(|error| error, PyErr::from_value)
    })
}

/// Calls the core, and turns a panic into an `InternalError`; never raises a `PanicException`.
#[inline]
pub(crate) fn catch<R>(verb: impl FnOnce() -> R) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(verb)).map_err(|panic| internal(&*panic))
}

/// Runs the end of a handle that Python drops, unless the interpreter has ended. Raises nothing, and
/// keeps the exception that Python may be handling at a drop.
pub(crate) fn keep_exception(end: impl FnOnce(Python<'_>)) {
    Python::try_attach(|py| {
        let under_way = PyErr::take(py);
        // A drop cannot report a panic.
        let _ = catch_unwind(AssertUnwindSafe(|| end(py)));
        if let Some(error) = under_way {
            error.restore(py);
        }
    });
}

#[cold]
pub(crate) fn internal(panic: &(dyn Any + Send)) -> PyErr {
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    exception("InternalError", format!("a bug of radixkv: {}", words.unwrap_or("a panic without a message")), &[])
}

#[cold]
pub(crate) fn released() -> PyErr {
    exception("ReleasedError", "the handle was released, or another method has taken its value", &[])
}

#[cold]
pub(crate) fn forked() -> PyErr {
    let message = "the handle belongs to the parent process: build a new cache in the forked child";
    exception("ForkError", message, &[])
}

#[cold]
pub(crate) fn foreign(what: &str) -> PyErr {
    exception("ForeignHandleError", format!("the {what} belongs to another cache"), &[])
}

pub(crate) fn build(error: BuildError) -> PyErr {
    let carried: &[_] = &match error {
        BuildError::ZeroBlockSize => vec![("kind", "zero_block_size".into())],
        BuildError::ZeroCapacity => vec![("kind", "zero_capacity".into())],
        BuildError::CapacityTooLarge { capacity } => {
            vec![("kind", "capacity_too_large".into()), ("capacity", capacity.into())]
        }
        BuildError::Watermarks { low, high, capacity } => watermarks(low, high, capacity),
        BuildError::BlockSizeTooLarge { block_size } => {
            vec![("kind", "block_size_too_large".into()), ("block_size", block_size.into())]
        }
        BuildError::Shards { shards, most } => {
            vec![("kind", "shards".into()), ("shards", shards.into()), ("most", most.into())]
        }
        BuildError::NoThread { .. } => vec![("kind", "no_thread".into())],
        _ => vec![],
    };
    exception("BuildError", error, carried)
}

fn watermarks(low: usize, high: usize, capacity: usize) -> Vec<(&'static str, Carried)> {
    vec![("kind", "watermarks".into()), ("low", low.into()), ("high", high.into()), ("capacity", capacity.into())]
}

pub(crate) fn setting(error: SettingError) -> PyErr {
    let carried = match error {
        SettingError::Watermarks { low, high, capacity } => watermarks(low, high, capacity),
        _ => vec![("kind", "not_background".into())],
    };
    exception("SettingError", error, &carried)
}

pub(crate) fn reserve(error: ReserveError) -> PyErr {
    let (class, carried): (_, &[_]) = match error {
        ReserveError::Exhausted { requested, available } => {
            ("ExhaustedError", &[("requested", requested.into()), ("available", available.into())])
        }
        ReserveError::TimedOut { requested, available } => {
            ("TimedOutError", &[("requested", requested.into()), ("available", available.into())])
        }
        ReserveError::OverQuota { requested, pinned, limit } => {
            ("OverQuotaError", &[("requested", requested.into()), ("pinned", pinned.into()), ("limit", limit.into())])
        }
        ReserveError::TooLarge { requested, capacity } => {
            ("TooLargeError", &[("requested", requested.into()), ("capacity", capacity.into())])
        }
        ReserveError::External => ("ExternalPoolError", &[]),
        _ => ("ReserveError", &[]),
    };
    exception(class, error, carried)
}

pub(crate) fn insert(error: InsertErrorKind) -> PyErr {
    let carried = match error {
        InsertErrorKind::BlockCount { needed, given } => {
            vec![("kind", "block_count".into()), ("needed", needed.into()), ("given", given.into())]
        }
        InsertErrorKind::TooLong { tokens } => vec![("kind", "too_long".into()), ("tokens", tokens.into())],
        InsertErrorKind::OverQuota { requested, pinned, limit } => vec![
            ("kind", "over_quota".into()),
            ("requested", requested.into()),
            ("pinned", pinned.into()),
            ("limit", limit.into()),
        ],
        InsertErrorKind::SharedBlock { index } => vec![("kind", "shared_block".into()), ("index", index.into())],
        InsertErrorKind::NamespaceDropped => vec![("kind", "namespace_dropped".into())],
        InsertErrorKind::Invalidated => vec![("kind", "invalidated".into())],
        InsertErrorKind::TooManyBranches => vec![("kind", "too_many_branches".into())],
        _ => vec![],
    };
    exception("InsertError", error, &carried)
}

pub(crate) fn adopt(error: AdoptError) -> PyErr {
    let carried = match error {
        AdoptError::OutOfRange { block, capacity } => {
            vec![("kind", "out_of_range".into()), ("block", block.into()), ("capacity", capacity.into())]
        }
        AdoptError::Held { block } => vec![("kind", "held".into()), ("block", block.into())],
        _ => vec![],
    };
    exception("AdoptError", error, &carried)
}

pub(crate) fn grow(error: GrowError) -> PyErr {
    let GrowError { requested, capacity, limit, .. } = error;
    let carried = [("requested", requested.into()), ("capacity", capacity.into()), ("limit", limit.into())];
    exception("GrowError", error, &carried)
}

pub(crate) fn retain(error: RetainError) -> PyErr {
    let kind = match error {
        RetainError::NamespaceDropped => "namespace_dropped",
        RetainError::Invalidated => "invalidated",
        _ => "too_many_leases",
    };
    exception("RetainError", error, &[("kind", kind.into())])
}

pub(crate) fn in_use(error: NamespaceInUse) -> PyErr {
    exception(
        "NamespaceInUseError",
        error,
        &[("leased", error.leased_blocks.into()), ("reserved", error.reserved_blocks.into())],
    )
}
