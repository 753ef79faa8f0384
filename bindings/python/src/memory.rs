//! Accesses the memory of Python's arrays and buffers as slices. No other module reads or writes
//! this memory.
//!
//! Everything here holds the GIL (`Python<'py>`), so no other Python code runs. But a library that
//! has released the GIL may still write to an array, so the content of a slice may change while it
//! is read, as for any reader in Python. Therefore lookups only compare tokens, and inserts copy
//! them first. In free-threaded Python, where other threads run meanwhile, every method copies its
//! tokens, and reads only the copy.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use numpy::npyffi::{NPY_ARRAY_WRITEABLE, objects::_PyArray_GET_ITEM_DATA};
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView};
use pyo3::{PyTraverseError, PyVisit};

use crate::errors::catch;

/// The accepted integer types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    I32,
    U32,
    I64,
    U64,
}

impl Kind {
    fn of(signed: bool, bytes: usize) -> Option<Self> {
        match (signed, bytes) {
            (true, 4) => Some(Self::I32),
            (false, 4) => Some(Self::U32),
            (true, 8) => Some(Self::I64),
            (false, 8) => Some(Self::U64),
            _ => None,
        }
    }

    /// The type for a buffer's format string, in the syntax of Python's module `struct`.
    fn of_format(format: &CStr, bytes: usize) -> Option<Self> {
        let format = format.to_bytes();
        let format = match format.split_first() {
            Some((b'@' | b'=', rest)) => rest,
            Some((b'<', rest)) if cfg!(target_endian = "little") => rest,
            Some((b'>' | b'!', rest)) if cfg!(target_endian = "big") => rest,
            _ => format,
        };
        match format {
            [b'i' | b'l' | b'q' | b'n'] => Self::of(true, bytes),
            [b'I' | b'L' | b'Q' | b'N'] => Self::of(false, bytes),
            _ => None,
        }
    }
}

/// The Python object that keeps the memory of a region in place.
enum Owner<'py> {
    Array(#[allow(dead_code, reason = "holds a reference")] Bound<'py, PyUntypedArray>),
    Buffer(#[allow(dead_code, reason = "holds an export")] PyUntypedBuffer),
}

/// Contiguous integers in the memory of a Python object.
pub(crate) struct Region<'py> {
    kind: Kind,
    data: *mut u8,
    len: usize,
    is_writable: bool,
    _owner: Owner<'py>,
}

impl<'py> Region<'py> {
    /// The memory of a numpy array, or of any object with a buffer; `None` if it is neither. `name`
    /// is the argument's name for errors.
    pub(crate) fn of(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Self>> {
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            return Self::of_array(array, name).map(Some);
        }
        // SAFETY: a borrowed object, which lives for the call.
        if unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
            return Ok(None);
        }
        Self::of_buffer(export(object, name)?, name).map(Some)
    }

    fn of_array(array: &Bound<'py, PyUntypedArray>, name: &str) -> PyResult<Self> {
        let dtype = array.dtype();
        let is_native = dtype.is_native_byteorder() == Some(true);
        let kind = match dtype.kind() {
            b'i' if is_native => Kind::of(true, dtype.itemsize()),
            b'u' if is_native => Kind::of(false, dtype.itemsize()),
            _ => None,
        };
        let Some(kind) = kind else { return Err(wrong_type(name, &format!("an array of {dtype}"))) };
        if array.ndim() != 1 || !array.is_c_contiguous() || !array.is_aligned() {
            return Err(wrong_shape(name, array.shape(), array.strides()));
        }
        // SAFETY: the pointer comes from the array, which is borrowed.
        let fields = unsafe { _PyArray_GET_ITEM_DATA(array.as_array_ptr()) };
        // SAFETY: as above; nobody writes to an array's own fields while it is borrowed.
        let fields = unsafe { &*fields };
        let (data, is_writable) = (fields.data.cast(), fields.flags & NPY_ARRAY_WRITEABLE != 0);
        Ok(Self { kind, data, len: array.len(), is_writable, _owner: Owner::Array(array.clone()) })
    }

    fn of_buffer(buffer: PyUntypedBuffer, name: &str) -> PyResult<Self> {
        let Some(kind) = Kind::of_format(buffer.format(), buffer.item_size()) else {
            let format = buffer.format().to_string_lossy();
            return Err(wrong_type(name, &format!("a buffer of format {format:?}, {} bytes each", buffer.item_size())));
        };
        let data = buffer.buf_ptr().cast::<u8>();
        let is_aligned = data.addr().is_multiple_of(buffer.item_size()) || buffer.item_count() == 0;
        if buffer.dimensions() != 1 || !buffer.is_c_contiguous() || !is_aligned {
            return Err(wrong_shape(name, buffer.shape(), buffer.strides()));
        }
        let (len, is_writable) = (buffer.item_count(), !buffer.readonly());
        Ok(Self { kind, data, len, is_writable, _owner: Owner::Buffer(buffer) })
    }

    /// The integers.
    pub(crate) fn items(&self) -> Items<'_> {
        match self.kind {
            Kind::I32 => Items::I32(self.slice()),
            Kind::U32 => Items::U32(self.slice()),
            Kind::I64 => Items::I64(self.slice()),
            Kind::U64 => Items::U64(self.slice()),
        }
    }

    fn slice<T>(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `len` aligned integers of this size, by the checks of the constructors; the owner
        // keeps them, and every bit pattern is valid. The module's documentation says who may write
        // to them.
        unsafe { slice::from_raw_parts(self.data.cast(), self.len) }
    }

    /// The first `len` integers, for writing.
    pub(crate) fn items_mut(&mut self, len: usize, name: &str) -> PyResult<ItemsMut<'_>> {
        if !self.is_writable {
            return Err(PyValueError::new_err(format!("{name} is read-only: pass a writable array")));
        }
        if self.len < len {
            return Err(PyValueError::new_err(format!("{name} has {} places, but {len} are needed", self.len)));
        }
        Ok(match self.kind {
            Kind::I32 | Kind::U32 => ItemsMut::Narrow(self.slice_mut(len)),
            Kind::I64 | Kind::U64 => ItemsMut::Wide(self.slice_mut(len)),
        })
    }

    fn slice_mut<T>(&mut self, len: usize) -> &mut [T] {
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as in `slice`; writable and at least `len` long, as the caller has checked.
        unsafe { slice::from_raw_parts_mut(self.data.cast(), len) }
    }
}

/// Keeps the memory of a buffer in place. A reference to this object may be dropped on any thread.
#[pyclass(frozen)]
pub(crate) struct Export {
    _buffer: PyUntypedBuffer,
    /// The exporter, if the garbage collector may see it: a second reference beside the buffer's.
    exporter: Option<Py<PyAny>>,
}

impl Export {
    pub(crate) fn of(py: Python<'_>, buffer: PyUntypedBuffer) -> PyResult<Py<Self>> {
        // The collector clears objects that it sees in a dead cycle, before this export ends. These
        // two keep their memory when they are cleared; others may free it while threads use it.
        let keeps_memory = |exporter: &&Bound<'_, PyAny>| {
            exporter.is_instance_of::<PyUntypedArray>() || exporter.is_instance_of::<PyByteArray>()
        };
        let exporter = buffer.obj(py).filter(keeps_memory).map(|exporter| exporter.clone().unbind());
        Py::new(py, Self { _buffer: buffer, exporter })
    }
}

#[pymethods]
impl Export {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Once for each of the two references.
        visit.call(&self.exporter)?;
        visit.call(&self.exporter)
    }
}

/// Writable bytes of a Python object, which threads without the GIL may use.
pub(crate) struct Bytes {
    start: NonNull<u8>,
    len: usize,
    shape: Vec<usize>,
    owner: Arc<Py<Export>>,
}

// SAFETY: bytes may be read and written on any thread, and the owner is only dropped.
unsafe impl Send for Bytes {}
// SAFETY: as above; `read` and `write` copy through raw pointers and make no references.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// The memory of a writable C-contiguous buffer. `name` is the argument's name for errors.
    pub(crate) fn of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        // SAFETY: a borrowed object, which lives for the call.
        if unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
            let kind = object.get_type().name()?;
            let message = format!("{name} is {kind}: pass a writable array or buffer, or a view of your tensor as one");
            return Err(PyTypeError::new_err(message));
        }
        let buffer = export(object, name)?;
        let shape = buffer.shape().to_vec();
        if !buffer.is_c_contiguous() {
            let strides = buffer.strides();
            let message = format!("{name} has shape {shape:?} and strides {strides:?}: it must be C-contiguous");
            return Err(PyValueError::new_err(message));
        }
        if buffer.readonly() {
            return Err(PyValueError::new_err(format!("{name} is read-only: pass writable memory")));
        }
        let start = NonNull::new(buffer.buf_ptr().cast::<u8>()).unwrap_or(NonNull::dangling());
        let len = buffer.len_bytes();
        Ok(Self { start, len, shape, owner: Arc::new(Export::of(object.py(), buffer)?) })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The owner of the memory. The Python object that uses the memory shows it to the garbage
    /// collector.
    pub(crate) fn owner(&self) -> Arc<Py<Export>> {
        Arc::clone(&self.owner)
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The addresses of the bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.start.addr().get();
        start..start + self.len
    }

    /// Copies `to.len()` bytes from offset `at` into `to`; false if the buffer ends before.
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.place(at, to.len()) else { return false };
        // SAFETY: within the buffer, which the owner exports; `to` may overlap it, because `copy`
        // allows that. The caller's documentation says who else may write there.
        unsafe { std::ptr::copy(from, to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies `from` to offset `at`; false if the buffer ends before.
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> bool {
        let Some(to) = self.place(at, from.len()) else { return false };
        // SAFETY: as in `read`; the buffer is writable.
        unsafe { std::ptr::copy(from.as_ptr(), to, from.len()) };
        true
    }

    fn place(&self, at: usize, len: usize) -> Option<*mut u8> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        is_within.then(|| self.start.as_ptr().wrapping_add(at))
    }

    /// Creates the memory of a host tier, which drops `claim` together with it.
    pub(crate) fn into_host_memory(self, claim: impl Send + 'static) -> radixkv_host::Memory {
        // SAFETY: the owner exports the buffer until it is dropped, with the tier; the
        // documentation of `HostTier` asks the caller not to touch it until then.
        unsafe { radixkv_host::Memory::from_raw(self.start, self.len, (self.owner, claim)) }
    }
}

/// Integers for reading.
pub(crate) enum Items<'a> {
    I32(&'a [i32]),
    U32(&'a [u32]),
    I64(&'a [i64]),
    U64(&'a [u64]),
}

/// Integers for writing.
pub(crate) enum ItemsMut<'a> {
    Narrow(&'a mut [u32]),
    Wide(&'a mut [i64]),
}

/// The same bits as unsigned integers.
pub(crate) fn as_unsigned(items: &[i32]) -> &[u32] {
    // SAFETY: the two types have the same layout.
    unsafe { slice::from_raw_parts(items.as_ptr().cast(), items.len()) }
}

/// The same bits as signed integers.
pub(crate) fn as_signed(items: &[u32]) -> &[i32] {
    // SAFETY: the two types have the same layout.
    unsafe { slice::from_raw_parts(items.as_ptr().cast(), items.len()) }
}

/// The same bits as signed integers.
pub(crate) fn as_signed_wide(items: &[u64]) -> &[i64] {
    // SAFETY: the two types have the same layout.
    unsafe { slice::from_raw_parts(items.as_ptr().cast(), items.len()) }
}

/// Makes a new array of `len` integers, which `fill` writes.
pub(crate) fn new_array<'py, T: numpy::Element>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(&mut [T]),
) -> PyResult<Bound<'py, PyArray1<T>>> {
    catch(|| {
        let array = PyArray1::<T>::zeros(py, len, false);
        // SAFETY: nothing else has a reference to the array yet.
        fill(unsafe { array.as_slice_mut() }.expect("a new array is contiguous"));
        array
    })
}

pub(crate) const ACCEPTED: &str =
    "accepted are one-dimensional contiguous arrays and buffers of 32- or 64-bit integers in native byte order";

/// The buffer of an object. One that has no shape, such as a scalar of numpy, raises TypeError, and
/// so does one whose items hold Python objects or pointers.
pub(crate) fn export(object: &Bound<'_, PyAny>, name: &str) -> PyResult<PyUntypedBuffer> {
    let buffer = exported(object, name)?;
    // A union or a packed structure of `ctypes` has the format of one byte.
    let is_opaque = buffer.format().to_bytes() == b"B" && buffer.item_size() > 1;
    let reason = if is_opaque { "does not show whether it holds" } else { "holds" };
    if is_opaque || holds_addresses(buffer.format()) {
        let format = buffer.format().to_string_lossy();
        let message = format!(
            "{name} is a buffer of format {format:?}, which {reason} Python objects or pointers: \
             pass memory of numbers or bytes"
        );
        return Err(PyTypeError::new_err(message));
    }
    Ok(buffer)
}

fn exported(object: &Bound<'_, PyAny>, name: &str) -> PyResult<PyUntypedBuffer> {
    let refused = match PyUntypedBuffer::get(object) {
        Err(refused) if refused.is_instance_of::<PyBufferError>(object.py()) => refused,
        exported => return exported,
    };
    // The buffers of `ctypes` have no strides, but a memoryview of them does.
    let viewed = PyMemoryView::from(object).and_then(|view| PyUntypedBuffer::get(&view));
    viewed.map_err(|error| {
        if !error.is_instance_of::<PyBufferError>(object.py()) {
            return error;
        }
        let kind = object.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
        let error = PyTypeError::new_err(format!("{name} is {kind}, whose memory is not an array"));
        error.set_cause(object.py(), Some(refused));
        error
    })
}

/// Whether the items of a buffer hold Python objects or pointers, by its format in the syntax of
/// PEP 3118. Copied bytes would be wrong reference counts and dangling addresses.
fn holds_addresses(format: &CStr) -> bool {
    let (mut codes, mut is_name) = (format.to_bytes().iter().peekable(), false);
    while let Some(code) = codes.next() {
        match code {
            // The name of a field is enclosed in colons.
            b':' => is_name = !is_name,
            _ if is_name => {}
            b'O' | b'P' | b'X' | b'z' | b'&' => return true,
            // `Zf`, `Zd` and `Zg` are complex numbers, another `Z` is a pointer to text.
            b'Z' if !matches!(codes.peek(), Some(b'f' | b'd' | b'g')) => return true,
            _ => {}
        }
    }
    false
}

fn wrong_type(name: &str, given: &str) -> PyErr {
    PyTypeError::new_err(format!("{name} is {given}: {ACCEPTED}"))
}

fn wrong_shape(name: &str, shape: &[usize], strides: &[isize]) -> PyErr {
    PyValueError::new_err(format!("{name} has shape {shape:?} and strides {strides:?}: {ACCEPTED}"))
}
