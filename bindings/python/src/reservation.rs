//! The class `Reservation`, blocks that the caller fills and inserts, and the class `PendingCopy`.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use radixkv::BlockId;

use crate::blocks;
use crate::cache::Origin;
use crate::errors::{self, catch};
use crate::handle::Handle;
use crate::lease::unpicklable;
use crate::numbers::number;

/// Reserved blocks, which the owner fills and then inserts.
///
/// The blocks are freed by `release()`, at the end of a `with` statement, or when Python drops the
/// reservation; an insert takes them. It cannot be pickled or copied: `fork()` makes a second
/// reservation of the same blocks.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct Reservation {
    handle: Handle<radixkv::Reservation>,
    origin: Origin,
}

impl Reservation {
    pub(crate) fn new(reservation: radixkv::Reservation, origin: Origin) -> Self {
        Self { handle: Handle::new(reservation), origin }
    }

    /// Takes the blocks out for an insert, if they belong to `cache`.
    pub(crate) fn lend(&self, cache: &radixkv::PrefixCache) -> PyResult<radixkv::Reservation> {
        let check = |held: &radixkv::Reservation| if held.is_of(cache) { Ok(()) } else { Err(()) };
        self.handle.lend_if(check)?.map_err(|()| errors::foreign("reservation"))
    }

    /// Puts back the blocks after an insert refused them.
    pub(crate) fn put_back(&self, reservation: radixkv::Reservation) -> PyResult<()> {
        self.handle.put_back(reservation)
    }

    /// Copies the ids, because Python objects are created without the handle's lock.
    fn ids(&self) -> PyResult<Vec<BlockId>> {
        self.handle.with(|held| held.blocks().to_vec())
    }
}

fn no_such_block(index: usize, len: usize) -> PyErr {
    PyIndexError::new_err(format!("block {index} of a reservation of {len} blocks"))
}

#[pymethods]
impl Reservation {
    fn __len__(&self) -> PyResult<usize> {
        self.handle.with(|held| held.len())
    }

    /// Whether the blocks were given back, or taken by another method.
    #[getter]
    fn released(&self) -> bool {
        !self.handle.is_held()
    }

    /// The ids of the blocks, in the order in which an insert uses them: a new numpy array, int32,
    /// shape (n,).
    ///
    /// Raises ReleasedError.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::blocks(py, &self.ids()?)?.into_any())
    }

    /// The slots of all positions in the blocks, `id * block_size + position in the block`: a new
    /// numpy array, int64, shape (n * block_size,).
    ///
    /// Raises ReleasedError.
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::slots(py, &self.ids()?, self.origin.block_size)?.into_any())
    }

    /// Writes the ids to the beginning of `out`, a writable contiguous array or buffer of 32- or
    /// 64-bit integers; returns their number.
    ///
    /// Raises TypeError, ValueError and ReleasedError, and then writes nothing.
    fn blocks_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::blocks_into(out, &self.ids()?)
    }

    /// Writes the slots to the beginning of `out`, a writable contiguous array or buffer of 64-bit
    /// integers; returns their number.
    ///
    /// Raises TypeError, ValueError and ReleasedError, and then writes nothing.
    fn slots_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::slots_into(out, &self.ids()?, self.origin.block_size)
    }

    /// Moves the first `n` blocks into a new reservation, for a prompt that is inserted in chunks.
    ///
    /// Raises ValueError if there are fewer, and ReleasedError.
    fn split(&self, #[pyo3(from_py_with = number)] n: usize) -> PyResult<Self> {
        let first = self.handle.with(|held| if n <= held.len() { Ok(held.split(n)) } else { Err(held.len()) })?;
        let refused = |len| PyValueError::new_err(format!("{n} blocks of a reservation of {len}"));
        Ok(Self::new(first.map_err(refused)?, self.origin))
    }

    /// Appends the blocks of `other`, for a sequence that grows. `other` is then released.
    ///
    /// Raises ValueError if different namespaces pay for the two, ForeignHandleError and
    /// ReleasedError, and then nothing has changed.
    fn append(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<()> {
        if slf.is(other) {
            return Err(PyValueError::new_err("a reservation cannot be appended to itself"));
        }
        let (this, other) = (slf.get(), other.get());
        let is_own = this.origin == other.origin;
        let has_appended = this.handle.with_both(&other.handle, |own, other| {
            let is_accepted = is_own && other.as_ref().is_some_and(|more| own.has_payer_of(more));
            let more = if is_accepted { other.take() } else { None };
            more.map(|more| own.append(more)).is_some()
        })?;
        match has_appended {
            true => Ok(()),
            false if is_own => Err(PyValueError::new_err("different namespaces pay for the two reservations")),
            false => Err(errors::foreign("other reservation")),
        }
    }

    /// Makes a second reservation of the same blocks, for a sequence that continues in several
    /// ways.
    ///
    /// A block is given back when the last reservation that holds it is released. While several
    /// reservations hold a block, none may write to it or insert it: see `make_unique`. Raises
    /// ReleasedError.
    fn fork(&self) -> PyResult<Self> {
        Ok(Self::new(self.handle.with(|held| held.fork())?, self.origin))
    }

    /// Whether a fork also holds block `index` (from 0).
    ///
    /// Raises IndexError and ReleasedError.
    fn is_shared(&self, #[pyo3(from_py_with = number)] index: usize) -> PyResult<bool> {
        let shared = |held: &mut radixkv::Reservation| {
            if index < held.len() { Ok(held.is_shared(index)) } else { Err(held.len()) }
        };
        self.handle.with(shared)?.map_err(|len| no_such_block(index, len))
    }

    /// If a fork also holds block `index`, replaces it by the last block of `fresh` and returns a
    /// `PendingCopy`, a copy that the caller must make; otherwise returns None.
    ///
    /// Raises IndexError; ValueError if the block is shared and `fresh` is this reservation, is
    /// empty or ends with a shared block; ForeignHandleError and ReleasedError. After an error
    /// nothing has changed.
    fn make_unique(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] index: usize,
        fresh: &Bound<'_, Self>,
    ) -> PyResult<Option<PendingCopy>> {
        if slf.is(fresh) {
            return Err(PyValueError::new_err("fresh is the reservation itself: reserve another block"));
        }
        let (this, fresh) = (slf.get(), fresh.get());
        let is_own = this.origin == fresh.origin;
        let copy = this.handle.with_both(&fresh.handle, |own, fresh| {
            let fresh = fresh.as_mut().ok_or(NotUnique::NoBlock)?;
            match (own.len(), fresh.len().checked_sub(1)) {
                (len, _) if index >= len => Err(NotUnique::NoSuchBlock { len }),
                _ if !is_own => Err(NotUnique::Foreign),
                _ if !own.is_shared(index) => Ok(None),
                (_, None) => Err(NotUnique::NoBlock),
                (_, Some(last)) if fresh.is_shared(last) => Err(NotUnique::SharedBlock),
                _ => Ok(own.make_unique(index, fresh)),
            }
        })?;
        let copy = copy.map_err(|refused| match refused {
            NotUnique::NoSuchBlock { len } => no_such_block(index, len),
            NotUnique::Foreign => errors::foreign("fresh reservation"),
            NotUnique::NoBlock => PyValueError::new_err("fresh has no block: reserve one"),
            NotUnique::SharedBlock => {
                PyValueError::new_err("fresh ends with a block that a fork also holds: reserve another one")
            }
        })?;
        Ok(copy.map(|copy| PendingCopy {
            source: copy.source(),
            destination: copy.destination(),
            handle: Handle::new(copy),
        }))
    }

    /// Gives the blocks back to the engine that owns the pool immediately, and releases the
    /// reservation. Returns their ids, a new numpy array, int32, shape (n,), without blocks that a
    /// fork also holds.
    ///
    /// Raises ValueError if the cache owns its pool, and ReleasedError.
    fn take_blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if !self.origin.is_external {
            return Err(PyValueError::new_err("the cache owns its blocks: release the reservation instead"));
        }
        let taken = self.handle.take()?;
        Ok(blocks::blocks(py, &catch(|| taken.into_blocks())?)?.into_any())
    }

    /// Gives the blocks back. Does nothing if they were already given back or taken.
    fn release(&self) -> PyResult<()> {
        self.handle.release()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.release()
    }

    fn __repr__(&self) -> String {
        if !self.handle.is_of_this_process() {
            let released = if self.released() { ", released" } else { "" };
            return format!("<radixkv.Reservation: of the parent process{released}>");
        }
        match self.handle.with(|held| held.len()) {
            Ok(len) => format!("<radixkv.Reservation: {len} blocks>"),
            Err(_) => "<radixkv.Reservation: released>".into(),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a reservation", "it owns blocks of a cache in this process"))
    }
}

/// Why `make_unique` has changed nothing.
enum NotUnique {
    NoSuchBlock { len: usize },
    Foreign,
    NoBlock,
    SharedBlock,
}

/// A copy that the caller of `Reservation.make_unique` must make. The source block stays in place
/// until this object is released, by `release()`, a `with` statement, or when Python drops it: copy
/// first.
#[pyclass(module = "radixkv", frozen, weakref)]
pub(crate) struct PendingCopy {
    handle: Handle<radixkv::PendingCopy>,
    /// The block to copy from.
    #[pyo3(get)]
    source: BlockId,
    /// The block to copy into, which the reservation now holds.
    #[pyo3(get)]
    destination: BlockId,
}

#[pymethods]
impl PendingCopy {
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
        Err(unpicklable("a pending copy", "it keeps a block of a cache in this process"))
    }
}
