//! The classes `DigestRooms` and `DigestSources`: addresses in the region, which a device writes to
//! or reads from without a copy.

use std::sync::Arc;
use std::time::Duration;

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use radixkv_region::{DigestBlocks, DigestKey, DigestPut, DigestRoom, DigestSource};

use super::batch::{DONE, FAILED, MISS};
use super::errors;
use crate::errors::catch;
use crate::fork::Held;
use crate::handle::Handle;
use crate::lease::unpicklable;
use crate::memory::new_array;

fn addresses_of<'py>(py: Python<'py>, addresses: &[u64]) -> PyResult<Bound<'py, PyArray1<u64>>> {
    new_array(py, addresses.len(), |array: &mut [u64]| array.copy_from_slice(addresses))
}

/// Space reserved in the region for blocks. Returned by `DigestStore.reserve`.
///
/// Other processes neither read nor write it before `publish`. It is given back by `release()`, at
/// the end of a `with` statement, or when Python drops it.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct DigestRooms {
    handle: Handle<Vec<DigestRoom>>,
    addresses: Vec<u64>,
    outcomes: Vec<u8>,
}

impl DigestRooms {
    pub(super) fn reserve(
        blocks: &Arc<DigestBlocks>,
        keys: &[DigestKey],
        time_to_live: Option<Duration>,
    ) -> PyResult<Self> {
        let (mut rooms, mut addresses, mut outcomes) = (Vec::new(), vec![0; keys.len()], vec![MISS; keys.len()]);
        for (index, key) in keys.iter().enumerate() {
            outcomes[index] = match catch(|| blocks.reserve(key, time_to_live))?.map_err(errors::of_region)? {
                Ok(mut room) => {
                    addresses[index] = room.as_mut_ptr().expose_provenance() as u64;
                    rooms.push(room);
                    DONE
                }
                Err(DigestPut::Present | DigestPut::InFlight) => MISS,
                Err(_) => FAILED,
            };
        }
        Ok(Self { handle: Handle::new(rooms), addresses, outcomes })
    }
}

#[pymethods]
impl DigestRooms {
    /// The address to write each block to: a new numpy array, uint64, shape (n,); 0 if no space was
    /// reserved for it.
    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        addresses_of(py, &self.addresses)
    }

    /// One byte for each key: DONE if space was reserved, MISS if the region has the block or
    /// another thread or process is writing it, FAILED if there is no space.
    #[getter]
    fn outcomes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.outcomes)
    }

    /// publish(): makes the blocks readable for all processes; returns their number. All writes to
    /// them must be complete. Reads the blocks once if the namespace has checksums, and lets other
    /// Python threads run.
    fn publish(&self, py: Python<'_>) -> PyResult<usize> {
        let rooms = self.handle.take()?;
        let count = rooms.len();
        py.detach(|| catch(|| rooms.into_iter().for_each(DigestRoom::publish)))?;
        Ok(count)
    }

    /// Gives the space back. Does nothing if it was already given back or published.
    fn release(&self) -> PyResult<()> {
        self.handle.release()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.release()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("reserved space of a region", "it belongs to this process"))
    }
}

/// Blocks in a region, for a device that copies them. Returned by `DigestStore.locate`.
///
/// The blocks are not protected: a copy is valid only if `intact` returns 1 for it afterwards.
/// Checksums are not compared.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct DigestSources {
    held: Held<Vec<Option<DigestSource>>>,
    addresses: Vec<u64>,
}

impl DigestSources {
    pub(super) fn locate(blocks: &Arc<DigestBlocks>, keys: &[DigestKey]) -> PyResult<Self> {
        let located = keys.iter().map(|key| {
            let found = catch(|| blocks.locate(key))?.map_err(errors::of_region)?;
            Ok(found.ok())
        });
        let sources: Vec<Option<DigestSource>> = located.collect::<PyResult<_>>()?;
        let address = |source: &DigestSource| source.as_ptr().expose_provenance() as u64;
        let addresses = sources.iter().map(|source| source.as_ref().map_or(0, address)).collect();
        Ok(Self { held: Held::new(sources), addresses })
    }
}

#[pymethods]
impl DigestSources {
    /// The address of each block: a new numpy array, uint64, shape (n,); 0 if the region does not
    /// have it.
    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        addresses_of(py, &self.addresses)
    }

    /// intact(): returns one byte for each key: 1 if all bytes that were read so far belong to the
    /// block, otherwise 0.
    fn intact<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let is_intact = |source: &Option<DigestSource>| source.as_ref().is_some_and(DigestSource::is_intact);
        let sources = self.held.get()?;
        Ok(PyBytes::new(py, &sources.iter().map(is_intact).map(u8::from).collect::<Vec<_>>()))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a location in a region", "it belongs to this process"))
    }
}
