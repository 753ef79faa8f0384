//! The class `Lease`, its subclasses `PrefixMatch` and `Inserted`, and the classes `WeakLease` and
//! `PartialHit`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use radixkv::{BlockId, Keys};

use crate::blocks;
use crate::cache::Origin;
use crate::errors::{self, catch, exception};
use crate::fork::Held;
use crate::handle::Handle;
use crate::reservation::Reservation;

/// Protects a cached prefix: during the lease, the prefix's blocks are not evicted, overwritten or
/// given to others.
///
/// It is released by `release()`, at the end of a `with` statement, or when Python drops it, on any
/// thread. Returned by the methods of `PrefixCache`. It cannot be pickled or copied: use `clone()`.
#[pyclass(module = "radixkv", subclass, frozen, weakref)]
pub(crate) struct Lease {
    handle: Handle<radixkv::Lease>,
    len_tokens: usize,
    block_size: usize,
}

impl Lease {
    pub(crate) fn new(lease: radixkv::Lease, block_size: usize) -> Self {
        Self { len_tokens: lease.len_tokens(), block_size, handle: Handle::new(lease) }
    }

    /// Calls the core with the lease, which must belong to `cache`.
    #[inline]
    pub(crate) fn with<R>(&self, cache: &radixkv::PrefixCache, verb: impl FnOnce(&radixkv::Lease) -> R) -> PyResult<R> {
        let done = self.handle.with(|lease| lease.is_of(cache).then(|| verb(lease)))?;
        done.ok_or_else(|| errors::foreign("lease"))
    }

    /// Same as `with`, for a method with `tokens`, which must not be shorter than the lease's
    /// sequence.
    #[inline]
    pub(crate) fn with_sequence<R>(
        &self,
        cache: &radixkv::PrefixCache,
        tokens: &[u32],
        verb: impl FnOnce(&radixkv::Lease) -> R,
    ) -> PyResult<R> {
        self.handle.with(|lease| check(lease, cache, tokens.len()).map(|()| verb(lease)))?.map_err(Refused::raise)
    }

    /// Calls the core with several leases, which must belong to `cache`.
    pub(crate) fn with_all<R>(
        leases: &[PyRef<'_, Self>],
        cache: &radixkv::PrefixCache,
        verb: impl FnOnce(&[&radixkv::Lease]) -> R,
    ) -> PyResult<R> {
        let handles: Vec<_> = leases.iter().map(|lease| &lease.handle).collect();
        let are_own = |leases: &[&radixkv::Lease]| leases.iter().all(|lease| lease.is_of(cache));
        let done = Handle::with_all(&handles, |leases| are_own(leases).then(|| verb(leases)))?;
        done.ok_or_else(|| errors::foreign("lease"))
    }

    /// A second lease of the core, for a method that releases the GIL.
    pub(crate) fn again(&self, cache: &radixkv::PrefixCache) -> PyResult<radixkv::Lease> {
        self.with(cache, radixkv::Lease::try_clone)?.map_err(too_many)
    }

    /// Same as `again`, for a method with `tokens`.
    pub(crate) fn again_for(&self, cache: &radixkv::PrefixCache, tokens: &[u32]) -> PyResult<radixkv::Lease> {
        self.with_sequence(cache, tokens, radixkv::Lease::try_clone)?.map_err(too_many)
    }

    /// Takes the lease out for a method with `tokens`.
    pub(crate) fn take(&self, cache: &radixkv::PrefixCache, tokens: &[u32]) -> PyResult<radixkv::Lease> {
        self.handle.take_if(|lease| check(lease, cache, tokens.len()))?.map_err(Refused::raise)
    }
}

fn too_many(error: radixkv::TooManyLeases) -> PyErr {
    exception("TooManyLeasesError", error, &[])
}

/// Why a method does not accept a lease.
enum Refused {
    Foreign,
    TooFewTokens { given: usize, needed: usize },
}

impl Refused {
    #[cold]
    fn raise(self) -> PyErr {
        let Self::TooFewTokens { given, needed } = self else { return errors::foreign("lease") };
        let message = format!("{given} tokens given, but the lease covers {needed}: pass the whole sequence");
        exception("SequenceError", message, &[("given", given.into()), ("needed", needed.into())])
    }
}

/// Checks that a lease belongs to `cache`, and that `given` tokens are at least its sequence.
fn check(lease: &radixkv::Lease, cache: &radixkv::PrefixCache, given: usize) -> Result<(), Refused> {
    let needed = sequence_length(lease);
    match lease.is_of(cache) {
        false => Err(Refused::Foreign),
        true if given < needed => Err(Refused::TooFewTokens { given, needed }),
        true => Ok(()),
    }
}

/// The number of tokens that a lease was matched by. With bigrams, that is one more than it covers.
fn sequence_length(lease: &radixkv::Lease) -> usize {
    let len = lease.len_tokens();
    let has_more = len > 0 && lease.namespace().is_some_and(|name| name.keys() == Keys::Bigrams);
    len + usize::from(has_more)
}

/// The parts of a namespace's name, as a tuple.
pub(crate) fn parts<'py>(py: Python<'py>, name: &radixkv::NamespaceName) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, name.parts())
}

#[pymethods]
impl Lease {
    /// The number of tokens, in whole blocks, that it protects. Keeps its value after the release.
    #[getter]
    fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// The number of blocks that it protects. Keeps its value after the release.
    #[getter]
    fn len_blocks(&self) -> usize {
        self.len_tokens / self.block_size
    }

    /// Whether the lease was released, or taken by another method.
    #[getter]
    fn released(&self) -> bool {
        !self.handle.is_held()
    }

    /// The parts of the namespace's name, a tuple of str; None if the lease protects nothing.
    ///
    /// Raises ReleasedError.
    #[getter]
    fn namespace<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let name = self.handle.with(|lease| lease.namespace().cloned())?;
        name.map(|name| parts(py, &name)).transpose()
    }

    /// Ends the lease. Does nothing if it has already ended.
    fn release(&self) -> PyResult<()> {
        self.handle.release()
    }

    /// Makes a second lease on the same prefix. Not counted as a use.
    ///
    /// Raises ReleasedError, and TooManyLeasesError if the prefix has 2**28 leases.
    #[pyo3(name = "clone")]
    fn clone_lease(&self) -> PyResult<Lease> {
        let again = self.handle.with(|lease| lease.try_clone())?.map_err(too_many)?;
        Ok(Self::new(again, self.block_size))
    }

    /// Makes a weak lease on the same prefix, which does not protect it; `PrefixCache.upgrade`
    /// turns it into a lease again.
    ///
    /// Raises ReleasedError.
    fn downgrade(&self) -> PyResult<WeakLease> {
        let weak = self.handle.with(|lease| lease.downgrade())?;
        Ok(WeakLease { len_tokens: weak.len_tokens(), block_size: self.block_size, held: Held::new(weak) })
    }

    /// Whether some of its blocks were invalidated, so that its request must be recomputed.
    ///
    /// Raises ReleasedError.
    fn is_invalidated(&self) -> PyResult<bool> {
        self.handle.with(|lease| lease.is_invalidated())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.release()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (name, this) = (slf.get_type().name()?, slf.get());
        let released = if this.released() { ", released" } else { "" };
        Ok(format!("<radixkv.{name}: {} tokens{released}>", this.len_tokens))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a lease", "it protects blocks of a cache in this process"))
    }
}

/// The error for pickling a handle.
pub(crate) fn unpicklable(what: &str, reason: &str) -> PyErr {
    PyTypeError::new_err(format!("{what} cannot be pickled or copied: {reason}"))
}

/// The longest cached prefix of some tokens: a `Lease` on it, and the ids of its blocks.
#[pyclass(module = "radixkv", extends = Lease, frozen)]
pub(crate) struct PrefixMatch {
    blocks: Held<Vec<BlockId>>,
    block_size: usize,
}

impl PrefixMatch {
    pub(crate) fn new(lease: radixkv::Lease, blocks: Vec<BlockId>, block_size: usize) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Lease::new(lease, block_size))
            .add_subclass(Self { blocks: Held::new(blocks), block_size })
    }
}

#[pymethods]
impl PrefixMatch {
    /// The ids of the prefix's blocks: a new numpy array, int32, shape (len_blocks,).
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::blocks(py, self.blocks.get()?)?.into_any())
    }

    /// The slots of the prefix's tokens, `id * block_size + position in the block`: a new numpy
    /// array, int64, shape (len_tokens,).
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::slots(py, self.blocks.get()?, self.block_size)?.into_any())
    }

    /// Writes the ids to the beginning of `out`, a writable contiguous array or buffer of at least
    /// len_blocks 32- or 64-bit integers; returns their number.
    ///
    /// Raises TypeError and ValueError, and then writes nothing.
    fn blocks_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::blocks_into(out, self.blocks.get()?)
    }

    /// Writes the slots to the beginning of `out`, a writable contiguous array or buffer of at
    /// least len_tokens 64-bit integers; returns their number.
    ///
    /// Raises TypeError and ValueError, and then writes nothing.
    fn slots_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::slots_into(out, self.blocks.get()?, self.block_size)
    }
}

/// The result of an insert: a `Lease` on the whole sequence, and the ids of its blocks beyond the
/// lease that was passed to `insert`.
#[pyclass(module = "radixkv", extends = Lease, frozen)]
pub(crate) struct Inserted {
    blocks: Held<Vec<BlockId>>,
    origin: Origin,
    /// Inserted blocks whose tokens were already cached.
    duplicates: Handle<radixkv::Reservation>,
    dropped_tokens: usize,
}

impl Inserted {
    pub(crate) fn new(inserted: radixkv::Inserted, origin: Origin) -> PyClassInitializer<Self> {
        let radixkv::Inserted { lease, blocks, duplicates, dropped_tokens, .. } = inserted;
        let (blocks, duplicates) = (Held::new(blocks), Handle::new(duplicates));
        let this = Self { blocks, origin, duplicates, dropped_tokens };
        PyClassInitializer::from(Lease::new(lease, origin.block_size)).add_subclass(this)
    }
}

#[pymethods]
impl Inserted {
    /// The ids of the cached blocks beyond the lease that was passed to `insert`: a new numpy
    /// array, int32, shape (n,). From here on, the request's block table must use these ids.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::blocks(py, self.blocks.get()?)?.into_any())
    }

    /// The number of tokens at the end of the sequence that fill no block. They are not cached.
    #[getter]
    fn dropped_tokens(&self) -> usize {
        self.dropped_tokens
    }

    /// Takes the inserted blocks whose tokens another request had already cached, as a
    /// `Reservation`. They are given back when it is dropped, or without this call when this object
    /// is dropped.
    ///
    /// Raises ReleasedError if they were already taken.
    fn take_duplicates(&self) -> PyResult<Reservation> {
        Ok(Reservation::new(self.duplicates.take()?, self.origin))
    }

    /// Ends the lease, and gives back duplicates that were not taken. Does nothing if this was
    /// already done.
    fn release(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().duplicates.release()?;
        slf.as_super().get().release()
    }

    fn __exit__(slf: &Bound<'_, Self>, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        Self::release(slf)
    }
}

/// A reference to a prefix that does not protect it: the prefix may be evicted at any moment.
/// `PrefixCache.upgrade` turns it into a lease if it is still cached.
///
/// For waiting requests, which are matched when they arrive and leased when they run.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct WeakLease {
    held: Held<radixkv::WeakLease>,
    /// The length of the prefix in tokens.
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
        Err(unpicklable("a weak lease", "it refers to a cache in this process"))
    }
}

/// A cached block whose first tokens are the next tokens of a sequence after its match: copy their
/// keys and values instead of computing them.
///
/// The block stays in place until this object is released, by `release()`, a `with` statement, or
/// when Python drops it.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct PartialHit {
    handle: Handle<radixkv::PartialHit>,
    /// The block to copy from. Do not write to it.
    #[pyo3(get)]
    block: BlockId,
    /// The number of its first tokens that equal the sequence's: at least one.
    #[pyo3(get)]
    len_tokens: usize,
}

impl PartialHit {
    pub(crate) fn new(hit: radixkv::PartialHit) -> Self {
        Self { block: hit.block(), len_tokens: hit.len_tokens(), handle: Handle::new(hit) }
    }
}

#[pymethods]
impl PartialHit {
    /// Releases the source block. Does nothing if this was already done.
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
        Err(unpicklable("a partial hit", "it protects a block of a cache in this process"))
    }
}
