//! The class `DigestRegion`: shared memory for blocks. Stores open namespaces in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use radixkv_region::{DigestLayout, LayoutError, Memory, Miss};

use super::errors;
use crate::errors::{catch, released};
use crate::fork::Held;
use crate::lease::unpicklable;
use crate::numbers::number_or_none;

/// A region of blocks in shared memory. All processes of the host that open the same name share it.
///
/// DigestRegion(name, block_bytes=None, size=None)
///
/// - name: the name of a file in `/dev/shm`, or, if it contains a slash, the path of a file; the
///   file must belong to this user. None for memory of this process only.
/// - block_bytes: bytes of the largest block of any namespace.
/// - size: bytes of memory, all allocated immediately.
///
/// Opens the region, or creates it if it does not exist. An existing region must have the same
/// block_bytes and size; without both arguments, the region must exist, and its sizes are used.
/// Each process finds the blocks that others stored. A process that is killed at any moment
/// corrupts nothing, and the entries that it held are recovered. A full region evicts the least
/// recently used blocks. The file stays when all processes have ended: `unlink` removes it. Raises
/// RegionError.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct DigestRegion {
    held: Held<Mutex<Option<Arc<radixkv_region::DigestRegion>>>>,
    path: Option<PathBuf>,
    layout: DigestLayout,
}

impl DigestRegion {
    pub(super) fn region(&self) -> PyResult<Arc<radixkv_region::DigestRegion>> {
        let region = self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Made without the lock, as in `DigestStore::running`.
        region.ok_or_else(released)
    }

    fn open(name: Option<&str>, layout: Option<DigestLayout>) -> PyResult<Self> {
        use radixkv_region::DigestRegion as Region;
        let path = name.map(path_of).transpose()?;
        let place = path.as_ref().map_or_else(|| "the region".to_owned(), |path| path.display().to_string());
        let opened = match (&path, &layout) {
            (Some(path), Some(layout)) => Region::open_or_create(path, layout),
            (Some(path), None) => Region::open_existing(path),
            (None, Some(layout)) => {
                let memory = Memory::anonymous(layout.region_bytes().map_err(errors::layout)?);
                Region::format(memory.map_err(|error| errors::io(&place, &error))?, layout)
            }
            (None, None) => return Err(PyTypeError::new_err("a region without a name needs block_bytes and size")),
        };
        let region = opened.map_err(|error| errors::open(&place, error))?;
        check_owner(&region, &place)?;
        let layout = region.layout();
        Ok(Self { held: Held::new(Mutex::new(Some(Arc::new(region)))), path, layout })
    }
}

#[pymethods]
impl DigestRegion {
    #[new]
    #[pyo3(signature = (name, block_bytes = None, size = None))]
    fn new(
        py: Python<'_>,
        name: Option<String>,
        #[pyo3(from_py_with = number_or_none)] block_bytes: Option<usize>,
        #[pyo3(from_py_with = number_or_none)] size: Option<usize>,
    ) -> PyResult<Self> {
        let layout = match (block_bytes, size) {
            (Some(block_bytes), Some(size)) => Some(layout_within(block_bytes, size)?),
            (None, None) => None,
            _ => return Err(PyTypeError::new_err("pass both block_bytes and size, or neither")),
        };
        py.detach(|| catch(|| Self::open(name.as_deref(), layout)))?
    }

    /// The path of the file; None for memory of this process.
    #[getter]
    fn path(&self) -> Option<String> {
        self.path.as_ref().map(|path| path.display().to_string())
    }

    /// Bytes of the largest block.
    #[getter]
    fn block_bytes(&self) -> usize {
        self.layout.entry_bytes()
    }

    /// The number of blocks that the region can hold.
    #[getter]
    fn capacity_blocks(&self) -> usize {
        self.layout.capacity()
    }

    /// set_process_quota(blocks): limits the blocks in the region that this process stored; None
    /// means no limit. A store beyond the limit evicts a block that this process stored. Raises
    /// ValueError for 0.
    fn set_process_quota(&self, #[pyo3(from_py_with = number_or_none)] blocks: Option<u64>) -> PyResult<()> {
        self.region()?.set_process_quota(quota(blocks)?);
        Ok(())
    }

    /// stats(): returns statistics of the region's content and of this process's calls, as a dict.
    /// Scans all entries, so do not call it on a scheduler's thread. Lets other Python threads run.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let region = self.region()?;
        let stats = py.detach(|| catch(|| region.stats()))?;
        let (dict, misses) = (PyDict::new(py), PyDict::new(py));
        dict.set_item("capacity_blocks", stats.capacity)?;
        dict.set_item("blocks", stats.blocks)?;
        dict.set_item("bytes", stats.bytes)?;
        dict.set_item("in_flight", stats.in_flight)?;
        dict.set_item("processes", stats.processes)?;
        dict.set_item("hits", stats.hits)?;
        for reason in Miss::ALL {
            misses.set_item(miss_name(reason), stats.missed(reason))?;
        }
        dict.set_item("misses", misses)?;
        dict.set_item("stored", stats.stored)?;
        dict.set_item("evicted", stats.evicted)?;
        dict.set_item("expired", stats.expired)?;
        dict.set_item("recovered", stats.recovered)?;
        Ok(dict)
    }

    /// recover(): gives back entries that killed processes held; returns their number. Stores also
    /// do this, at most once a second, while they have requests. Lets other Python threads run.
    fn recover(&self, py: Python<'_>) -> PyResult<usize> {
        let region = self.region()?;
        py.detach(|| catch(|| region.recover()))
    }

    /// clear(): removes all blocks of all namespaces; returns their number. Lets other Python
    /// threads run.
    fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        let region = self.region()?;
        py.detach(|| catch(|| region.clear()))
    }

    /// unlink(): removes the region's file. Processes that have it open can still use it.
    fn unlink(&self) -> PyResult<()> {
        self.region()?;
        let Some(path) = &self.path else { return Ok(()) };
        fs::remove_file(path).map_err(|error| errors::io(&path.display().to_string(), &error))
    }

    /// close(): closes the region for this process once the stores over it are closed. Does nothing
    /// if it is already closed.
    fn close(&self) -> PyResult<()> {
        let region = self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner).take();
        catch(|| drop(region))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.close()
    }

    fn __repr__(&self) -> String {
        let place = self.path().unwrap_or_else(|| "memory of this process".to_owned());
        format!("<radixkv.DigestRegion: {} blocks of {} bytes, {place}>", self.capacity_blocks(), self.block_bytes())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a region", "it belongs to this process: open it by its name in each process"))
    }
}

/// A quota as the region counts it, where 0 means no limit. Refuses the number 0.
pub(super) fn quota(blocks: Option<u64>) -> PyResult<u64> {
    match blocks {
        Some(0) => Err(PyValueError::new_err("blocks is 0: must be at least 1, or None for no limit")),
        _ => Ok(blocks.unwrap_or(0)),
    }
}

/// The layout with the maximum number of blocks that fit in `size` bytes.
fn layout_within(block_bytes: usize, size: usize) -> PyResult<DigestLayout> {
    let needs = |blocks: u32| DigestLayout::new(block_bytes, blocks).region_bytes();
    let needed = needs(1).map_err(errors::layout)?;
    if needed > size {
        let message = format!("size is {size} bytes: one block of {block_bytes} bytes needs {needed}");
        return Err(errors::region("too_small", message, vec![("got", size.into()), ("needed", needed.into())]));
    }
    // `low` blocks fit; `high` blocks do not.
    let (mut low, mut high) = (1, u32::MAX);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match needs(middle) {
            Ok(needed) if needed <= size => low = middle,
            Ok(_) | Err(LayoutError::TooLarge { .. }) => high = middle,
            Err(error) => return Err(errors::layout(error)),
        }
    }
    Ok(DigestLayout::new(block_bytes, low))
}

/// The file of a region: a path, or a name in `/dev/shm`.
fn path_of(name: &str) -> PyResult<PathBuf> {
    if name.contains('/') {
        return Ok(name.into());
    }
    if matches!(name, "" | "." | "..") {
        return Err(PyValueError::new_err(format!("name is {name:?}: it must be the name of a file, or a path")));
    }
    Ok(Path::new("/dev/shm").join(name))
}

/// Refuses a file of another user, who could read and change the stored blocks: everyone can create
/// files in `/dev/shm`.
fn check_owner(region: &radixkv_region::DigestRegion, place: &str) -> PyResult<()> {
    let Some(owner) = region.file_owner().map_err(|error| errors::io(place, &error))? else { return Ok(()) };
    // The owner of a process's directory in /proc is its effective user.
    let user = fs::metadata("/proc/self").map_err(|error| errors::io("/proc/self", &error))?.uid();
    if owner == user {
        return Ok(());
    }
    let message = format!("{place} belongs to user {owner}, this process runs as user {user}: use another name");
    let carried = vec![("stored", u64::from(owner).into()), ("asked", u64::from(user).into())];
    Err(errors::region("other_owner", message, carried))
}

fn miss_name(miss: Miss) -> &'static str {
    match miss {
        Miss::Absent => "absent",
        Miss::BeingWritten => "being_written",
        Miss::OtherTokens => "other_keys",
        Miss::Expired => "expired",
        Miss::Overwritten => "overwritten",
        Miss::Damaged => "damaged",
        Miss::WrongChecksum => "wrong_checksum",
        Miss::Undecryptable => "undecryptable",
        _ => "other",
    }
}
