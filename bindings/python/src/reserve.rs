//! The methods of `PrefixCache` that reserve and evict blocks, serve an engine's own pool, and
//! change settings.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use radixkv::{BlockRequest, ExternalPool};

use crate::blocks;
use crate::cache::{PrefixCache, Shared};
use crate::errors::{self, catch, exception};
use crate::lookup::{check_acquired, deadline};
use crate::namespace::Namespace;
use crate::numbers::number;
use crate::records;
use crate::reservation::Reservation;
use crate::tokens::Tokens;
use crate::waiting::Waiting;

/// Evictions of up to this many blocks keep the GIL: they take less time than releasing and
/// reacquiring it.
const FEW_BLOCKS: usize = 64;

impl Shared {
    fn external(&self) -> PyResult<ExternalPool<'_>> {
        let refused = || exception("ExternalPoolError", "the cache owns its blocks: build it with external=True", &[]);
        self.cache.external().ok_or_else(refused)
    }
}

fn request<'a>(blocks: usize, payer: Option<&'a radixkv::Namespace>, running: bool) -> BlockRequest<'a> {
    let mut request = BlockRequest::new(blocks);
    if let Some(namespace) = payer {
        request = request.paid_by(namespace);
    }
    if running { request.for_running_sequence() } else { request }
}

#[pymethods]
impl PrefixCache {
    /// reserve(blocks, *, paid_by=None, running=False, timeout=None): reserves `blocks` blocks, all
    /// or none; returns a `Reservation`.
    ///
    /// If fewer are free, evicts exactly the missing number, in the policy's order.
    /// - paid_by: the Namespace whose quota the blocks count against.
    /// - running: whether the blocks are for a running sequence. Such requests wait ahead of
    ///   requests that admit a sequence.
    /// - timeout: seconds to wait in the queue if leases and reservations hold too many blocks;
    ///   other Python threads run meanwhile. None: does not wait.
    ///
    /// Raises ReserveError (ExhaustedError, OverQuotaError, TimedOutError, TooLargeError,
    /// ExternalPoolError) and ForeignHandleError, and then reserves nothing.
    #[pyo3(signature = (blocks, *, paid_by = None, running = false, timeout = None))]
    pub(crate) fn reserve(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] blocks: usize,
        paid_by: Option<PyRef<'_, Namespace>>,
        running: bool,
        timeout: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Reservation> {
        let shared = self.shared()?;
        let payer = paid_by.is_some().then(|| shared.namespace(paid_by.as_ref())).transpose()?;
        let deadline = timeout.as_ref().map(deadline).transpose()?;
        let request = request(blocks, payer, running);
        let reserved = match deadline {
            None => shared.evicting(py, || shared.session().reserve(request))?,
            Some(deadline) => py.detach(|| catch(|| shared.session().reserve(request.until(deadline))))?,
        };
        Ok(Reservation::new(reserved.map_err(errors::reserve)?, shared.origin))
    }

    /// reserve_async(blocks, *, paid_by=None, running=False): returns an awaitable of a
    /// `Reservation`, for asyncio's event loop.
    ///
    /// While leases and reservations hold too many blocks, waits in the same queue as `reserve` and
    /// `acquire`, without a thread. Cancelling the awaitable leaves the queue; use
    /// `asyncio.timeout` for a deadline. When a retention expires, a background evictor wakes the
    /// request; with inline eviction, the next thread that evicts or settles does.
    ///
    /// Raises the errors of `reserve` except ExhaustedError and TimedOutError; OverQuotaError only
    /// if the quota's limit is lower than the request.
    #[pyo3(signature = (blocks, *, paid_by = None, running = false))]
    fn reserve_async<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] blocks: usize,
        paid_by: Option<PyRef<'py, Namespace>>,
        running: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shared = self.shared()?;
        let payer = paid_by.is_some().then(|| shared.namespace(paid_by.as_ref())).transpose()?;
        let request = catch(|| shared.cache.reserve_async(request(blocks, payer, running)))?;
        Waiting::reserving(request, shared.origin).awaitable(py)
    }

    /// acquire_async(tokens, room=0, namespace=None): returns an awaitable of (PrefixMatch,
    /// Reservation), the result of `acquire`.
    ///
    /// Waits like `reserve_async`, and holds no lease and no block meanwhile. Copies the tokens.
    /// Raises the errors of `acquire` except ExhaustedError and TimedOutError; OverQuotaError only
    /// if the quota's limit is lower than the whole sequence.
    #[pyo3(signature = (tokens, room = 0, namespace = None))]
    fn acquire_async<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number)] room: usize,
        namespace: Option<PyRef<'py, Namespace>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shared = self.shared()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let tokens = Tokens::of_any_number(tokens, "tokens")?;
        check_acquired(tokens.as_slice(), room)?;
        let request = catch(|| shared.cache.acquire_async(namespace, tokens.boxed(), room))?;
        Waiting::acquiring(request, shared.origin).awaitable(py)
    }

    /// evict(blocks): frees up to `blocks` blocks that no lease protects, in the policy's exact
    /// order; returns the number of freed blocks.
    ///
    /// Waits for the evictor. Lets other Python threads run if `blocks` is more than 64.
    fn evict(&self, py: Python<'_>, #[pyo3(from_py_with = number)] blocks: usize) -> PyResult<usize> {
        let shared = self.shared()?;
        if blocks <= FEW_BLOCKS {
            return shared.evicting(py, || shared.cache.evict(blocks));
        }
        py.detach(|| catch(|| shared.cache.evict(blocks)))
    }

    /// evict_into(blocks): evicts like `evict`, and returns the evicted runs, a list of `Evicted`
    /// in the order of eviction.
    ///
    /// The blocks stay reserved until an entry's `blocks` (a Reservation) is released: copy them
    /// elsewhere first. Waits for the evictor, and lets other Python threads run.
    fn evict_into<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] blocks: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let shared = self.shared()?;
        let evicted = py.detach(|| {
            catch(|| {
                let mut evicted = Vec::new();
                shared.cache.evict_into(blocks, &mut evicted);
                evicted
            })
        })?;
        records::evicted(py, evicted, shared.origin)
    }

    /// adopt(blocks): passes the engine's own blocks to the cache for an insert, all or none;
    /// returns a `Reservation`.
    ///
    /// - blocks: ids, a one-dimensional contiguous array or buffer of 32- or 64-bit integers, or a
    ///   list or another sequence.
    ///
    /// For a cache with external=True. Raises AdoptError, ExternalPoolError, TypeError, ValueError,
    /// and then nothing has changed.
    fn adopt(&self, blocks: &Bound<'_, PyAny>) -> PyResult<Reservation> {
        let shared = self.shared()?;
        let pool = shared.external()?;
        let blocks = Tokens::of_any_number(blocks, "blocks")?;
        let adopted = catch(|| pool.adopt(blocks.as_slice()))?.map_err(errors::adopt)?;
        Ok(Reservation::new(adopted, shared.origin))
    }

    /// take_evicted(): returns the ids of blocks that the engine owns again, each once: a new numpy
    /// array, int32, shape (n,).
    ///
    /// These are evicted blocks, blocks of cleared namespaces, and blocks of reservations that were
    /// released. For a cache with external=True. Raises ExternalPoolError.
    fn take_evicted<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shared = self.shared()?;
        let pool = shared.external()?;
        let mut taken = Vec::new();
        catch(|| pool.take_evicted(&mut taken))?;
        Ok(blocks::blocks(py, &taken)?.into_any())
    }

    /// grow(blocks): adds `blocks` free blocks, and returns their ids as a `range`. Raises
    /// GrowError, and then nothing has changed.
    fn grow<'py>(&self, py: Python<'py>, #[pyo3(from_py_with = number)] blocks: usize) -> PyResult<Bound<'py, PyAny>> {
        let added = catch(|| self.shared().map(|shared| shared.cache.grow(blocks)))??.map_err(errors::grow)?;
        py.import("builtins")?.call_method1("range", (added.start, added.end))
    }

    /// clear(): empties every namespace. Waits for the evictor, and lets other Python threads run.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        py.detach(|| catch(|| shared.cache.clear()))
    }

    /// invalidate_blocks(blocks): invalidates blocks whose keys and values are wrong; returns the
    /// number of them that were cached.
    ///
    /// Lookups no longer find these blocks or any block beyond them; leases stay
    /// (`Lease.is_invalidated`). Ids that are not cached are ignored. Waits for the evictor, and
    /// lets other Python threads run.
    fn invalidate_blocks(&self, py: Python<'_>, blocks: &Bound<'_, PyAny>) -> PyResult<usize> {
        let shared = self.shared()?;
        let blocks = Tokens::of_any_number(blocks, "blocks")?.boxed();
        py.detach(|| catch(|| shared.cache.invalidate_blocks(&blocks)))
    }

    /// set_policy(name): starts to replace the policy, without a pause; `settle` completes the
    /// replacement.
    fn set_policy(&self, py: Python<'_>, policy: &str) -> PyResult<()> {
        let shared = self.shared()?;
        let policy = crate::cache::policy(policy)?;
        py.detach(|| catch(|| shared.cache.settings().set_policy(policy)))
    }

    /// The current policy's name; the old one until a replacement is complete.
    #[getter]
    fn policy(&self) -> PyResult<String> {
        Ok(self.shared()?.cache.settings().policy().to_string())
    }

    /// The numbers of free blocks at which the background evictor starts and stops, (low, high);
    /// None if the cache evicts inline.
    #[getter]
    fn watermarks(&self) -> PyResult<Option<(usize, usize)>> {
        Ok(self.shared()?.cache.settings().watermarks().map(|marks| (marks.low, marks.high)))
    }

    /// set_watermarks(low, high): changes the watermarks immediately. Raises SettingError, and then
    /// nothing has changed.
    fn set_watermarks(
        &self,
        #[pyo3(from_py_with = number)] low: usize,
        #[pyo3(from_py_with = number)] high: usize,
    ) -> PyResult<()> {
        let shared = self.shared()?;
        let watermarks = radixkv::Watermarks::new(low, high);
        catch(|| shared.cache.settings().set_watermarks(watermarks))?.map_err(errors::setting)
    }

    /// set_time_to_idle(duration): sets the seconds (or units of a logical clock) after which an
    /// unused prefix is removed; None means never.
    fn set_time_to_idle(&self, py: Python<'_>, duration: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let shared = self.shared()?;
        let duration = duration.as_ref().map(|given| shared.duration(given, "time_to_idle")).transpose()?;
        py.detach(|| catch(|| shared.cache.settings().set_time_to_idle(duration)))
    }

    /// set_time(now): sets the time of a cache with clock="logical", an int. Raises ValueError for
    /// any other clock.
    fn set_time(&self, #[pyo3(from_py_with = number)] now: u64) -> PyResult<()> {
        let shared = self.shared()?;
        if !shared.is_logical {
            return Err(PyValueError::new_err("the clock is monotonic: build the cache with clock=\"logical\""));
        }
        catch(|| shared.cache.set_time(now))
    }

    /// run_once(): runs one bounded step of the evictor; returns True if more work is left. Waits
    /// for the evictor.
    fn run_once(&self, py: Python<'_>) -> PyResult<bool> {
        let shared = self.shared()?;
        py.detach(|| catch(|| shared.cache.run_once()))
    }

    /// settle(): brings the counts up to date and completes all pending work of the evictor. Waits
    /// for the evictor, and lets other Python threads run.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        py.detach(|| catch(|| shared.cache.settle()))
    }
}
