//! The class `Namespace`: a handle to a separate set of sequences, with its limits and statistics.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use radixkv::{Keys, Quota};

use crate::errors::{self, catch};
use crate::fork::Held;
use crate::lease::{parts, unpicklable};
use crate::numbers::{number, number_or_none};
use crate::records;
use crate::stats;

/// A namespace: its sequences share blocks with each other, but never with another namespace.
/// Returned by `PrefixCache.namespace`.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct Namespace {
    held: Held<radixkv::Namespace>,
    is_logical: bool,
}

impl Namespace {
    pub(crate) fn new(namespace: radixkv::Namespace, is_logical: bool) -> Self {
        Self { held: Held::new(namespace), is_logical }
    }

    #[inline]
    pub(crate) fn get(&self) -> PyResult<&radixkv::Namespace> {
        self.held.get()
    }
}

#[pymethods]
impl Namespace {
    /// The parts of the namespace's name, a tuple of str.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        parts(py, &self.get()?.name())
    }

    /// Whether the namespace compares pairs of neighbouring tokens.
    #[getter]
    fn bigrams(&self) -> PyResult<bool> {
        Ok(self.get()?.keys() == Keys::Bigrams)
    }

    /// set_quota(cached_blocks=None, pinned_blocks=None, time_to_idle=None): sets the limits of the
    /// namespace; None means no limit.
    ///
    /// - cached_blocks: blocks beyond this number are evicted before other namespaces' blocks.
    /// - pinned_blocks: maximum blocks of its leases and reservations.
    /// - time_to_idle: seconds (or units of a logical clock) after which an unused prefix is
    ///   removed.
    ///
    /// Waits for the evictor, and lets other Python threads run.
    #[pyo3(signature = (*, cached_blocks = None, pinned_blocks = None, time_to_idle = None))]
    fn set_quota(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number_or_none)] cached_blocks: Option<usize>,
        #[pyo3(from_py_with = number_or_none)] pinned_blocks: Option<usize>,
        time_to_idle: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let namespace = self.get()?;
        let mut quota = Quota::default();
        quota.cached_blocks = cached_blocks;
        quota.pinned_blocks = pinned_blocks;
        let duration = |given| crate::cache::duration(given, "time_to_idle", self.is_logical);
        quota.time_to_idle = time_to_idle.as_ref().map(duration).transpose()?;
        py.detach(|| catch(|| namespace.set_quota(quota)))
    }

    /// The current limits: a dict of `set_quota`'s arguments.
    #[getter]
    fn quota<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::quota(py, self.get()?.quota(), self.is_logical)
    }

    /// The statistics of the namespace, a dict: cached_blocks, protected_blocks, reserved_blocks,
    /// quota, and lookups (a dict, or None if the namespace shares its counts with others).
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let namespace = self.get()?;
        let counted = py.detach(|| catch(|| namespace.stats()))?;
        stats::namespace(py, &counted, self.is_logical)
    }

    /// All cached runs, a list of `CachedRun` with parents before children. Waits for the evictor,
    /// and lets other Python threads run.
    fn walk<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let namespace = self.get()?;
        let runs = py.detach(|| {
            catch(|| {
                let mut runs = Vec::new();
                namespace.walk(|run| runs.push(records::Run::of(run)));
                runs
            })
        })?;
        records::runs(py, runs)
    }

    /// Empties the namespace: idle blocks are free when this returns, leased blocks when their
    /// leases end. Waits for the evictor.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let namespace = self.get()?;
        py.detach(|| catch(|| namespace.clear()))
    }

    /// Empties the namespace if nothing uses it. Raises NamespaceInUseError, and then nothing has
    /// changed. Waits for the evictor.
    fn clear_if_unused(&self, py: Python<'_>) -> PyResult<()> {
        let namespace = self.get()?;
        py.detach(|| catch(|| namespace.clear_if_unused()))?.map_err(errors::in_use)
    }

    /// Removes the namespace from its cache: same as `clear`, and later matches through this object
    /// are empty. Waits for the evictor.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        let namespace = self.get()?;
        py.detach(|| catch(|| namespace.remove()))
    }

    /// evict(blocks): evicts up to `blocks` blocks of this namespace; returns the number of evicted
    /// blocks. Waits for the evictor.
    fn evict(&self, py: Python<'_>, #[pyo3(from_py_with = number)] blocks: usize) -> PyResult<usize> {
        let namespace = self.get()?;
        py.detach(|| catch(|| namespace.evict(blocks)))
    }

    /// evict_idle(idle): evicts blocks that were not used for `idle` seconds (or units of a logical
    /// clock); returns their number. Waits for the evictor.
    fn evict_idle(&self, py: Python<'_>, idle: &Bound<'_, PyAny>) -> PyResult<usize> {
        let namespace = self.get()?;
        let idle = crate::cache::duration(idle, "idle", self.is_logical)?;
        py.detach(|| catch(|| namespace.evict_idle(idle)))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        Ok(self.get()? == other.get().get()?)
    }

    fn __hash__(&self) -> PyResult<u64> {
        let mut hasher = DefaultHasher::new();
        self.get()?.name().hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn __repr__(&self) -> PyResult<String> {
        let name = self.get()?.name();
        let bigrams = if name.keys() == Keys::Bigrams { ", bigrams" } else { "" };
        Ok(format!("<radixkv.Namespace: {:?}{bigrams}>", name.parts().collect::<Vec<_>>()))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a namespace", "it belongs to a cache in this process"))
    }
}
