//! The methods of `PrefixCache` that report its content and statistics.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::cache::PrefixCache;
use crate::errors::{catch, exception};
use crate::events::{Subscription, batch};
use crate::lease::Lease;
use crate::numbers::number;
use crate::sequences;
use crate::stats;

#[pymethods]
impl PrefixCache {
    /// stats(): returns the statistics of the cache, a dict of ints, and of the bool `is_settled`.
    ///
    /// free_blocks + reserved_blocks + evictable_blocks + protected_blocks is capacity_blocks.
    /// Numbers are counts since the cache was built, unless their name says otherwise. Does not
    /// wait for other threads' evictions.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let shared = self.shared()?;
        stats::cache(py, &catch(|| shared.cache.stats())?)
    }

    /// block_counts(): returns the numbers of (free, reserved, evictable, protected) blocks, as in
    /// `stats`.
    fn block_counts(&self) -> PyResult<(usize, usize, usize, usize)> {
        let shared = self.shared()?;
        let stats = catch(|| shared.cache.stats())?;
        Ok((stats.free_blocks, stats.reserved_blocks, stats.evictable_blocks, stats.protected_blocks))
    }

    /// The number of free blocks, as in `stats`.
    #[getter]
    fn free_blocks(&self) -> PyResult<usize> {
        Ok(self.shared()?.cache.free_blocks())
    }

    /// lookups_by_namespace(): returns the hits and misses of each namespace's lookups, a list of
    /// (parts, dict). The last entry, whose parts are None, is the sum over all namespaces that
    /// share their counters.
    fn lookups_by_namespace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let shared = self.shared()?;
        stats::lookups_by_namespace(py, &catch(|| shared.cache.lookups_by_namespace())?)
    }

    /// subscribe(batches=1024): returns an iterator over later batches of events. A channel buffers
    /// at most `batches` batches; more are lost.
    ///
    /// There are no events for blocks that are already cached: take a `snapshot` after subscribing.
    #[pyo3(signature = (batches = 1024))]
    fn subscribe(&self, py: Python<'_>, #[pyo3(from_py_with = number)] batches: usize) -> PyResult<Subscription> {
        let shared = self.shared()?;
        Ok(Subscription::new(py.detach(|| catch(|| shared.cache.subscribe(batches)))?))
    }

    /// snapshot(): returns the current content, an `EventBatch` of `Stored` events, parents before
    /// children. Its number is that of the next batch that a subscriber gets. Waits for the
    /// evictor, and lets other Python threads run.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shared = self.shared()?;
        let taken = py.detach(|| catch(|| shared.cache.snapshot()))?;
        batch(py, &taken)
    }

    /// shared_spans(leases): returns for each lease how many of the leases share its blocks: a list
    /// of (blocks, leases) from the lease's beginning.
    ///
    /// Raises ForeignHandleError and ReleasedError.
    fn shared_spans(&self, leases: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<(usize, usize)>>> {
        let (shared, given) = (self.shared()?, leases);
        if !sequences::is_sequence(given)? {
            let kind = given.get_type().name()?;
            return Err(PyTypeError::new_err(format!("leases is {kind}: must be a sequence of leases")));
        }
        let mut leases = Vec::new();
        sequences::each(given, "leases", |_, lease| {
            leases.push(lease.extract::<PyRef<'_, Lease>>()?);
            Ok(())
        })?;
        let spans = Lease::with_all(&leases, &shared.cache, |leases| shared.session().shared_spans(leases))?;
        Ok(spans.iter().map(|of_one| of_one.iter().map(|span| (span.blocks, span.leases)).collect()).collect())
    }

    /// validate(): checks every invariant, for tests and for a cache at rest. Raises
    /// InvariantError, which means a bug of radixkv.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        py.detach(|| catch(|| shared.cache.validate()))?
            .map_err(|violation| exception("InvariantError", violation, &[]))
    }
}
