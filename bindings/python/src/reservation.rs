//! The class `Reservation`, blocks that an owner fills and inserts, and the class `PendingCopy`.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use radixkv::BlockId;

use crate::blocks;
use crate::cache::Origin;
use crate::errors::{self, catch};
use crate::fork::Held;
use crate::lease::unpicklable;
use crate::numbers::number;

/// Reserved blocks, which the owner fills and then inserts.
///
/// The blocks are given back by `release()`, at the end of a `with` statement, or when Python drops
/// the reservation; an insert takes them. It cannot be pickled or copied: `fork()` makes a second
/// reservation of the same blocks.
#[pyclass(module = "radixkv", weakref)]
pub(crate) struct Reservation {
    held: Held<radixkv::Reservation>,
    origin: Origin,
}

impl Reservation {
    pub(crate) fn new(reservation: radixkv::Reservation, origin: Origin) -> Self {
        Self { held: Held::new(reservation), origin }
    }

    /// Takes the blocks out, if they belong to `cache`.
    pub(crate) fn take(&mut self, cache: &radixkv::PrefixCache) -> PyResult<radixkv::Reservation> {
        if !self.held.get()?.is_of(cache) {
            return Err(errors::foreign("reservation"));
        }
        self.held.take()
    }

    /// Puts back the blocks after an insert refused them.
    pub(crate) fn put(&mut self, reservation: radixkv::Reservation) {
        self.held.put(reservation);
    }

    fn check_index(&self, index: usize) -> PyResult<()> {
        let len = self.held.get()?.len();
        if index < len {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!("block {index} of a reservation of {len} blocks")))
    }
}

#[pymethods]
impl Reservation {
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.held.get()?.len())
    }

    /// Whether the blocks were given back, or taken by another verb.
    #[getter]
    fn released(&self) -> bool {
        !self.held.is_held()
    }

    /// The ids of the blocks, in the order in which an insert uses them: a new numpy array, int32,
    /// shape (n,).
    ///
    /// Raises ReleasedError.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::blocks(py, self.held.get()?.blocks())?.into_any())
    }

    /// The slots of all positions in the blocks, `id * block_size + position in the block`: a new
    /// numpy array, int64, shape (n * block_size,).
    ///
    /// Raises ReleasedError.
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(blocks::slots(py, self.held.get()?.blocks(), self.origin.block_size)?.into_any())
    }

    /// Writes the ids to the beginning of `out`, a writable contiguous array or buffer of 32- or
    /// 64-bit integers; returns their number.
    ///
    /// Raises TypeError, ValueError and ReleasedError, and then writes nothing.
    fn blocks_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::blocks_into(out, self.held.get()?.blocks())
    }

    /// Writes the slots to the beginning of `out`, a writable contiguous array or buffer of 64-bit
    /// integers; returns their number.
    ///
    /// Raises TypeError, ValueError and ReleasedError, and then writes nothing.
    fn slots_into(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        blocks::slots_into(out, self.held.get()?.blocks(), self.origin.block_size)
    }

    /// Moves the first `n` blocks into a new reservation, for a prompt that is inserted in chunks.
    ///
    /// Raises ValueError if there are fewer, and ReleasedError.
    fn split(&mut self, #[pyo3(from_py_with = number)] n: usize) -> PyResult<Self> {
        let len = self.held.get()?.len();
        if n > len {
            return Err(PyValueError::new_err(format!("{n} blocks of a reservation of {len}")));
        }
        let (held, origin) = (self.held.get_mut()?, self.origin);
        Ok(Self::new(catch(|| held.split(n))?, origin))
    }

    /// Appends the blocks of `other`, for a sequence that grows. `other` is then released.
    ///
    /// Raises ValueError if different namespaces pay for the two, ForeignHandleError and
    /// ReleasedError, and then nothing has changed.
    fn append(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<()> {
        if slf.is(other) {
            return Err(PyValueError::new_err("a reservation cannot be appended to itself"));
        }
        let (mut this, mut other) = (slf.try_borrow_mut()?, other.try_borrow_mut()?);
        let is_foreign = this.origin != other.origin;
        let (own, more) = (this.held.get_mut()?, other.held.get()?);
        if is_foreign {
            return Err(errors::foreign("other reservation"));
        }
        if !own.has_payer_of(more) {
            return Err(PyValueError::new_err("different namespaces pay for the two reservations"));
        }
        let more = other.held.take()?;
        catch(|| own.append(more))
    }

    /// Makes a second reservation of the same blocks, for a sequence that continues in several
    /// ways.
    ///
    /// A block is given back when the last reservation that holds it is released. While several
    /// reservations hold a block, none may write to it or insert it: see `make_unique`. Raises
    /// ReleasedError.
    fn fork(&mut self) -> PyResult<Self> {
        let (held, origin) = (self.held.get_mut()?, self.origin);
        Ok(Self::new(catch(|| held.fork())?, origin))
    }

    /// Whether a fork also holds block `index` (from 0).
    ///
    /// Raises IndexError and ReleasedError.
    fn is_shared(&mut self, #[pyo3(from_py_with = number)] index: usize) -> PyResult<bool> {
        self.check_index(index)?;
        let held = self.held.get_mut()?;
        catch(|| held.is_shared(index))
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
        let (mut this, mut fresh) = (slf.try_borrow_mut()?, fresh.try_borrow_mut()?);
        this.check_index(index)?;
        let is_foreign = this.origin != fresh.origin;
        let (own, fresh) = (this.held.get_mut()?, fresh.held.get_mut()?);
        if is_foreign {
            return Err(errors::foreign("fresh reservation"));
        }
        if !catch(|| own.is_shared(index))? {
            return Ok(None);
        }
        let Some(last) = fresh.len().checked_sub(1) else {
            return Err(PyValueError::new_err("fresh has no block: reserve one"));
        };
        if catch(|| fresh.is_shared(last))? {
            return Err(PyValueError::new_err("fresh ends with a block that a fork also holds: reserve another one"));
        }
        Ok(catch(|| own.make_unique(index, fresh))?.map(|copy| PendingCopy {
            source: copy.source(),
            destination: copy.destination(),
            held: Held::new(copy),
        }))
    }

    /// Gives the blocks back to the engine that owns the pool immediately, and releases the
    /// reservation. Returns their ids, a new numpy array, int32, shape (n,), without blocks that a
    /// fork also holds.
    ///
    /// Raises ValueError if the cache owns its pool, and ReleasedError.
    fn take_blocks<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if !self.origin.is_external {
            return Err(PyValueError::new_err("the cache owns its blocks: release the reservation instead"));
        }
        let taken = self.held.take()?;
        Ok(blocks::blocks(py, &catch(|| taken.into_blocks())?)?.into_any())
    }

    /// Gives the blocks back. Does nothing if they were already given back or taken.
    fn release(&mut self) -> PyResult<()> {
        catch(|| self.held.release())?
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&mut self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.release()
    }

    fn __repr__(&self) -> String {
        match self.held.get() {
            Ok(held) => format!("<radixkv.Reservation: {} blocks>", held.len()),
            Err(_) => "<radixkv.Reservation: released>".into(),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a reservation", "it owns blocks of a cache in this process"))
    }
}

/// A copy that the caller of `Reservation.make_unique` must make. The source block stays in place
/// until this object is released, by `release()`, a `with` statement, or when Python drops it: copy
/// first.
#[pyclass(module = "radixkv", weakref)]
pub(crate) struct PendingCopy {
    held: Held<radixkv::PendingCopy>,
    /// The block to copy from.
    #[pyo3(get)]
    source: BlockId,
    /// The block to copy into, which the reservation now holds.
    #[pyo3(get)]
    destination: BlockId,
}

#[pymethods]
impl PendingCopy {
    /// Gives up the source block. Does nothing if this was already done.
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
        Err(unpicklable("a pending copy", "it keeps a block of a cache in this process"))
    }
}
