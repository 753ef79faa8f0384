//! The class `TieredStart`: the lease and the blocks of a new request over tiers.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::cache::Origin;
use crate::lease::{PrefixMatch, unpicklable};
use crate::reservation::Reservation;

/// The start of a request: a lease on the cached prefix, and blocks for the rest.
///
/// The engine computes from token `len_tokens` on. Both handles are released by `release()`, by a
/// `with` statement, or when Python drops them.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct TieredStart {
    /// A PrefixMatch on the blocks that the device has now, including whole blocks that were copied
    /// from the tiers below.
    #[pyo3(get)]
    lease: Py<PrefixMatch>,
    /// A Reservation of blocks for the tokens beyond the lease.
    #[pyo3(get)]
    blocks: Py<Reservation>,
    /// The number of tokens that the device already had.
    #[pyo3(get)]
    device_tokens: usize,
    /// The number of tokens that were copied from the host.
    #[pyo3(get)]
    host_tokens: usize,
    /// The number of tokens that were copied from remote tiers.
    #[pyo3(get)]
    remote_tokens: usize,
}

impl TieredStart {
    pub(crate) fn new(py: Python<'_>, start: radixkv_host::TieredStart, origin: Origin) -> PyResult<Self> {
        let radixkv_host::TieredStart { lease, cached, blocks, device_tokens, host_tokens, remote_tokens, .. } = start;
        let lease = Py::new(py, PrefixMatch::new(lease, cached, origin.block_size))?;
        let blocks = Py::new(py, Reservation::new(blocks, origin))?;
        Ok(Self { lease, blocks, device_tokens, host_tokens, remote_tokens })
    }
}

#[pymethods]
impl TieredStart {
    /// The number of tokens whose keys and values are on the device. Tokens beyond the lease are at
    /// the beginning of `blocks`; there are such tokens only if host blocks are smaller than device
    /// blocks.
    #[getter]
    fn len_tokens(&self) -> usize {
        self.device_tokens + self.host_tokens + self.remote_tokens
    }

    /// Releases the lease and the blocks. Does nothing if this was already done.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.lease.bind(py).call_method0("release")?;
        self.blocks.bind(py).call_method0("release")?;
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.release(py)
    }

    fn __repr__(&self) -> String {
        let Self { device_tokens, host_tokens, remote_tokens, .. } = self;
        format!(
            "<radixkv.TieredStart: {device_tokens} tokens on the device, {host_tokens} host, {remote_tokens} remote>"
        )
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("the start of a request", "it holds blocks of a cache in this process"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.lease)?;
        visit.call(&self.blocks)
    }
}
