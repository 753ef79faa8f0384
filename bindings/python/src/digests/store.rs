//! The class `DigestStore`: a namespace of a region, with tiers below it. The methods on blocks are
//! in `verbs`.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pyo3::{PyTraverseError, PyVisit};
use radixkv_region::Namespace;
use radixkv_tiers::{Layout, LayoutError};

use super::batch::{CANCELLED, DONE, FAILED, MISS};
use super::below::Below;
use super::engine::{Engine, Running};
use super::errors;
use super::region::{DigestRegion, quota};
use super::sealing::Key;
use crate::errors::{catch, keep_exception, released};
use crate::fork::Held;
use crate::lease::unpicklable;
use crate::numbers::{RANK, number, number_or_none, pair};
use crate::tiers::{Above, Opened, Settings};

/// Maximum number of copying threads of a store.
const MOST_THREADS: usize = 256;

/// A store of digest-keyed blocks: one namespace in a region, and tiers below it.
///
/// DigestStore(region, namespace, *, key_bytes, block_bytes, model, dtype, hash_scheme,
/// hash_seed="", layout="", rank=None, block_tokens=1, checksum=True, tiers=(), threads=2,
/// max_in_flight=65536, encryption_key=None)
///
/// - namespace: its name in the region. All arguments up to checksum must equal those that the
///   region has for this name. Texts have at most 120 bytes.
/// - key_bytes: bytes of each key, 16 to 36. block_bytes: bytes of each block.
/// - hash_scheme, hash_seed: how the engine computes keys, and the resolved seed.
/// - layout: how keys and values are arranged in a block.
/// - rank: (tensor-parallel rank, number of ranks), where ranks count from 0; None means one copy
///   for all ranks.
/// - checksum: whether a store computes a checksum of a block's bytes, which every load compares.
/// - tiers: dicts, from top to bottom: {"type": "files", "folder": ..., "bytes": ...}, and, if the
///   wheel was built with the features, {"type": "redis", "url": ...} and {"type": "objects",
///   "url": ...}.
/// - threads: number of copying threads. max_in_flight: maximum blocks in batches whose outcomes
///   were not returned.
/// - encryption_key: 32 bytes, for AES-256-GCM (feature `encryption`). All stores of this process
///   encrypt at most 2^32 times with one key, then storing fails. Other processes and restarts count
///   again, except within one namespace of one region, whose seals the region counts.
///
/// `store`, `load`, `lookup` and `remove` return the number of a batch immediately. Threads of the
/// store do the work without the interpreter, and `poll` or `wait` returns the outcomes: one byte
/// for each key, MISS, DONE, FAILED or CANCELLED. Until then the caller must not touch the memory,
/// which is read or written directly, without a copy. A store writes to the region and to every
/// tier. A load asks the region and then the tiers, and puts blocks from a tier into the region.
/// Nothing waits for another process.
///
/// Correctness depends on the digest, because tokens are not compared. Use SHA-256 over everything
/// that the namespace does not specify. Any number of threads may use a store. Raises RegionError.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct DigestStore {
    held: Held<Mutex<Option<Arc<Running>>>>,
    namespace: String,
    pub(super) key_bytes: usize,
    pub(super) block_bytes: usize,
}

impl DigestStore {
    pub(super) fn running(&self) -> PyResult<Arc<Running>> {
        let running = self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The error is a Python object: it is created without the lock, because other threads hold
        // the GIL while they wait for the lock.
        running.ok_or_else(released)
    }
}

#[pymethods]
impl DigestStore {
    /// The block was not found.
    #[classattr]
    const MISS: u8 = MISS;
    /// The block was loaded, found or removed; or it was stored in the region or in at least one
    /// tier.
    #[classattr]
    const DONE: u8 = DONE;
    /// A tier failed, or there was no room for a stored block in the region or any tier.
    #[classattr]
    const FAILED: u8 = FAILED;
    /// The batch was cancelled before the block was started.
    #[classattr]
    const CANCELLED: u8 = CANCELLED;

    #[new]
    #[pyo3(signature = (region, namespace, *, key_bytes, block_bytes, model, dtype, hash_scheme, hash_seed = "",
        layout = "", rank = None, block_tokens = 1, checksum = true, tiers = None, threads = 2, max_in_flight = 65_536,
        encryption_key = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        region: &DigestRegion,
        namespace: &str,
        #[pyo3(from_py_with = number)] key_bytes: usize,
        #[pyo3(from_py_with = number)] block_bytes: usize,
        model: &str,
        dtype: &str,
        hash_scheme: &str,
        hash_seed: &str,
        layout: &str,
        rank: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = number)] block_tokens: u32,
        checksum: bool,
        tiers: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = number)] threads: usize,
        #[pyo3(from_py_with = number)] max_in_flight: usize,
        encryption_key: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        if !(1..=MOST_THREADS).contains(&threads) {
            return Err(PyValueError::new_err(format!("threads is {threads}: must be 1 to {MOST_THREADS}")));
        }
        if max_in_flight == 0 {
            return Err(PyValueError::new_err("max_in_flight is 0: must be at least 1"));
        }
        let rank = rank.map(|given| pair(&given, "rank", RANK)).transpose()?;
        if let Some((rank, ranks)) = rank.filter(|(rank, ranks)| rank >= ranks) {
            return Err(errors::layout_of_tier(LayoutError::Rank { rank, ranks }));
        }
        let key = encryption_key.as_deref().map(Key::of).transpose()?;
        let named = Namespace::new(namespace, key_bytes, block_bytes)
            .model(model)
            .dtype(dtype)
            .arrangement(layout)
            .block_tokens(block_tokens)
            .hash(hash_scheme, hash_seed)
            .checksum(checksum);
        let named = match rank {
            Some((rank, ranks)) => named.rank(rank, ranks),
            None => named,
        };
        // A tier recognizes the blocks of this store only by the layout.
        let below = || {
            let layout = Layout::new(model, dtype, block_tokens as usize, block_bytes)?
                .kv_layout(arranged(layout, namespace))?
                .digest_keys(key_bytes, hash_scheme, hash_seed)?;
            match rank {
                Some((rank, ranks)) => layout.tensor_parallel(rank, ranks),
                None => Ok(layout.every_rank()),
            }
        };
        let settings = tiers.iter().map(|given| given.try_iter()).collect::<PyResult<Vec<_>>>()?;
        let settings = settings.into_iter().flatten().enumerate();
        let above = Above::Region(namespace);
        let settings = settings.map(|(at, given)| Settings::of(&given?, at, &above)).collect::<PyResult<Vec<_>>>()?;
        let layout = if settings.is_empty() { None } else { Some(below().map_err(errors::layout_of_tier)?) };
        let region = region.region()?;
        let open = || {
            // The region never forgets a namespace: it is added after the tiers are open.
            region.check_namespace(&named, key.is_some()).map_err(errors::namespace)?;
            let layout = layout.map(|layout| Key::seal(key.as_ref(), layout));
            let mut below = Vec::with_capacity(settings.len());
            for (settings, layout) in settings.into_iter().zip(layout.iter().cycle()) {
                let (kind, opened) = settings.open(&above, layout, max_in_flight).map_err(errors::tier)?;
                let Opened::Queued(tier) = opened else { unreachable!("a region is refused below a region") };
                below.push(Below::new(kind, layout.clone(), tier));
            }
            let blocks = Key::open(key.as_ref(), &region, &named).map_err(errors::namespace)?;
            let engine = Engine::new(blocks, below, max_in_flight, key);
            Running::start(engine, threads).map_err(|error| errors::io("threads of the store", &error))
        };
        let running = py.detach(|| catch(open))??;
        let held = Held::new(Mutex::new(Some(Arc::new(running))));
        Ok(Self { held, namespace: namespace.to_owned(), key_bytes, block_bytes })
    }

    /// Bytes of a key.
    #[getter]
    fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of a block.
    #[getter]
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// The name of the namespace.
    #[getter]
    fn namespace(&self) -> &str {
        &self.namespace
    }
    /// The number of batches whose outcomes were not returned yet.
    #[getter]
    fn in_flight(&self) -> PyResult<usize> {
        Ok(self.running()?.engine.batches.in_flight())
    }

    /// set_quota(blocks): limits the blocks of the namespace in the region, from all processes;
    /// None means no limit. A store beyond the limit evicts a block of the namespace. Raises
    /// ValueError for 0.
    fn set_quota(&self, #[pyo3(from_py_with = number_or_none)] blocks: Option<u64>) -> PyResult<()> {
        self.running()?.engine.blocks.set_quota(quota(blocks)?);
        Ok(())
    }

    /// clear(): removes all blocks of the namespace from the region, but not from the tiers;
    /// returns their number. Scans all entries, and lets other Python threads run.
    fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        let running = self.running()?;
        py.detach(|| catch(|| running.engine.blocks.clear()))
    }

    /// stats(): returns counts of the blocks of finished batches, and the tiers' statistics, as a
    /// dict.
    ///
    /// `seals` is the number of encryptions with the store's key by all stores of this process, also
    /// closed ones; 0 without encryption.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let running = self.running()?;
        let (engine, dict, below) = (&running.engine, PyDict::new(py), PyList::empty(py));
        let counts = &engine.counts;
        // Relaxed: counts.
        dict.set_item("loaded", counts.loaded.load(Relaxed))?;
        dict.set_item("missed", counts.missed.load(Relaxed))?;
        dict.set_item("stored", counts.stored.load(Relaxed))?;
        dict.set_item("failed", counts.failed.load(Relaxed))?;
        dict.set_item("cancelled", counts.cancelled.load(Relaxed))?;
        dict.set_item("seals", engine.key.as_ref().map_or(0, Key::seals))?;
        for tier in &engine.below {
            let (stats, counted) = (tier.stats(), PyDict::new(py));
            counted.set_item("type", tier.kind)?;
            counted.set_item("hits", stats.hits)?;
            counted.set_item("misses", stats.misses.total())?;
            counted.set_item("stored", stats.stored_blocks)?;
            counted.set_item("evicted", stats.evicted_blocks)?;
            counted.set_item("read_bytes", stats.read_bytes)?;
            counted.set_item("written_bytes", stats.written_bytes)?;
            counted.set_item("errors", stats.errors.total())?;
            below.append(counted)?;
        }
        dict.set_item("tiers", below)?;
        Ok(dict)
    }

    /// close(): cancels blocks that were not started, waits until no thread touches callers' memory
    /// (for a tier, at most its timeout), and closes the tiers. Outcomes that were not returned are
    /// lost. Lets other Python threads run. Does nothing if the store is already closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(running) = self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        py.detach(|| catch(|| running.close()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<radixkv.DigestStore: {:?}, blocks of {} bytes>", self.namespace, self.block_bytes)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a store", "it belongs to this process: open one in each process"))
    }

    /// Shows only the owners of finished batches: the garbage collector might clear an owner while
    /// threads use its memory.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // No thread waits for the GIL with one of the two locks. In a forked child they may be
        // locked for good.
        let Some(running) = self.held.peek_here() else { return Ok(()) };
        let running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map_or(Ok(()), |running| running.engine.batches.try_for_owners(|owner| owner.traverse(&visit)))
    }
}

/// The arrangement of a namespace's blocks, for tiers. With each " of" of the layout escaped, no
/// other layout and namespace have the same text.
fn arranged(layout: &str, namespace: &str) -> String {
    format!("{} of {namespace}", layout.replace('\\', r"\\").replace(" of", r"\ of"))
}

impl Drop for DigestStore {
    /// Closes the store as `close` does, so the drop may wait for threads of a tier.
    fn drop(&mut self) {
        let held = self.held.take_to_drop().map(|held| held.into_inner().unwrap_or_else(PoisonError::into_inner));
        let mut running = held.flatten();
        if running.is_none() {
            return;
        }
        keep_exception(|py| {
            // Dropped with the GIL, which the owners of callers' memory need.
            if let Some(running) = running.take() {
                py.detach(|| running.close());
            }
        });
        // If the interpreter has ended, no Python thread can wait for it, so closing directly is
        // safe.
        if let Some(running) = running {
            running.close();
        }
    }
}
