//! The class `HostTier`: blocks in host memory, and remote tiers below it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pyo3::{PyTraverseError, PyVisit};
use radixkv::NamespaceName;
use radixkv_host::{Admission, HostBuilder, WritePolicy};
use radixkv_tiers::Layout;

use super::claim::Claim;
use super::errors;
use crate::cache::duration;
use crate::errors::{catch, exception, keep_exception};
use crate::fork::Held;
use crate::lease::{parts, unpicklable};
use crate::memory::{Bytes, Export};
use crate::namespace::Namespace;
use crate::numbers::{RANK, number, number_or_none, pair};
use crate::stats::dict;
use crate::tiers::{Above, Opened, Settings};
use crate::tokens::Tokens;

/// A tier in host memory that keeps blocks which caches evict.
///
/// HostTier(block_size, capacity_blocks=None, *, capacity_bytes=None, block_bytes=0, memory=None,
/// staging_blocks=0, admission="all", time_to_live=None, tiers=(), model="", dtype="", layout="",
/// rank=None, tier_write="back", tiers_in_flight=256, tiers_timeout=10)
///
/// - block_size: tokens in a host block; it must be a multiple or a divisor of the cache's block
///   size.
/// - capacity_blocks, or capacity_bytes: maximum size of the tier.
/// - block_bytes: bytes of a host block, for all its tokens; 0: the tier keeps no data and only
///   counts.
/// - memory: a writable C-contiguous buffer of at least (capacity_blocks + staging_blocks) *
///   block_bytes bytes, block i at i * block_bytes; None: the tier allocates memory. Do not touch
///   the buffer while the tier exists: other threads read and write it.
/// - staging_blocks: blocks beyond the capacity, for copies in progress; they also need memory.
/// - admission: "all", or "second_touch:N": a block is stored when it is evicted for the second
///   time; hashes of the last N blocks are remembered for this.
/// - time_to_live: seconds for which a block can be found.
/// - tiers: dicts of remote tiers, from top to bottom: those of `DigestStore`, and {"type":
///   "region", "path": ..., "blocks": ...}, shared memory in a file. Each needs its own store.
/// - model, dtype, layout, rank: the meaning of a block's bytes; a remote store with other values
///   is refused. With tiers, model and dtype are required.
/// - tier_write: "back": a block is written to remote tiers when it leaves the host; "through":
///   when it arrives.
/// - tiers_in_flight: maximum blocks in flight to or from remote tiers; beyond it, blocks are not
///   stored, or count as misses. tiers_timeout: seconds after which a fetch is abandoned.
///
/// A tier can outlive its caches: a later cache finds the blocks of an earlier one. Caches of one
/// process may share it. Raises TierError, RegionError (for remote tiers), TypeError and
/// ValueError.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct HostTier {
    held: Held<radixkv_host::HostTier>,
    /// The addresses and the owner of the caller's memory, if it gave any.
    given: Option<(Range<usize>, Arc<Py<Export>>)>,
}

impl HostTier {
    pub(super) fn tier(&self) -> PyResult<&radixkv_host::HostTier> {
        self.held.get()
    }

    pub(super) fn given_memory(&self) -> Option<&Range<usize>> {
        self.given.as_ref().map(|(addresses, _)| addresses)
    }
}

fn admission(given: &str) -> PyResult<Admission> {
    let remembered = given.strip_prefix("second_touch:").map(str::parse);
    match (given, remembered) {
        ("all", _) => Ok(Admission::All),
        (_, Some(Ok(remembered))) => Ok(Admission::SecondTouch { remembered }),
        _ => Err(PyValueError::new_err(format!("admission is {given:?}: must be \"all\" or \"second_touch:N\""))),
    }
}

pub(super) fn write_policy(given: &str, name: &str) -> PyResult<WritePolicy> {
    match given {
        "back" => Ok(WritePolicy::Back),
        "through" => Ok(WritePolicy::Through),
        _ => Err(PyValueError::new_err(format!("{name} is {given:?}: must be \"back\" or \"through\""))),
    }
}

/// The capacity of a tier in blocks.
fn capacity(blocks: Option<usize>, bytes: Option<usize>, block_bytes: usize) -> PyResult<usize> {
    match (blocks, bytes) {
        (Some(blocks), None) => Ok(blocks),
        (None, Some(bytes)) => bytes
            .checked_div(block_bytes)
            .ok_or_else(|| PyValueError::new_err("capacity_bytes needs block_bytes, the size of a block")),
        _ => Err(PyTypeError::new_err("pass either capacity_blocks or capacity_bytes")),
    }
}

/// Opens remote tiers, and adds them to the builder.
fn with_tiers(
    mut builder: HostBuilder,
    settings: Vec<Settings>,
    layout: &Layout,
    most: usize,
) -> PyResult<HostBuilder> {
    for settings in settings {
        let (_, opened) = settings.open(&Above::Host, layout, most).map_err(crate::digests::errors::tier)?;
        builder = match opened {
            Opened::Queued(tier) => builder.remote(tier),
            Opened::Region(tier) => builder.remote(*tier),
        };
    }
    Ok(builder)
}

#[pymethods]
impl HostTier {
    #[new]
    #[pyo3(signature = (block_size, capacity_blocks = None, *, capacity_bytes = None, block_bytes = 0, memory = None,
        staging_blocks = 0, admission = "all", time_to_live = None, tiers = None, model = "", dtype = "", layout = "",
        rank = None, tier_write = "back", tiers_in_flight = 256, tiers_timeout = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = number)] block_size: usize,
        #[pyo3(from_py_with = number_or_none)] capacity_blocks: Option<usize>,
        #[pyo3(from_py_with = number_or_none)] capacity_bytes: Option<usize>,
        #[pyo3(from_py_with = number)] block_bytes: usize,
        memory: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = number)] staging_blocks: usize,
        admission: &str,
        time_to_live: Option<Bound<'_, PyAny>>,
        tiers: Option<Bound<'_, PyAny>>,
        model: &str,
        dtype: &str,
        layout: &str,
        rank: Option<Bound<'_, PyAny>>,
        tier_write: &str,
        #[pyo3(from_py_with = number)] tiers_in_flight: usize,
        tiers_timeout: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let capacity = capacity(capacity_blocks, capacity_bytes, block_bytes)?;
        let mut builder = radixkv_host::HostTier::builder(block_size, capacity)
            .staging(staging_blocks)
            .admission(self::admission(admission)?)
            .remote_write(write_policy(tier_write, "tier_write")?)
            .remote_in_flight(tiers_in_flight);
        let rank = rank.map(|given| pair(&given, "rank", RANK)).transpose()?;
        let seconds = |given: &Bound<'_, PyAny>, name| duration(given, name, false);
        if let Some(given) = time_to_live {
            builder = builder.time_to_live(seconds(&given, "time_to_live")?);
        }
        if let Some(given) = tiers_timeout {
            builder = builder.remote_timeout(seconds(&given, "tiers_timeout")?);
        }
        let memory = memory.map(|given| Bytes::of(&given, "memory")).transpose()?;
        if memory.is_some() && block_bytes == 0 {
            return Err(PyValueError::new_err("memory needs block_bytes, the size of a block"));
        }
        let given = memory.as_ref().map(|memory| (memory.addresses(), memory.owner()));
        builder = match memory {
            Some(memory) => {
                let claim = Claim::of(memory.addresses()).ok_or_else(|| {
                    PyValueError::new_err("another host tier uses the memory: drop that tier and the caches over it")
                })?;
                builder.memory(block_bytes, memory.into_host_memory(claim))
            }
            None => builder.block_bytes(block_bytes),
        };
        let settings = tiers.iter().map(|given| given.try_iter()).collect::<PyResult<Vec<_>>>()?;
        let settings = settings.into_iter().flatten().enumerate();
        let settings =
            settings.map(|(at, given)| Settings::of(&given?, at, &Above::Host)).collect::<PyResult<Vec<_>>>()?;
        if !settings.is_empty() {
            if model.is_empty() || dtype.is_empty() {
                return Err(PyValueError::new_err("remote tiers need model and dtype, the meaning of a block's bytes"));
            }
            let layout = Layout::new(model, dtype, block_size, block_bytes).and_then(|facts| facts.kv_layout(layout));
            let layout = layout.and_then(|facts| match rank {
                Some((rank, ranks)) => facts.tensor_parallel(rank, ranks),
                None => Ok(facts),
            });
            let layout = layout.map_err(|error| errors::tier("layout", error, vec![]))?;
            // Enough for both directions, and for the blocks that lookups request.
            let most = tiers_in_flight.saturating_mul(4).max(1024);
            builder = py.detach(|| catch(|| with_tiers(builder, settings, &layout, most)))??;
        }
        let tier = py.detach(|| catch(|| builder.build()))?.map_err(errors::host)?;
        Ok(Self { held: Held::new(tier), given })
    }

    /// Tokens in a host block.
    #[getter]
    fn block_size(&self) -> PyResult<usize> {
        Ok(self.tier()?.block_size())
    }

    /// Bytes of a host block; 0 if the tier only counts.
    #[getter]
    fn block_bytes(&self) -> PyResult<usize> {
        Ok(self.tier()?.block_bytes())
    }

    /// Maximum number of blocks in the tier.
    #[getter]
    fn capacity_blocks(&self) -> PyResult<usize> {
        Ok(self.tier()?.capacity_blocks())
    }

    /// peek(tokens, start=0, namespace=None): returns how many tokens after the first `start` ones
    /// are in the tier, without asking remote tiers. Does not count as a use or a lookup.
    ///
    /// - tokens: the whole sequence, as in `PrefixCache.match_prefix`.
    /// - namespace: a Namespace of any cache; None is the default one.
    #[pyo3(signature = (tokens, start = 0, namespace = None))]
    fn peek(
        &self,
        tokens: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] start: usize,
        namespace: Option<PyRef<'_, Namespace>>,
    ) -> PyResult<usize> {
        let tier = self.tier()?;
        let name = match namespace {
            Some(namespace) => namespace.get()?.name(),
            None => NamespaceName::new::<&str>(&[]),
        };
        let tokens = Tokens::of(tokens)?;
        catch(|| tier.peek(&name, tokens.as_slice(), start))
    }

    /// clear(): removes all blocks, also those in remote tiers that this tier can find. If a cache
    /// uses the tier, call `TieredCache.clear` instead.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let tier = self.tier()?;
        py.detach(|| catch(|| tier.clear()))
    }

    /// settle(timeout): waits up to `timeout` seconds until no block is in flight to or from remote
    /// tiers; returns whether none is left. Blocks in flight when the tier is dropped are lost.
    /// Lets other Python threads run.
    fn settle(&self, py: Python<'_>, timeout: Bound<'_, PyAny>) -> PyResult<bool> {
        let tier = self.tier()?;
        let wait = duration(&timeout, "timeout", false)?;
        py.detach(|| catch(|| tier.settle_remote(wait.min(Duration::from_secs(u32::MAX.into())))))
    }

    /// leftovers(): returns the content of the tier by namespace, a list of dicts: namespace (a
    /// tuple of str), blocks, tokens, bytes.
    fn leftovers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let listed = PyList::empty(py);
        for held in catch(|| self.tier().map(radixkv_host::HostTier::leftovers))?? {
            let entry = dict!(py, held, blocks tokens bytes);
            entry.set_item("namespace", parts(py, &held.namespace)?)?;
            listed.append(entry)?;
        }
        Ok(listed)
    }

    /// stats(): returns the statistics of the tier, a dict of ints. "remote" is a dict with the
    /// statistics of remote tiers, or None.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats(py, self.tier()?)
    }

    /// validate(): checks every invariant of the tier. Raises InvariantError, which means a bug of
    /// radixkv.
    fn validate(&self) -> PyResult<()> {
        let broken = catch(|| self.tier().map(radixkv_host::HostTier::validate))??;
        broken.map_err(|violation| exception("InvariantError", violation, &[]))
    }

    fn __repr__(&self) -> PyResult<String> {
        let tier = self.tier()?;
        let (blocks, tokens, bytes) = (tier.capacity_blocks(), tier.block_size(), tier.block_bytes());
        Ok(format!("<radixkv.HostTier: {blocks} blocks of {tokens} tokens, {bytes} bytes each>"))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a host tier", "it belongs to this process: build one in each process"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.given.as_ref().map_or(Ok(()), |(_, owner)| visit.call(&**owner))
    }
}

pub(super) fn stats<'py>(py: Python<'py>, tier: &radixkv_host::HostTier) -> PyResult<Bound<'py, PyDict>> {
    let (counted, remote) = catch(|| (tier.stats(), tier.remote_stats()))?;
    let counts = dict!(py, counted, capacity_blocks cached_blocks pinned_blocks reserved_blocks free_blocks index_bytes
        lookups hit_blocks arrived_blocks duplicate_blocks evicted_blocks removed_blocks cleared_blocks kept_out_blocks
        expired_blocks not_admitted_blocks);
    let remote = remote.map(|remote| {
        Ok::<_, PyErr>(
            dict!(py, remote, asked_blocks found_blocks fetched_blocks missed_blocks failed_blocks full_blocks
            left_out_tiers full_fetches late_fetches lacking_blocks put_blocks present_blocks full_puts failed_puts
            stale_puts puts_in_flight gets_in_flight),
        )
    });
    counts.set_item("remote", remote.transpose()?)?;
    Ok(counts)
}

impl Drop for HostTier {
    /// The drop may wait for threads of remote tiers, so it lets other Python threads run.
    fn drop(&mut self) {
        let mut tier = self.held.take_to_drop();
        if tier.is_some() {
            keep_exception(|py| py.detach(|| drop(tier.take())));
        }
    }
}
