//! Movers that are Python code: objects with methods, or functions.
//!
//! A mover never gets the tier's own memory. For a copy to the host, it writes to Python memory,
//! which is copied to the tier when the call has returned. For a copy to the device, it reads a
//! `bytes` object. So a view that outlives the call cannot dangle, and cannot change cached data.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyRange};
use pyo3::{PyTraverseError, PyVisit};
use radixkv::BlockId;
use radixkv_host::{HostBlock, MoveError, Mover, ToDevice, ToHost};

use super::exit::Call;
use crate::lease::unpicklable;
use crate::memory::Export;

/// A copy between a device block and a host block, which a mover must make.
#[pyclass(module = "radixkv", frozen)]
pub(super) struct BlockCopy {
    /// The id of the device's block.
    #[pyo3(get)]
    block: BlockId,
    tokens: Range<usize>,
    /// The id of the host's block.
    #[pyo3(get)]
    host_block: HostBlock,
    host_tokens: Range<usize>,
    /// The bytes of these tokens, a memoryview, which `offload` must write and `onboard` must read.
    /// It is released when the call returns. None if the tiers were built with views=False.
    #[pyo3(get)]
    bytes: Option<Py<PyMemoryView>>,
}

#[pymethods]
impl BlockCopy {
    /// The positions in the device block of the tokens to copy, a range.
    #[getter]
    fn tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        range(py, &self.tokens)
    }

    /// The positions in the host block of the tokens to copy, a range.
    #[getter]
    fn host_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        range(py, &self.host_tokens)
    }

    fn __repr__(&self) -> String {
        let Self { block, tokens, host_block, host_tokens, .. } = self;
        format!("<radixkv.BlockCopy: tokens {tokens:?} of block {block}, {host_tokens:?} of host block {host_block}>")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a copy", "it belongs to a call of the mover"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.bytes)
    }
}

fn range<'py>(py: Python<'py>, range: &Range<usize>) -> PyResult<Bound<'py, PyRange>> {
    PyRange::new(py, range.start as isize, range.end as isize)
}

/// The Python object that a mover refers to, for the garbage collector: it may refer to the tiers.
pub(super) enum Referent {
    Nothing,
    Code(Arc<PythonMover>),
    /// The memory of a device array.
    Memory(Arc<Py<Export>>),
}

impl Referent {
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Code(mover) => mover.traverse(visit),
            Self::Memory(owner) => visit.call(&**owner),
        }
    }

    pub(super) fn clear(&self) {
        if let Self::Code(mover) = self {
            mover.clear();
        }
    }
}

/// How the Python object is called.
enum Form {
    /// By its methods `offload(copies)` and `onboard(copies)`.
    Methods,
    /// As a function of the direction's name and the copies.
    Function,
}

/// A mover that is a Python object.
pub(super) struct PythonMover {
    /// None once the garbage collector has cleared it.
    object: Mutex<Option<Py<PyAny>>>,
    form: Form,
    has_views: bool,
}

impl PythonMover {
    /// Makes a mover from an object with methods `offload` and `onboard`, or from a function.
    /// Refuses an `async def`.
    pub(super) fn of(object: &Bound<'_, PyAny>, has_views: bool) -> PyResult<Self> {
        let has = |name: &str| Ok::<_, PyErr>(object.getattr_opt(name)?.is_some_and(|method| method.is_callable()));
        let form = if has("offload")? && has("onboard")? {
            Form::Methods
        } else if object.is_callable() {
            Form::Function
        } else {
            let message = format!(
                "mover is {}: an object with offload(copies) and onboard(copies), a function of (direction, copies), \
                 or the writable array that is the device's memory",
                object.get_type().name()?
            );
            return Err(PyTypeError::new_err(message));
        };
        let called = match form {
            Form::Methods => [object.getattr("offload")?, object.getattr("onboard")?],
            Form::Function => [object.clone(), object.getattr("__call__")?],
        };
        let is_async = object.py().import("inspect")?.getattr("iscoroutinefunction")?;
        for called in called {
            if is_async.call1((called,))?.is_truthy()? {
                return Err(PyTypeError::new_err("mover is an async def: must have copied when it returns"));
            }
        }
        Ok(Self { object: Mutex::new(Some(object.clone().unbind())), form, has_views })
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // While the garbage collector runs, only a thread without the GIL can hold the lock; then
        // the object is in use.
        let Ok(object) = self.object.try_lock() else { return Ok(()) };
        object.as_ref().map_or(Ok(()), |object| visit.call(object))
    }

    fn clear(&self) {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropped without the lock, because dropping may run the caller's code.
        drop(object);
    }

    /// Calls the mover with the copies of `prepare`, and then `finish` with the memory that it
    /// wrote. An exception is reported as unraisable, and the move fails.
    fn call(
        &self,
        direction: &str,
        prepare: impl FnOnce(Python<'_>) -> PyResult<Prepared>,
        finish: impl FnOnce(Python<'_>, &[Py<PyByteArray>]) -> PyResult<()>,
    ) -> Result<(), MoveError> {
        let ending = || MoveError::new("the interpreter is ending");
        let _call = Call::begin().ok_or_else(ending)?;
        let called = Python::try_attach(|py| {
            // Saves a pending exception: an eviction may run in the drop of a handle while Python
            // handles an exception.
            let under_way = PyErr::take(py);
            let object = {
                let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
                object.as_ref().map(|object| object.bind(py).clone())
            };
            let is_moved = object.is_some_and(|object| {
                let called = self.call_object(&object, direction, prepare, finish);
                called.map_err(|error| error.write_unraisable(py, Some(&object))).is_ok()
            });
            if let Some(error) = under_way {
                error.restore(py);
            }
            is_moved
        });
        match called {
            Some(true) => Ok(()),
            Some(false) => Err(MoveError::new("the mover raised an exception, or was garbage-collected")),
            None => Err(ending()),
        }
    }

    fn call_object(
        &self,
        object: &Bound<'_, PyAny>,
        direction: &str,
        prepare: impl FnOnce(Python<'_>) -> PyResult<Prepared>,
        finish: impl FnOnce(Python<'_>, &[Py<PyByteArray>]) -> PyResult<()>,
    ) -> PyResult<()> {
        let py = object.py();
        let Prepared { copies, written } = prepare(py)?;
        let listed = PyList::new(py, &copies)?;
        let called = match self.form {
            Form::Methods => object.call_method1(direction, (listed,)),
            Form::Function => object.call1((direction, listed)),
        };
        for view in copies.iter().filter_map(|copy| copy.get().bytes.as_ref()) {
            // Fails if an array uses the view; the array then keeps memory that nothing else uses.
            let _ = view.bind(py).call_method0("release");
        }
        check_done(&called?)?;
        finish(py, &written)
    }
}

/// Refuses a result that stands for work that is not done: of an `async def`, a generator, an
/// executor or a pool of `multiprocessing`.
fn check_done(result: &Bound<'_, PyAny>) -> PyResult<()> {
    if result.is_none() {
        return Ok(());
    }
    for name in ["__await__", "__next__", "__anext__", "add_done_callback", "successful"] {
        if result.hasattr(name)? {
            let message = format!("mover returned {}: must have copied when it returns", result.get_type().name()?);
            return Err(PyTypeError::new_err(message));
        }
    }
    Ok(())
}

/// The arguments of a mover's call.
struct Prepared {
    copies: Vec<Py<BlockCopy>>,
    /// The memory that the mover writes to, if views are enabled.
    written: Vec<Py<PyByteArray>>,
}

impl Mover for PythonMover {
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        let place = |copy: &ToHost<'_>| {
            (copy.block, copy.tokens.clone(), copy.host_block, copy.host_tokens.clone(), copy.bytes.len())
        };
        let places: Vec<_> = copies.iter().map(place).collect();
        let prepare = |py: Python<'_>| {
            let mut prepared = Prepared { copies: Vec::with_capacity(places.len()), written: Vec::new() };
            for (block, tokens, host_block, host_tokens, len) in places {
                let mut bytes = None;
                if self.has_views {
                    let written = PyByteArray::new_with(py, len, |_| Ok(()))?;
                    bytes = Some(PyMemoryView::from(written.as_any())?.unbind());
                    prepared.written.push(written.unbind());
                }
                prepared.copies.push(Py::new(py, BlockCopy { block, tokens, host_block, host_tokens, bytes })?);
            }
            Ok(prepared)
        };
        // Raises if the mover has resized the memory.
        let finish = |py: Python<'_>, written: &[Py<PyByteArray>]| {
            written
                .iter()
                .zip(copies)
                .try_for_each(|(written, copy)| PyBuffer::<u8>::get(written.bind(py))?.copy_to_slice(py, copy.bytes))
        };
        self.call("offload", prepare, finish)
    }

    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        let prepare = |py: Python<'_>| {
            let copy = |copy: &ToDevice<'_>| {
                let (tokens, host_tokens) = (copy.tokens.clone(), copy.host_tokens.clone());
                let view = |bytes| PyMemoryView::from(PyBytes::new(py, bytes).as_any()).map(Bound::unbind);
                let bytes = self.has_views.then(|| view(copy.bytes)).transpose()?;
                Py::new(py, BlockCopy { block: copy.block, tokens, host_block: copy.host_block, host_tokens, bytes })
            };
            Ok(Prepared { copies: copies.iter().map(copy).collect::<PyResult<_>>()?, written: Vec::new() })
        };
        self.call("onboard", prepare, |_, _| Ok(()))
    }
}
