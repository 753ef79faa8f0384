//! The class `PrefixCache`: its constructor, and the state that its methods share. The other
//! methods are in `lookup`, `reserve`, `control` and `observe`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use radixkv::{Clock, Eviction, Keys, NamespaceName, PolicyKind, Session, Watermarks};
use thread_local::ThreadLocal;

use crate::errors::{self, catch};
use crate::fork::Held;
use crate::given::refusal;
use crate::lease::unpicklable;
use crate::namespace::Namespace;
use crate::numbers::{Integer, float, integer, number, number_or_none, pair};

/// Maximum number of blocks of a cache: block ids are signed 32-bit integers in Python.
const MAX_BLOCKS: usize = i32::MAX as usize;

/// The cache that owns a handle, and how to interpret its block ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    cache: u64,
    pub(crate) block_size: usize,
    pub(crate) is_external: bool,
}

/// The state that the methods of a cache use.
pub(crate) struct Shared {
    /// One session for each thread that has called a method. A new thread reuses the session of a
    /// thread that has ended.
    sessions: ThreadLocal<Session>,
    default: radixkv::Namespace,
    pub(crate) origin: Origin,
    /// Whether durations count units of the logical clock.
    pub(crate) is_logical: bool,
    /// Whether a host tier was ever built over the cache, so that Python code may copy evicted
    /// blocks.
    is_tiered: AtomicBool,
    pub(crate) cache: radixkv::PrefixCache,
}

impl Shared {
    /// This thread's session.
    #[inline]
    pub(crate) fn session(&self) -> &Session {
        self.sessions.get_or(|| self.cache.session())
    }

    /// The namespace that a method uses: the given one, which must belong to this cache, or the
    /// default namespace.
    #[inline]
    pub(crate) fn namespace<'a>(&'a self, given: Option<&'a PyRef<'_, Namespace>>) -> PyResult<&'a radixkv::Namespace> {
        let Some(given) = given else { return Ok(&self.default) };
        let namespace = given.get()?;
        if namespace.is_of(&self.cache) { Ok(namespace) } else { Err(errors::foreign("namespace")) }
    }

    /// Records that a host tier exists. Called before the tier is built.
    pub(crate) fn set_tiered(&self) {
        // Relaxed, here and below: the thread that sets it holds the GIL, so later calls see it.
        // Free-threaded builds do not depend on it.
        self.is_tiered.store(true, Relaxed);
    }

    /// Whether calls that may evict release the GIL. With a host tier they must: they may wait for
    /// Python code on another thread that copies evicted blocks. In a free-threaded build they
    /// always do: another thread may add the tier during the call, and a thread that waits for the
    /// evictor would delay the garbage collector.
    pub(crate) fn detaches(&self) -> bool {
        cfg!(Py_GIL_DISABLED) || self.is_tiered.load(Relaxed)
    }

    /// Runs a call that may evict.
    pub(crate) fn evicting<R: Send>(&self, py: Python<'_>, verb: impl FnOnce() -> R + Send) -> PyResult<R> {
        if self.detaches() { py.detach(|| catch(verb)) } else { catch(verb) }
    }

    pub(crate) fn duration(&self, given: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
        duration(given, name, self.is_logical)
    }
}

/// Converts a duration in seconds, or in units of a logical clock.
pub(crate) fn duration(given: &Bound<'_, PyAny>, name: &str, is_logical: bool) -> PyResult<Duration> {
    if is_logical {
        let message = |text: &str| {
            format!(
                "{name} is {text}: with a logical clock it must be an int from {}, in units of `set_time`",
                u64::RANGE
            )
        };
        return integer(given).map(Duration::from_nanos).map_err(|refused| refused.error(given, message));
    }
    let out_of_range = || {
        let message = |text: &str| format!("{name} is {text} s: it must be at least 0 and below 2^64 s (1.8e19)");
        refusal(given, |text| PyValueError::new_err(message(text)))
    };
    let seconds = float(given, name, "a number of seconds")?.ok_or_else(out_of_range)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| out_of_range())
}

pub(crate) fn policy(name: &str) -> PyResult<PolicyKind> {
    name.parse().map_err(|error: radixkv::UnknownPolicy| PyValueError::new_err(error.to_string()))
}

/// A concurrent prefix cache: maps token sequences to the KV blocks that hold their keys and
/// values.
///
/// PrefixCache(block_size, capacity_blocks, *, policy="lru", clock="monotonic", eviction="inline",
/// time_to_idle=None, external=False, growable_to=None, shards=1)
///
/// - block_size: tokens in a block. capacity_blocks: blocks, at most 2**31 - 1.
/// - policy: "lru", "lfu", "fifo", "mru", "filo", "slru", "slru:N", "level" or "priority".
/// - clock: "monotonic", or "logical": `set_time` sets the time, and durations are ints in its
///   units.
/// - eviction: "inline", "background" (a thread of the cache), or (low, high): a thread that starts
///   and stops at these numbers of free blocks.
/// - time_to_idle: seconds after which an unused prefix is removed.
/// - external: the engine owns the blocks: see `adopt` and `take_evicted`.
/// - growable_to: maximum number of blocks that `grow` can reach.
/// - shards: how many threads can evict at the same time, from 1 to 256. With more than 1, blocks
///   are not evicted in one exact order.
///
/// Any number of threads may use a cache; each gets its own session at its first call. In a forked
/// child, every method raises ForkError. Raises BuildError.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct PrefixCache {
    held: Held<Shared>,
}

impl PrefixCache {
    #[inline]
    pub(crate) fn shared(&self) -> PyResult<&Shared> {
        self.held.get()
    }
}

fn eviction(given: Option<&Bound<'_, PyAny>>, capacity: usize) -> PyResult<Eviction> {
    const ACCEPTED: &str = "\"inline\", \"background\", or (low, high) of ints that are not negative";
    let Some(given) = given else { return Ok(Eviction::Inline) };
    let Ok(word) = given.cast::<PyString>() else {
        let (low, high) = pair(given, "eviction", ACCEPTED)?;
        return Ok(Eviction::Background(Watermarks::new(low, high)));
    };
    match &*word.to_string_lossy() {
        "inline" => Ok(Eviction::Inline),
        "background" => Ok(Eviction::Background(Watermarks::for_capacity(capacity))),
        word => Err(PyValueError::new_err(format!("eviction is {word:?}: must be {ACCEPTED}"))),
    }
}

#[pymethods]
impl PrefixCache {
    #[new]
    #[pyo3(signature = (block_size, capacity_blocks, *, policy = "lru", clock = "monotonic", eviction = None,
        time_to_idle = None, external = false, growable_to = None, shards = 1))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        #[pyo3(from_py_with = number)] block_size: usize,
        #[pyo3(from_py_with = number)] capacity_blocks: usize,
        policy: &str,
        clock: &str,
        eviction: Option<Bound<'_, PyAny>>,
        time_to_idle: Option<Bound<'_, PyAny>>,
        external: bool,
        #[pyo3(from_py_with = number_or_none)] growable_to: Option<usize>,
        #[pyo3(from_py_with = number)] shards: usize,
    ) -> PyResult<Self> {
        static CACHES: AtomicU64 = AtomicU64::new(0);
        let most = capacity_blocks.max(growable_to.unwrap_or(0));
        if most > MAX_BLOCKS {
            let message = format!("{most} blocks exceed the maximum of {MAX_BLOCKS} in Python");
            let carried = [("kind", "capacity_too_large".into()), ("capacity", most.into())];
            return Err(errors::exception("BuildError", message, &carried));
        }
        let is_logical = match clock {
            "monotonic" => false,
            "logical" => true,
            _ => {
                return Err(PyValueError::new_err(format!("clock is {clock:?}: must be \"monotonic\" or \"logical\"")));
            }
        };
        let mut builder = radixkv::PrefixCache::builder(block_size, capacity_blocks)
            .policy(self::policy(policy)?)
            .shards(shards)
            .clock(if is_logical { Clock::Logical } else { Clock::Monotonic })
            .eviction(self::eviction(eviction.as_ref(), capacity_blocks)?);
        if let Some(given) = time_to_idle {
            builder = builder.time_to_idle(duration(&given, "time_to_idle", is_logical)?);
        }
        if external {
            builder = builder.external();
        }
        if let Some(blocks) = growable_to {
            builder = builder.growable_to(blocks);
        }
        let cache = catch(|| builder.build())?.map_err(errors::build)?;
        // Relaxed: only the uniqueness of the number counts.
        let origin = Origin { cache: CACHES.fetch_add(1, Relaxed), block_size, is_external: external };
        let default = cache.default_namespace();
        let (sessions, is_tiered) = (ThreadLocal::new(), AtomicBool::new(false));
        Ok(Self { held: Held::new(Shared { sessions, default, origin, is_logical, is_tiered, cache }) })
    }

    /// Tokens in a block.
    #[getter]
    fn block_size(&self) -> PyResult<usize> {
        Ok(self.shared()?.origin.block_size)
    }

    /// Blocks that the cache manages.
    #[getter]
    fn capacity_blocks(&self) -> PyResult<usize> {
        Ok(self.shared()?.cache.capacity_blocks())
    }

    /// The default namespace, which methods use if none is given.
    #[getter]
    fn default_namespace(&self) -> PyResult<Namespace> {
        let shared = self.shared()?;
        Ok(Namespace::new(shared.default.clone(), shared.is_logical))
    }

    /// namespace(*parts, bigrams=False): returns the namespace with this name; creates it if it
    /// does not exist.
    ///
    /// The parts are str: an adapter, a tenant's salt, a model version, or several of them; no
    /// parts name the default namespace. With bigrams, pairs of neighbouring tokens are compared,
    /// for draft models (EAGLE). Takes a lock: call it once and keep the result.
    #[pyo3(signature = (*parts, bigrams = false))]
    fn namespace(&self, parts: &Bound<'_, PyTuple>, bigrams: bool) -> PyResult<Namespace> {
        let shared = self.shared()?;
        let parts: Vec<String> = parts.extract()?;
        let name = NamespaceName::new(&parts).with_keys(if bigrams { Keys::Bigrams } else { Keys::Tokens });
        let namespace = catch(|| shared.cache.namespace(name))?;
        Ok(Namespace::new(namespace, shared.is_logical))
    }

    fn __repr__(&self) -> PyResult<String> {
        let shared = self.shared()?;
        let (block_size, blocks) = (shared.origin.block_size, shared.cache.capacity_blocks());
        Ok(format!("<radixkv.PrefixCache: {blocks} blocks of {block_size} tokens>"))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a cache", "it belongs to this process: build one in each process"))
    }
}
