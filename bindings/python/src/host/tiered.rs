//! The class `TieredCache`: a cache over a host tier, and its methods.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3::{PyTraverseError, PyVisit};
use radixkv_host::{NoCopies, RemoteWait, TierMode, TieredBuildError, TieredBuilder, TieredSession};
use thread_local::ThreadLocal;

use super::claim::overlap;
use super::device_array::DeviceArray;
use super::errors as refusals;
use super::mover::{PythonMover, Referent};
use super::start::TieredStart;
use super::tier::{self, HostTier, write_policy};
use crate::cache::{PrefixCache, Shared, duration};
use crate::errors::{self, catch, keep_exception};
use crate::fork::Held;
use crate::lease::{Inserted, Lease, unpicklable};
use crate::lookup::{check_acquired, deadline};
use crate::memory::Bytes;
use crate::namespace::Namespace;
use crate::numbers::{number, number_or_none};
use crate::reservation::Reservation;
use crate::stats::dict;
use crate::tokens::Tokens;
use crate::waiting::Waiting;

/// The state that the methods use.
struct Tiers {
    /// One session for each thread that has called a method.
    sessions: ThreadLocal<TieredSession>,
    tiers: radixkv_host::TieredCache,
}

impl Tiers {
    /// This thread's session.
    fn session(&self) -> &TieredSession {
        self.sessions.get_or(|| self.tiers.session())
    }
}

/// A cache with a host tier below it: evicted blocks are copied to the host, and blocks that a
/// prompt finds there are copied back.
///
/// TieredCache(cache, host, mover, *, mode="exclusive", write_policy="back", mover_thread=None,
/// remote_wait=None, views=True)
///
/// - cache: a PrefixCache that owns its blocks. It stays usable: blocks that are evicted by its own
///   methods, its background thread, a quota or an age limit are copied as well.
/// - host: a HostTier.
/// - mover: copies between the device and the host.
///   - An array: the device's memory on the CPU, a writable C-contiguous array or buffer of shape
///     (blocks, bytes of a device block). Copied without the interpreter.
///   - An object with methods offload(copies) and onboard(copies), or a function of (direction,
///     copies), with direction "offload" (to the host) or "onboard". copies is a list of
///     `BlockCopy`. It must have copied when it returns: `async def` is refused. If it raises, or
///     returns a future or a generator, the move has failed: the exception is reported through
///     `sys.unraisablehook`, and the blocks are counted and treated as a miss. It is called on any
///     thread, also concurrently, and must not wait for another thread that uses the cache.
///   - None, for a tier that only counts.
/// - mode: "exclusive": a block is either on the device or in the host, and a hit moves it.
///   "shared": a hit also stays in the host, for other caches.
/// - write_policy: "back": a block is copied when the cache evicts it; "through": when it is
///   inserted (mode "shared").
/// - mover_thread: the maximum blocks that a separate mover thread copies at a time; None: the
///   calling thread copies.
/// - remote_wait: how long a request waits for remote tiers: None: not at all; "all": until they
///   have answered; or seconds.
/// - views: whether a mover gets the bytes. Use False for a mover that copies directly to the
///   memory that was given to the host tier, at host_block * block_bytes.
///
/// Every verb lets other Python threads run. Raises TierError, TypeError, ValueError, and then
/// nothing has changed.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct TieredCache {
    held: Held<Tiers>,
    cache: Py<PrefixCache>,
    host: Py<HostTier>,
    mover: Referent,
}

impl TieredCache {
    fn parts(&self) -> PyResult<(&Tiers, &Shared)> {
        Ok((self.held.get()?, self.cache.get().shared()?))
    }
}

fn remote_wait(given: Option<&Bound<'_, PyAny>>) -> PyResult<RemoteWait> {
    let Some(given) = given else { return Ok(RemoteWait::BestEffort) };
    let Ok(word) = given.cast::<PyString>() else { return duration(given, "remote_wait", false).map(RemoteWait::UpTo) };
    match &*word.to_string_lossy() {
        "all" => Ok(RemoteWait::All),
        word => Err(PyValueError::new_err(format!("remote_wait is {word:?}: must be None, \"all\" or seconds"))),
    }
}

/// The builder of tiers with this mover, and the Python object that the mover uses.
fn with_mover(
    shared: &Shared,
    host: &HostTier,
    mover: &Bound<'_, PyAny>,
    has_views: bool,
) -> PyResult<(TieredBuilder, Referent)> {
    let tier = host.tier()?;
    if mover.is_none() {
        if tier.block_bytes() > 0 {
            return Err(PyValueError::new_err("mover is None, but the host tier has bytes: pass a mover"));
        }
        return Ok((radixkv_host::TieredCache::builder(&shared.cache, tier, NoCopies), Referent::Nothing));
    }
    if !has_views && host.given_memory().is_none() {
        let message = "views=False needs a host tier that was built with memory=";
        return Err(PyValueError::new_err(message));
    }
    let has_methods = mover.hasattr("offload")? || mover.is_callable();
    if has_methods {
        let mover = Arc::new(PythonMover::of(mover, has_views)?);
        let built = radixkv_host::TieredCache::builder(&shared.cache, tier, Arc::clone(&mover));
        return Ok((built, Referent::Code(mover)));
    }
    let bytes = Bytes::of(mover, "mover")?;
    let (device, owner, size) = (bytes.addresses(), bytes.owner(), shared.origin.block_size);
    if host.given_memory().is_some_and(|host| overlap(host, &device)) {
        return Err(PyValueError::new_err("mover and the memory of the host tier overlap: use separate arrays"));
    }
    let host_size = tier.block_size();
    if size % host_size != 0 && host_size % size != 0 {
        return Err(refusals::tiered(TieredBuildError::BlockSizes { device: size, host: host_size }));
    }
    let block_bytes = tier.block_bytes().saturating_mul(size) / host_size;
    let array = DeviceArray::new(bytes, size, block_bytes, shared.cache.capacity_blocks())?;
    Ok((radixkv_host::TieredCache::builder(&shared.cache, tier, array), Referent::Memory(owner)))
}

#[pymethods]
impl TieredCache {
    #[new]
    #[pyo3(signature = (cache, host, mover, *, mode = "exclusive", write_policy = "back", mover_thread = None,
        remote_wait = None, views = true))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        cache: Py<PrefixCache>,
        host: Py<HostTier>,
        mover: &Bound<'_, PyAny>,
        mode: &str,
        write_policy: &str,
        #[pyo3(from_py_with = number_or_none)] mover_thread: Option<usize>,
        remote_wait: Option<Bound<'_, PyAny>>,
        views: bool,
    ) -> PyResult<Self> {
        let shared = cache.get().shared()?;
        let mode = match mode {
            "exclusive" => TierMode::Exclusive,
            "shared" => TierMode::Shared,
            _ => return Err(PyValueError::new_err(format!("mode is {mode:?}: must be \"exclusive\" or \"shared\""))),
        };
        let write = self::write_policy(write_policy, "write_policy")?;
        let wait = self::remote_wait(remote_wait.as_ref())?;
        let (builder, mover) = with_mover(shared, host.get(), mover, views)?;
        let builder = builder.mode(mode).write_policy(write).remote_wait(wait);
        let builder = mover_thread.into_iter().fold(builder, TieredBuilder::mover_thread);
        shared.set_tiered();
        let tiers = py.detach(|| catch(|| builder.build()))?.map_err(refusals::tiered)?;
        Ok(Self { held: Held::new(Tiers { sessions: ThreadLocal::new(), tiers }), cache, host, mover })
    }

    /// The PrefixCache.
    #[getter]
    fn cache(&self, py: Python<'_>) -> Py<PrefixCache> {
        self.cache.clone_ref(py)
    }

    /// The HostTier.
    #[getter]
    fn host(&self, py: Python<'_>) -> Py<HostTier> {
        self.host.clone_ref(py)
    }

    /// acquire(tokens, room=0, namespace=None, *, timeout=None): matches the tokens in all tiers,
    /// reserves blocks for the tokens that the device lacks and for `room` more, and copies blocks
    /// from the tiers below into them; if there are too few blocks, takes nothing. Returns a
    /// `TieredStart`.
    ///
    /// Otherwise like `PrefixCache.acquire`. Evicted blocks are copied to the host first. If the
    /// mover fails, the request starts with the tokens that the device had.
    #[pyo3(signature = (tokens, room = 0, namespace = None, *, timeout = None))]
    fn acquire(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] room: usize,
        namespace: Option<PyRef<'_, Namespace>>,
        timeout: Option<Bound<'_, PyAny>>,
    ) -> PyResult<TieredStart> {
        let (tiers, shared) = self.parts()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let deadline = timeout.as_ref().map(deadline).transpose()?;
        let tokens = Tokens::of_any_number(tokens, "tokens")?;
        check_acquired(tokens.as_slice(), room)?;
        let tokens = tokens.boxed();
        let start = py.detach(|| {
            catch(|| match deadline {
                None => tiers.session().acquire(namespace, &tokens, room),
                Some(deadline) => tiers.session().acquire_until(namespace, &tokens, room, deadline),
            })
        })?;
        TieredStart::new(py, start.map_err(errors::reserve)?, shared.origin)
    }

    /// acquire_async(tokens, room=0, namespace=None): returns an awaitable of a `TieredStart`, for
    /// asyncio's event loop.
    ///
    /// Waits for blocks like `PrefixCache.acquire_async`, and for the mover thread; without one,
    /// the event loop's thread copies. Uses the blocks that remote tiers have delivered when the
    /// request is served.
    #[pyo3(signature = (tokens, room = 0, namespace = None))]
    fn acquire_async<'py>(
        slf: &Bound<'py, Self>,
        tokens: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number)] room: usize,
        namespace: Option<PyRef<'py, Namespace>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (tiers, shared) = slf.get().parts()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let tokens = Tokens::of_any_number(tokens, "tokens")?;
        check_acquired(tokens.as_slice(), room)?;
        let request = catch(|| tiers.tiers.acquire_async(namespace, tokens.boxed(), room))?;
        Waiting::starting(request, slf.clone().unbind(), shared.origin).awaitable(slf.py())
    }

    /// insert(lease, tokens, blocks, namespace=None): same as `PrefixCache.insert`; with
    /// write_policy="through", also copies the inserted blocks to the host.
    ///
    /// - lease: `TieredStart.lease`, or another lease of this cache, in this namespace.
    ///
    /// Raises ValueError for a lease of another namespace, and then nothing has changed.
    #[pyo3(signature = (lease, tokens, blocks, namespace = None))]
    fn insert<'py>(
        &self,
        py: Python<'py>,
        lease: PyRef<'py, Lease>,
        tokens: &Bound<'py, PyAny>,
        blocks: PyRef<'py, Reservation>,
        namespace: Option<PyRef<'py, Namespace>>,
    ) -> PyResult<Bound<'py, Inserted>> {
        let (tiers, shared) = self.parts()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let tokens = Tokens::of(tokens)?.boxed();
        let lease = lease.again_for(&shared.cache, &tokens)?;
        if let Some(leased) = lease.namespace().filter(|leased| **leased != namespace.name()) {
            let (given, leased) = (namespace.name(), leased.parts().collect::<Vec<_>>());
            let given = given.parts().collect::<Vec<_>>();
            let message =
                format!("the lease is of namespace {leased:?}, {given:?} was given: pass the lease's namespace");
            return Err(PyValueError::new_err(message));
        }
        let lent = blocks.lend(&shared.cache)?;
        let inserted = py.detach(|| catch(|| tiers.session().insert(namespace, &lease, &tokens, lent)))?;
        match inserted {
            Ok(inserted) => Bound::new(py, Inserted::new(inserted, shared.origin)),
            Err(refused) => {
                blocks.put_back(refused.reservation)?;
                Err(errors::insert(refused.kind))
            }
        }
    }

    /// reserve(blocks, *, paid_by=None, running=False, timeout=None): same as
    /// `PrefixCache.reserve`. Evicted blocks are copied to the host.
    #[pyo3(signature = (blocks, *, paid_by = None, running = false, timeout = None))]
    fn reserve(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] blocks: usize,
        paid_by: Option<PyRef<'_, Namespace>>,
        running: bool,
        timeout: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Reservation> {
        self.held.get()?;
        self.cache.get().reserve(py, blocks, paid_by, running, timeout)
    }

    /// evict(blocks): evicts up to `blocks` blocks of the device, copies them to the host, and
    /// frees them; returns their number.
    fn evict(&self, py: Python<'_>, #[pyo3(from_py_with = number)] blocks: usize) -> PyResult<usize> {
        let tiers = self.held.get()?;
        py.detach(|| catch(|| tiers.tiers.evict(blocks)))
    }

    /// demote(tokens, namespace=None): moves a prompt that is not expected soon to the front of the
    /// eviction order; in mode "shared" it is also copied to the host immediately. Returns the
    /// number of tokens that the device has.
    #[pyo3(signature = (tokens, namespace = None))]
    fn demote(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        namespace: Option<PyRef<'_, Namespace>>,
    ) -> PyResult<usize> {
        let (tiers, shared) = self.parts()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let tokens = Tokens::of(tokens)?.boxed();
        py.detach(|| catch(|| tiers.session().demote(namespace, &tokens)))
    }

    /// prefetch(tokens, namespace=None): copies the blocks of an expected prompt one level up: from
    /// the host to the device, if enough blocks are free, and from remote tiers to the host.
    /// Returns whether copies to the device are in progress or done. Does not count as a lookup or
    /// a use.
    #[pyo3(signature = (tokens, namespace = None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        namespace: Option<PyRef<'_, Namespace>>,
    ) -> PyResult<bool> {
        let (tiers, shared) = self.parts()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let tokens = Tokens::of(tokens)?.boxed();
        py.detach(|| catch(|| tiers.session().prefetch(namespace, &tokens)))
    }

    /// clear(): empties all namespaces on the device and in the host. This process does not find
    /// the cleared blocks again, not even in remote tiers.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let tiers = self.held.get()?;
        py.detach(|| catch(|| tiers.tiers.clear()))
    }

    /// clear_namespace(namespace): same as `clear` for one namespace.
    fn clear_namespace(&self, py: Python<'_>, namespace: PyRef<'_, Namespace>) -> PyResult<()> {
        let (tiers, shared) = self.parts()?;
        let namespace = shared.namespace(Some(&namespace))?;
        py.detach(|| catch(|| tiers.tiers.clear_namespace(namespace)))
    }

    /// stats(): returns the statistics of the copies since the tiers were built, a dict of ints.
    /// "host" is the dict of `HostTier.stats`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tiers = &self.held.get()?.tiers;
        let counted = catch(|| tiers.stats())?;
        let counts = dict!(py, counted, evicted_blocks dropped_blocks bypassed_blocks offloaded_tokens offloaded_bytes
            onboarded_tokens remote_tokens onboarded_bytes lacking_blocks incomplete_blocks failed_offload_blocks
            failed_onboard_tokens);
        counts.set_item("host", tier::stats(py, tiers.host())?)?;
        Ok(counts)
    }

    fn __repr__(&self) -> PyResult<String> {
        let tiers = &self.held.get()?.tiers;
        let (device, host) = (tiers.cache().capacity_blocks(), tiers.host().capacity_blocks());
        Ok(format!("<radixkv.TieredCache: {device} blocks over {host} host blocks>"))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a cache", "it belongs to this process: build one in each process"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.cache)?;
        visit.call(&self.host)?;
        self.mover.traverse(&visit)
    }

    fn __clear__(&self) {
        self.mover.clear();
    }
}

impl Drop for TieredCache {
    /// Releases the GIL: the drop may wait for threads that need it.
    fn drop(&mut self) {
        let mut tiers = self.held.take_to_drop();
        if tiers.is_some() {
            keep_exception(|py| py.detach(|| drop(tiers.take())));
        }
    }
}
