//! Movers that are Python code.
//!
//! They never see the tier's own bytes: a copy to the host gets memory of Python's to write to, which
//! is copied to the tier when the call has returned, and a copy to the device gets a `bytes` object.
//! So a view that outlives the call is neither dangling nor a way to change what is cached.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyRange};
use pyo3::{PyTraverseError, PyVisit};
use radixkv::BlockId;
use radixkv_host::{HostBlock, MoveError, Mover, ToDevice, ToHost};

use super::exit::Call;
use crate::lease::unpicklable;

/// A copy that a mover is to make, between a device block and a host block.
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
    /// The bytes of these tokens, a memoryview: to be written to by `offload`, to be read by
    /// `onboard`. It is released when the call returns. None if the tiers were built with
    /// views=False.
    #[pyo3(get)]
    bytes: Option<Py<PyMemoryView>>,
}

#[pymethods]
impl BlockCopy {
    /// The places in the device's block of the tokens to copy, a range.
    #[getter]
    fn tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        range(py, &self.tokens)
    }

    /// The places in the host's block of the tokens to copy, a range.
    #[getter]
    fn host_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        range(py, &self.host_tokens)
    }

    fn __repr__(&self) -> String {
        let Self { block, tokens, host_block, host_tokens, .. } = self;
        format!("<radixkv.BlockCopy: tokens {tokens:?} of block {block}, {host_tokens:?} of host block {host_block}>")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("a copy", "its bytes belong to a call of the mover"))
    }
}

fn range<'py>(py: Python<'py>, range: &Range<usize>) -> PyResult<Bound<'py, PyRange>> {
    PyRange::new(py, range.start as isize, range.end as isize)
}

/// How Python code is called.
enum Form {
    /// By its methods `offload` and `onboard`.
    Methods,
    /// As a function, with the name of the direction.
    Function,
}

/// A mover that is an object of Python.
pub(super) struct PythonMover {
    /// None once the garbage collector has cleared it.
    object: Mutex<Option<Py<PyAny>>>,
    form: Form,
    has_views: bool,
}

impl PythonMover {
    /// A mover of an object with methods `offload` and `onboard`, or of a function.
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
        Ok(Self { object: Mutex::new(Some(object.clone().unbind())), form, has_views })
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Nobody has it locked while the garbage collector runs, unless on a thread without the
        // interpreter; then the object is in use.
        let Ok(object) = self.object.try_lock() else { return Ok(()) };
        object.as_ref().map_or(Ok(()), |object| visit.call(object))
    }

    pub(super) fn clear(&self) {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without the lock: it is the caller's code.
        drop(object);
    }

    /// Calls the mover with the copies of `prepare`, and then `finish` with its memory. What is
    /// raised is reported and fails the move.
    fn call(
        &self,
        direction: &str,
        prepare: impl FnOnce(Python<'_>) -> PyResult<Prepared>,
        finish: impl FnOnce(Python<'_>, &[Py<PyByteArray>]) -> PyResult<()>,
    ) -> Result<(), MoveError> {
        let ending = || MoveError::new("the interpreter is ending");
        let _call = Call::begin().ok_or_else(ending)?;
        let called = Python::try_attach(|py| {
            // An eviction may begin where an exception is under way: when a handle is dropped.
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
            Some(false) => Err(MoveError::new("the mover raised an exception, or is gone")),
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
            // Refused if an array is made of it: then that sees memory that nothing else uses.
            let _ = view.bind(py).call_method0("release");
        }
        called?;
        finish(py, &written)
    }
}

/// What a mover is called with.
struct Prepared {
    copies: Vec<Py<BlockCopy>>,
    /// The memory that it writes to, if it gets any.
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
        // A mover that has resized the memory raises here.
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
