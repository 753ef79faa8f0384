//! Leases, and the matches and inserts that come with one.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use radixkv::{BlockId, Keys};

use crate::blocks;
use crate::cache::Origin;
use crate::errors::{self, catch, exception};
use crate::fork::Held;
use crate::reservation::Reservation;

/// Protects a cached prefix: while it lives, the prefix's blocks are not evicted, rewritten or
/// handed out.
///
/// Released by `release()`, at the end of a `with` statement, or when Python drops it. Any thread
/// may release it. Made by the verbs of `PrefixCache`; it cannot be pickled or copied: use
/// `clone()`.
#[pyclass(module = "radixkv", subclass, weakref)]
pub(crate) struct Lease {
    held: Held<radixkv::Lease>,
    len_tokens: usize,
    block_size: usize,
}

impl Lease {
    pub(crate) fn new(lease: radixkv::Lease, block_size: usize) -> Self {
        Self { len_tokens: lease.len_tokens(), block_size, held: Held::new(lease) }
    }

    /// The lease, if `cache` owns it.
    #[inline]
    pub(crate) fn of(&self, cache: &radixkv::PrefixCache) -> PyResult<&radixkv::Lease> {
        let lease = self.held.get()?;
        if lease.is_of(cache) { Ok(lease) } else { Err(errors::foreign("lease")) }
    }

    /// The lease, if `cache` owns it and `tokens` is at least as long as its sequence.
    pub(crate) fn of_sequence(&self, cache: &radixkv::PrefixCache, tokens: &[u32]) -> PyResult<&radixkv::Lease> {
        let lease = self.of(cache)?;
        let needed = sequence_length(lease);
        if tokens.len() >= needed {
            return Ok(lease);
        }
        let given = tokens.len();
        let message = format!("{given} tokens given, but the lease covers {needed}: pass the whole sequence");
        Err(exception("SequenceError", message, &[("given", given.into()), ("needed", needed.into())]))
    }

    pub(crate) fn take(&mut self, cache: &radixkv::PrefixCache, tokens: &[u32]) -> PyResult<radixkv::Lease> {
        self.of_sequence(cache, tokens)?;
        self.held.take()
    }
}

/// Tokens of the sequence that a lease was matched by.
fn sequence_length(lease: &radixkv::Lease) -> usize {
    let len = lease.len_tokens();
    let has_more = len > 0 && lease.namespace().is_some_and(|name| name.keys() == Keys::Bigrams);
    len + usize::from(has_more)
}

/// The names of a namespace's parts, as a tuple.
pub(crate) fn parts<'py>(py: Python<'py>, name: &radixkv::NamespaceName) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, name.parts())
}

#[pymethods]
impl Lease {
    /// Tokens whose keys and values it protects: those of whole blocks. Also known after the
    /// release.
    #[getter]
    fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// Blocks that it protects.
    #[getter]
    fn len_blocks(&self) -> usize {
        self.len_tokens / self.block_size
    }

    /// Whether it was released, or another verb has taken it.
    #[getter]
    fn released(&self) -> bool {
        !self.held.is_held()
    }

    /// The parts of the namespace's name, a tuple of str; None if the lease protects nothing.
    ///
    /// Raises ReleasedError.
    #[getter]
    fn namespace<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.held.get()?.namespace().map(|name| parts(py, name)).transpose()
    }

    /// Ends the lease. Does nothing if it has ended.
    fn release(&mut self) -> PyResult<()> {
        catch(|| self.held.release())?
    }

    /// A second lease on the same prefix; not counted as a use.
    ///
    /// Raises ReleasedError, and TooManyLeasesError if the prefix has 2**28 leases.
    #[pyo3(name = "clone")]
    fn clone_lease(&self) -> PyResult<Lease> {
        let again = catch(|| self.held.get().map(radixkv::Lease::try_clone))??;
        let again = again.map_err(|error| exception("TooManyLeasesError", error, &[]))?;
        Ok(Self::new(again, self.block_size))
    }

    /// A weak lease on the same prefix, which does not protect it: `PrefixCache.upgrade` leases it
    /// again later.
    ///
    /// Raises ReleasedError.
    fn downgrade(&self) -> PyResult<WeakLease> {
        let weak = catch(|| self.held.get().map(radixkv::Lease::downgrade))??;
        Ok(WeakLease { len_tokens: weak.len_tokens(), block_size: self.block_size, held: Held::new(weak) })
    }

    /// Whether blocks of it were invalidated, so that its request must be computed again.
    ///
    /// Raises ReleasedError.
    fn is_invalidated(&self) -> PyResult<bool> {
        catch(|| self.held.get().map(radixkv::Lease::is_invalidated))?
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&mut self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.release()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (name, this) = (slf.get_type().name()?, slf.borrow());
        let released = if this.released() { ", released" } else { "" };
        Ok(format!("<radixkv.{name}: {} tokens{released}>", this.len_tokens))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a lease", "it protects blocks of a cache in this process"))
    }
}

/// The refusal to pickle a handle.
pub(crate) fn unpicklable(what: &str, reason: &str) -> PyErr {
    PyTypeError::new_err(format!("{what} cannot be pickled or copied: {reason}"))
}

/// The longest cached prefix of some tokens: a `Lease` on it, and the ids of its blocks.
#[pyclass(module = "radixkv", extends = Lease, frozen)]
pub(crate) struct PrefixMatch {
    blocks: Vec<BlockId>,
    block_size: usize,
}

impl PrefixMatch {
    pub(crate) fn new(lease: radixkv::Lease, blocks: Vec<BlockId>, block_size: usize) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Lease::new(lease, block_size)).add_subclass(Self { blocks, block_size })
    }
}

#[pymethods]
impl PrefixMatch {
    /// The ids of the prefix's blocks: a new numpy array, int32, shape (len_blocks,).
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::blocks(py, &self.blocks)?.into_any())
    }

    /// The slots of the prefix's tokens, `id * block_size + place in the block`: a new numpy array,
    /// int64, shape (len_tokens,).
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::slots(py, &self.blocks, self.block_size)?.into_any())
    }

    /// Writes the ids to the beginning of `out`, a writable contiguous array or buffer of 32- or
    /// 64-bit integers with at least len_blocks places; returns how many.
    ///
    /// Raises TypeError and ValueError; nothing is written then.
    fn blocks_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::blocks_into(out, &self.blocks)
    }

    /// Writes the slots to the beginning of `out`, a writable contiguous array or buffer of 64-bit
    /// integers with at least len_tokens places; returns how many.
    ///
    /// Raises TypeError and ValueError; nothing is written then.
    fn slots_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::slots_into(out, &self.blocks, self.block_size)
    }
}

/// What an insert has cached: a `Lease` on the whole sequence, and the ids of its blocks beyond the
/// lease that was inserted from.
#[pyclass(module = "radixkv", extends = Lease)]
pub(crate) struct Inserted {
    blocks: Vec<BlockId>,
    origin: Origin,
    /// Blocks whose tokens were cached already.
    duplicates: Held<radixkv::Reservation>,
    dropped_tokens: usize,
}

impl Inserted {
    pub(crate) fn new(inserted: radixkv::Inserted, origin: Origin) -> PyClassInitializer<Self> {
        let radixkv::Inserted { lease, blocks, duplicates, dropped_tokens, .. } = inserted;
        let this = Self { blocks, origin, duplicates: Held::new(duplicates), dropped_tokens };
        PyClassInitializer::from(Lease::new(lease, origin.block_size)).add_subclass(this)
    }
}

#[pymethods]
impl Inserted {
    /// The ids that are cached beyond the first lease, which the request's block table must have
    /// from now on: a new numpy array, int32, shape (n,).
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::blocks(py, &self.blocks)?.into_any())
    }

    /// Tokens at the end of the sequence that fill no block: not cached.
    #[getter]
    fn dropped_tokens(&self) -> usize {
        self.dropped_tokens
    }

    /// Takes the blocks whose tokens another request had cached already: a `Reservation`. They are
    /// given back when it, or this object, is dropped.
    ///
    /// Raises ReleasedError at the second call.
    fn take_duplicates(&mut self) -> PyResult<Reservation> {
        Ok(Reservation::new(self.duplicates.take()?, self.origin))
    }

    /// Ends the lease, and gives duplicates back that were not taken. Does nothing if that was
    /// done.
    fn release(mut slf: PyRefMut<'_, Self>) -> PyResult<()> {
        catch(|| slf.duplicates.release())??;
        slf.as_super().release()
    }

    fn __exit__(slf: PyRefMut<'_, Self>, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        Self::release(slf)
    }
}

/// A prefix without a promise: it may be evicted at any moment; `PrefixCache.upgrade` says whether
/// it was.
///
/// For requests that wait: matched when they come, leased when they run.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct WeakLease {
    held: Held<radixkv::WeakLease>,
    #[pyo3(get)]
    len_tokens: usize,
    block_size: usize,
}

impl WeakLease {
    pub(crate) fn upgrade(&self, cache: &radixkv::PrefixCache, session: &radixkv::Session) -> PyResult<Option<Lease>> {
        let weak = self.held.get()?;
        if !weak.is_of(cache) {
            return Err(errors::foreign("weak lease"));
        }
        Ok(catch(|| session.upgrade(weak))?.map(|lease| Lease::new(lease, self.block_size)))
    }
}

#[pymethods]
impl WeakLease {
    fn __repr__(&self) -> String {
        format!("<radixkv.WeakLease: {} tokens>", self.len_tokens)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a weak lease", "it names a place in a cache of this process"))
    }
}

/// A cached block whose first tokens agree with a sequence beyond its match: copy them instead of
/// computing them.
///
/// The block stays in place until this is released, by `release()`, a `with` statement, or when
/// Python drops it.
#[pyclass(module = "radixkv", weakref)]
pub(crate) struct PartialHit {
    held: Held<radixkv::PartialHit>,
    /// The block to copy from; not to be written to.
    #[pyo3(get)]
    block: BlockId,
    /// Tokens at its beginning that agree with the sequence: at least one.
    #[pyo3(get)]
    len_tokens: usize,
}

impl PartialHit {
    pub(crate) fn new(hit: radixkv::PartialHit) -> Self {
        Self { block: hit.block(), len_tokens: hit.len_tokens(), held: Held::new(hit) }
    }
}

#[pymethods]
impl PartialHit {
    /// Gives the source block up. Does nothing if that was done.
    fn release(&mut self) -> PyResult<()> {
        catch(|| self.held.release())?
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&mut self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.release()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a partial hit", "it protects a block of a cache in this process"))
    }
}
