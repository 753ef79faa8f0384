//! The class `DigestStore`: a namespace of a region with tiers below it, and its verbs.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use radixkv_region::{DigestBlocks, DigestKey, Namespace, Presence};
use radixkv_tiers::{Layout, LayoutError};

use super::arguments::{self, Memory};
use super::batch::{CANCELLED, DONE, FAILED, MISS, Verb};
use super::batches::Handed;
use super::engine::{Below, Engine, Running};
use super::errors;
use super::in_place::{DigestRooms, DigestSources};
use super::region::DigestRegion;
use crate::cache::duration;
use crate::errors::{catch, released};
use crate::fork::Held;
use crate::lease::unpicklable;
use crate::lookup::deadline;
use crate::numbers::{number, number_or_none};
use crate::tiers::{Above, Opened, Settings};

/// Keys from which on a look-up lets other Python threads run.
const MANY_KEYS: usize = 4096;
/// How long a verb waits before it looks for signals.
const LOOK: Duration = Duration::from_millis(200);
/// The most threads of a store that copy.
const MOST_THREADS: usize = 256;

/// Digest-keyed blocks: one namespace in a region, and tiers below it.
///
/// DigestStore(region, namespace, *, key_bytes, block_bytes, model, dtype, hash_scheme,
/// hash_seed="", layout="", rank=None, block_tokens=1, checksum=True, tiers=(), threads=2,
/// max_in_flight=65536, encryption_key=None)
///
/// - namespace: its name in the region. Everything up to checksum is compared with what the region
///   has under that name. Texts have at most 120 bytes.
/// - key_bytes: of every key, 16 to 36. block_bytes: of every block.
/// - hash_scheme, hash_seed: how the engine computes keys, and the seed as it was resolved.
/// - layout: how keys and values are arranged in a block.
/// - rank: (tensor-parallel rank, number of ranks); None is one copy for all ranks.
/// - checksum: of the bytes of a block, computed with the copy and compared by every load.
/// - tiers: dicts, from top to bottom: {"type": "files", "folder": ..., "bytes": ...}, and with the
///   features that the wheel was built with {"type": "redis", "url": ...} and {"type": "objects",
///   "url": ...}.
/// - threads: that copy. max_in_flight: blocks of batches that were not handed out.
/// - encryption_key: 32 bytes, for AES-256-GCM (feature `encryption`).
///
/// `store`, `load`, `lookup` and `remove` return the number of a batch at once; threads of the
/// store do the rest, without the interpreter, and `poll` or `wait` hands the outcomes out: one
/// byte for each key, of MISS, DONE, FAILED and CANCELLED. Until then the caller leaves the memory
/// alone: it is read or written as it is, without a copy. A store goes to the region and through to
/// every tier; a load asks the region and then the tiers, and what a tier has is put into the
/// region. Nothing waits for another process.
///
/// Exactness rests on the digest: tokens are not compared. Use SHA-256 over everything that the
/// namespace does not say. Any number of threads may use a store. Raises RegionError.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct DigestStore {
    held: Held<Mutex<Option<Arc<Running>>>>,
    namespace: String,
    key_bytes: usize,
    block_bytes: usize,
}

impl DigestStore {
    fn running(&self) -> PyResult<Arc<Running>> {
        let held = self.held.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(Arc::clone).ok_or_else(released)
    }

    fn keys(&self, given: &Bound<'_, PyAny>) -> PyResult<Vec<DigestKey>> {
        arguments::keys(given, self.key_bytes)
    }

    /// Accepts a batch, and lets the threads carry it out. Returns its number.
    fn submit(&self, verb: Verb, keys: Vec<DigestKey>, memory: Option<Memory>) -> PyResult<u64> {
        let running = self.running()?;
        let Memory { spans, owner } = memory.unwrap_or_else(|| Memory { spans: Vec::new(), owner: Box::new(()) });
        catch(|| match running.engine.batches.accept(verb, keys, spans, owner) {
            Ok(batch) => {
                running.engine.submit(&batch);
                Ok(batch.number)
            }
            Err((refused, _owner)) => Err(errors::refused(refused)),
        })?
    }

    /// Looks something up in the region at once; many keys let other Python threads run.
    fn look<T: Send>(
        &self,
        py: Python<'_>,
        keys: &[DigestKey],
        look: impl Fn(&DigestBlocks, &[DigestKey]) -> Result<T, radixkv_region::BatchError> + Sync,
    ) -> PyResult<T> {
        let running = self.running()?;
        let look = || catch(|| look(&running.engine.blocks, keys));
        let found = if keys.len() < MANY_KEYS { look() } else { py.detach(look) };
        found?.map_err(errors::of_region)
    }
}

fn time_to_live(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    given.map(|given| duration(given, "time_to_live", false)).transpose()
}

/// A batch as Python gets it. What kept its memory in place is dropped here.
fn outcomes(py: Python<'_>, handed: Handed) -> Bound<'_, PyBytes> {
    drop(handed.owner);
    PyBytes::new(py, &handed.outcomes)
}

#[pymethods]
impl DigestStore {
    /// The block was not found.
    #[classattr]
    const MISS: u8 = MISS;
    /// The block was loaded, found or removed; or it is stored, in one place at least.
    #[classattr]
    const DONE: u8 = DONE;
    /// A tier failed, or no place has room.
    #[classattr]
    const FAILED: u8 = FAILED;
    /// The batch was cancelled before the block was begun.
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
        rank: Option<(u32, u32)>,
        #[pyo3(from_py_with = number)] block_tokens: u32,
        checksum: bool,
        tiers: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = number)] threads: usize,
        #[pyo3(from_py_with = number)] max_in_flight: usize,
        encryption_key: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        if !(1..=MOST_THREADS).contains(&threads) {
            return Err(PyValueError::new_err(format!("threads is {threads}: 1 to {MOST_THREADS}")));
        }
        if max_in_flight == 0 {
            return Err(PyValueError::new_err("max_in_flight is 0: at least one block is in flight"));
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
        // A store of a tier knows its blocks by this, and by nothing else.
        let below = || {
            let layout = Layout::new(model, dtype, block_tokens as usize, block_bytes)?
                .kv_layout(format!("{layout} of {namespace}"))?
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
        let refused = |error: LayoutError| errors::region("layout", error, vec![]);
        let layout = if settings.is_empty() { None } else { Some(below().map_err(refused)?) };
        let region = region.region()?;
        let open = || {
            let blocks = Key::open(key.as_ref(), &region, &named).map_err(errors::namespace)?;
            let layout = layout.map(|layout| Key::seal(key.as_ref(), layout));
            let mut below = Vec::with_capacity(settings.len());
            for (settings, layout) in settings.into_iter().zip(layout.iter().cycle()) {
                let (kind, opened) = settings.open(&above, layout, max_in_flight).map_err(errors::tier)?;
                let Opened::Queued(tier) = opened else { unreachable!("a region is refused below a region") };
                below.push(Below::new(kind, layout.clone(), tier));
            }
            let engine = Engine::new(blocks, below, max_in_flight);
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

    /// exists(keys): one byte for each key: 1 if the region has the block, 2 if a process is
    /// writing it, else 0.
    ///
    /// - keys: a list or tuple of bytes objects of key_bytes bytes each, or one bytes object of all
    ///   keys one after another.
    ///
    /// At once, on this thread; the tiers below are not asked. Neither a use nor counted. Raises
    /// BatchError, TypeError.
    fn exists<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let presences = self.look(py, &self.keys(keys)?, DigestBlocks::exists)?;
        let byte = |presence| match presence {
            Presence::Absent => 0,
            Presence::Stored => 1,
            Presence::BeingWritten => 2,
        };
        Ok(PyBytes::new(py, &presences.into_iter().map(byte).collect::<Vec<u8>>()))
    }

    /// prefix(keys): how many keys the region has before the first one that it does not have. As
    /// `exists`.
    fn prefix<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<usize> {
        self.look(py, &self.keys(keys)?, DigestBlocks::prefix)
    }

    /// lookup(keys): asks the region, and the tiers for what it does not have. Returns a batch,
    /// whose outcomes are DONE for blocks that are there. Keys and errors as in `exists`, and
    /// FullError.
    fn lookup(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(Verb::Lookup, self.keys(keys)?, None)
    }

    /// store(keys, buffer, offsets=None, *, time_to_live=None): stores blocks out of a buffer.
    /// Returns a batch.
    ///
    /// - keys: as in `exists`.
    /// - buffer: C-contiguous, of any items: bytes, memoryview, a numpy array.
    /// - offsets: the byte at which each block begins, as a list or an array of integers; None: one
    ///   after another from byte 0 on.
    /// - time_to_live: seconds.
    ///
    /// Nothing may write to the blocks until the batch is handed out. A block that the region has
    /// keeps its bytes, and goes to no tier. Never waits. Raises BatchError, FullError, TypeError,
    /// ValueError; nothing was done then.
    #[pyo3(signature = (keys, buffer, offsets = None, *, time_to_live = None))]
    fn store(
        &self,
        keys: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        offsets: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::in_buffer(buffer, offsets.as_ref(), keys.len(), self.block_bytes, false)?;
        self.submit(Verb::Store(time_to_live), keys, Some(memory))
    }

    /// load(keys, buffer, offsets=None, *, time_to_live=None): loads blocks into a buffer that may
    /// be written to. Returns a batch.
    ///
    /// - time_to_live: seconds for which blocks that a tier had can be found in the region.
    ///
    /// Other arguments and errors as in `store`. Nothing may use the blocks until the batch is
    /// handed out. After another outcome than DONE the bytes of the block are unspecified.
    #[pyo3(signature = (keys, buffer, offsets = None, *, time_to_live = None))]
    fn load(
        &self,
        keys: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        offsets: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::in_buffer(buffer, offsets.as_ref(), keys.len(), self.block_bytes, true)?;
        self.submit(Verb::Load(time_to_live), keys, Some(memory))
    }

    /// store_from(keys, addresses, *, owner=None, time_to_live=None): as `store`, out of memory at
    /// absolute addresses, such as `tensor.data_ptr()`.
    ///
    /// The caller vouches for block_bytes readable bytes at each address until the batch is handed
    /// out; `owner` is referenced until then.
    #[pyo3(signature = (keys, addresses, *, owner = None, time_to_live = None))]
    fn store_from(
        &self,
        keys: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        owner: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::at_addresses(addresses, owner, keys.len(), self.block_bytes)?;
        self.submit(Verb::Store(time_to_live), keys, Some(memory))
    }

    /// load_into(keys, addresses, *, owner=None, time_to_live=None): as `load`, into memory at
    /// absolute addresses. The caller vouches as in `store_from`, and for no two blocks that
    /// overlap.
    #[pyo3(signature = (keys, addresses, *, owner = None, time_to_live = None))]
    fn load_into(
        &self,
        keys: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        owner: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::at_addresses(addresses, owner, keys.len(), self.block_bytes)?;
        self.submit(Verb::Load(time_to_live), keys, Some(memory))
    }

    /// remove(keys): removes blocks from the region and from all tiers. Returns a batch.
    fn remove(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(Verb::Remove, self.keys(keys)?, None)
    }

    /// poll(timeout=0.0): the batches that are done, each with one outcome for each key.
    ///
    /// Waits for the first one up to so many seconds, unless none is in flight, and lets other
    /// Python threads run. Each batch is handed out once.
    #[pyo3(signature = (timeout = None))]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
        let running = self.running()?;
        let batches = &running.engine.batches;
        let until = timeout.as_ref().map(deadline).transpose()?;
        let mut handed = catch(|| batches.poll(Duration::ZERO))?;
        while handed.is_empty() && batches.in_flight() > 0 {
            let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            handed = py.detach(|| catch(|| batches.poll(left.min(LOOK))))?;
            if handed.is_empty() {
                py.check_signals()?;
                if batches.is_closed() {
                    return Err(released());
                }
            }
        }
        Ok(handed.into_iter().map(|handed| (handed.number, outcomes(py, handed))).collect())
    }

    /// wait(batch, timeout=None): waits until this batch is done, and hands it out: its outcomes;
    /// None if so many seconds have passed. Lets other Python threads run.
    ///
    /// No `poll` hands out a batch while a thread waits for it. Raises KeyError for a batch that
    /// was handed out or never was.
    #[pyo3(signature = (batch, timeout = None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] batch: u64,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let running = self.running()?;
        let batches = &running.engine.batches;
        let until = timeout.as_ref().map(deadline).transpose()?;
        let unknown = || PyKeyError::new_err(format!("batch {batch} was handed out, or never was"));
        let waiter = batches.waiter(batch).ok_or_else(unknown)?;
        loop {
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            let waited = py.detach(|| catch(|| waiter.wait(left.min(LOOK))))?;
            if let Some(handed) = waited.map_err(|_| unknown())? {
                return Ok(Some(outcomes(py, handed)));
            }
            if left.is_zero() {
                return Ok(None);
            }
            py.check_signals()?;
            if batches.is_closed() {
                return Err(released());
            }
        }
    }

    /// cancel(batch): does not begin what of the batch was not begun: its blocks end as CANCELLED.
    /// The batch is handed out all the same, once nothing touches its memory.
    fn cancel(&self, #[pyo3(from_py_with = number)] batch: u64) -> PyResult<()> {
        if self.running()?.engine.batches.cancel(batch) {
            return Ok(());
        }
        Err(PyKeyError::new_err(format!("batch {batch} was handed out, or never was")))
    }

    /// Batches that were not handed out.
    #[getter]
    fn in_flight(&self) -> PyResult<usize> {
        Ok(self.running()?.engine.batches.in_flight())
    }

    /// set_quota(blocks): bounds how many blocks the namespace may have in the region, of all
    /// processes; None is no bound. A store beyond it evicts a block of the namespace.
    fn set_quota(&self, #[pyo3(from_py_with = number_or_none)] blocks: Option<u64>) -> PyResult<()> {
        self.running()?.engine.blocks.set_quota(blocks.unwrap_or(0));
        Ok(())
    }

    /// clear(): removes all blocks of the namespace from the region, and from no tier; how many.
    /// Looks at all entries, and lets other Python threads run.
    fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        let running = self.running()?;
        py.detach(|| catch(|| running.engine.blocks.clear()))
    }

    /// reserve(keys, *, time_to_live=None): room in the region for blocks that it does not have, to
    /// be written in place and published: `DigestRooms`. Keys and errors as in `exists`.
    ///
    /// The tiers get none of these blocks.
    #[pyo3(signature = (keys, *, time_to_live = None))]
    fn reserve(&self, keys: &Bound<'_, PyAny>, time_to_live: Option<Bound<'_, PyAny>>) -> PyResult<DigestRooms> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        DigestRooms::reserve(&self.running()?.engine.blocks, &keys, time_to_live)
    }

    /// locate(keys): where the region has blocks, for a device to copy them: `DigestSources`. Keys
    /// and errors as in `exists`. Counts as a use.
    fn locate(&self, keys: &Bound<'_, PyAny>) -> PyResult<DigestSources> {
        DigestSources::locate(&self.running()?.engine.blocks, &self.keys(keys)?)
    }

    /// touch(keys): counts a use of the blocks that the region has, at once; how many. Keys and
    /// errors as in `exists`. Refused for encrypted namespaces.
    fn touch(&self, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (keys, running) = (self.keys(keys)?, self.running()?);
        let located = || keys.iter().map(|key| Ok(usize::from(running.engine.blocks.locate(key)?.is_ok()))).sum();
        catch(|| -> Result<usize, _> { located() })?.map_err(errors::of_region)
    }

    /// stats(): blocks of batches that are done, and what the tiers count, as a dict.
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

    /// close(): cancels what was not begun, waits until nothing touches memory of callers (for a
    /// tier at most its timeout), and closes the tiers. Batches that were not handed out are lost.
    /// Lets other Python threads run. Does nothing if it is closed.
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
}

impl Drop for DigestStore {
    /// As `close`, but that threads of a tier may keep Python waiting.
    fn drop(&mut self) {
        let Ok(held) = self.held.get() else { return };
        let running = held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return };
        // Without an interpreter there is nothing that waits for it.
        if Python::try_attach(|py| py.detach(|| catch(|| running.close()))).is_none() {
            running.close();
        }
    }
}

/// The key of an encrypted namespace.
#[cfg(feature = "encryption")]
struct Key(radixkv_region::SealKey);
#[cfg(not(feature = "encryption"))]
enum Key {}

#[cfg(feature = "encryption")]
impl Key {
    fn of(given: &[u8]) -> PyResult<Self> {
        let wrong = |_| PyValueError::new_err(format!("encryption_key has {} bytes: 32 are needed", given.len()));
        Ok(Self(radixkv_region::SealKey::new(given.try_into().map_err(wrong)?)))
    }

    fn open(
        key: Option<&Self>,
        region: &Arc<radixkv_region::DigestRegion>,
        namespace: &Namespace,
    ) -> Result<DigestBlocks, radixkv_region::NamespaceError> {
        match key {
            Some(key) => region.sealed_namespace(namespace, key.0.clone()),
            None => region.namespace(namespace),
        }
    }

    fn seal(key: Option<&Self>, layout: Layout) -> Layout {
        match key {
            Some(key) => layout.encrypted(key.0.clone()),
            None => layout,
        }
    }
}

#[cfg(not(feature = "encryption"))]
impl Key {
    fn of(_: &[u8]) -> PyResult<Self> {
        let message = "encryption_key is given: this wheel was built without `encryption`";
        Err(errors::region("not_built", message, vec![("feature", "encryption".into())]))
    }

    fn open(
        _: Option<&Self>,
        region: &Arc<radixkv_region::DigestRegion>,
        namespace: &Namespace,
    ) -> Result<DigestBlocks, radixkv_region::NamespaceError> {
        region.namespace(namespace)
    }

    fn seal(_: Option<&Self>, layout: Layout) -> Layout {
        layout
    }
}
