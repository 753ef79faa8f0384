//! The class `Subscription`, and the conversion of event batches to Python.

use pyo3::prelude::*;
use pyo3::types::PyList;
use radixkv::{CacheEvent, EventBatch, EvictionReason};

use crate::blocks::blocks;
use crate::handle::Handle;
use crate::lease::{parts, unpicklable};
use crate::records::{record, tokens};

/// An iterator over the batches of events of a cache; made by `PrefixCache.subscribe`.
///
/// The iteration ends when no batch is waiting; iterate again to get later batches. Never waits.
/// `close()`, the end of a `with` statement, or dropping the object ends the subscription.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct Subscription {
    handle: Handle<radixkv::Subscription>,
}

impl Subscription {
    pub(crate) fn new(subscription: radixkv::Subscription) -> Self {
        Self { handle: Handle::new(subscription) }
    }
}

#[pymethods]
impl Subscription {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = py.detach(|| self.handle.with(|events| events.try_next()))?;
        next.map(|taken| batch(py, &taken)).transpose()
    }

    /// The number of the next batch, if no batch is lost.
    #[getter]
    fn next_number(&self) -> PyResult<u64> {
        self.handle.with(|events| events.next_number())
    }

    /// Batches that were lost because the channel was full.
    #[getter]
    fn lost_batches(&self) -> PyResult<u64> {
        self.handle.with(|events| events.lost_batches())
    }

    /// Whether the cache was dropped and all batches were taken.
    #[getter]
    fn has_ended(&self) -> PyResult<bool> {
        self.handle.with(|events| events.has_ended())
    }

    /// Ends the subscription. Does nothing if it has ended.
    fn close(&self) -> PyResult<()> {
        self.handle.release()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.close()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a subscription", "it belongs to a cache in this process"))
    }
}

/// The name of an eviction reason in Python.
pub(crate) fn reason_name(reason: EvictionReason) -> &'static str {
    match reason {
        EvictionReason::Capacity => "capacity",
        EvictionReason::Quota => "quota",
        EvictionReason::Age => "age",
        EvictionReason::Invalidated => "invalidated",
        _ => "other",
    }
}

/// Converts a batch to an `EventBatch` of `_records.py`.
pub(crate) fn batch<'py>(py: Python<'py>, taken: &EventBatch) -> PyResult<Bound<'py, PyAny>> {
    let events = PyList::empty(py);
    for event in taken.events() {
        let event = match event {
            CacheEvent::Stored { namespace, parent, start, tokens: stored, blocks: ids, .. } => {
                record(py, "Stored", (parts(py, namespace)?, parent, start, tokens(py, stored)?, blocks(py, ids)?))?
            }
            CacheEvent::Removed { namespace, start, blocks: ids, reason, .. } => {
                record(py, "Removed", (parts(py, namespace)?, start, blocks(py, ids)?, reason_name(reason)))?
            }
            CacheEvent::Cleared { namespace, .. } => record(py, "Cleared", (parts(py, namespace)?,))?,
            _ => continue,
        };
        events.append(event)?;
    }
    record(py, "EventBatch", (taken.number(), events))
}
