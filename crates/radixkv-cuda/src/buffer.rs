//! Memory of a device, and borrowed views of it.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use cudarc::driver::{CudaSlice, DevicePtr};

use super::device::Device;
use super::dlpack::{DlTensor, of_view};
use super::error::GpuError;
use super::staging::MOST_BYTES;
use radixkv_attention::Dtype;

/// An element of a [`Buffer`]: `u8`, `u16`, `u32`, `u64` or `f32`. The trait is sealed: no other
/// type can implement it.
///
/// ```no_run
/// use radixkv_cuda::{Buffer, Device, Element, GpuError};
///
/// fn twice<T: Element>(device: &Device, elements: &[T]) -> Result<Buffer<T>, GpuError> {
///     device.upload(&[elements, elements].concat())
/// }
/// ```
pub trait Element: Copy + Default + private::Sealed + 'static {}

mod private {
    use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

    pub trait Sealed: DeviceRepr + ValidAsZeroBits {}
}

macro_rules! elements {
    ($($element:ty)*) => {$(
        impl private::Sealed for $element {}
        impl Element for $element {}
    )*};
}
elements!(u8 u16 u32 u64 f32);

/// Elements in the memory of a device. When dropped, the memory is freed in the order of the
/// device's stream.
///
/// # Examples
///
/// ```no_run
/// # let device = radixkv_cuda::Device::open(0)?;
/// let mut queries = device.zeros::<u16>(8 * 128)?;
/// queries.write(&[0x3f80; 8 * 128])?; // a row of 8 heads of ones, in bf16
/// assert_eq!(queries.to_vec()?[0], 0x3f80);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Buffer<T: 'static> {
    device: Device,
    slice: ManuallyDrop<CudaSlice<T>>,
    len: usize,
}

/// A view of elements of device memory that an operation reads. From [`Buffer::view`], or
/// [`View::from_raw`] for memory of an engine.
///
/// ```no_run
/// # use radixkv_cuda::*;
/// # fn show(buffer: &Buffer<u16>, device: &Device) -> Result<(), GpuError> {
/// let view: View<'_, u16> = buffer.view();
/// device.read_all(view)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T> {
    raw: RawView,
    lifetime: PhantomData<&'a [T]>,
}

/// A view of elements of device memory that an operation writes. From [`Buffer::view_mut`], or
/// [`ViewMut::from_raw`] for memory of an engine.
///
/// ```no_run
/// # use radixkv_cuda::*;
/// # fn show(from: &Buffer<u16>, to: &mut Buffer<u16>, device: &Device) -> Result<(), GpuError> {
/// let view: ViewMut<'_, u16> = to.view_mut();
/// device.copy_all(from.view(), view)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    raw: RawView,
    lifetime: PhantomData<&'a mut [T]>,
}

/// Address, length and device of a view.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawView {
    /// Address of the first element.
    pub(super) address: u64,
    /// Elements.
    pub(super) len: usize,
    /// The device on whose stream it may be used.
    device: u64,
}

impl Device {
    /// Allocates a buffer of `len` zeros.
    ///
    /// # Errors
    ///
    /// [`GpuError::OutOfMemory`] if there is too little memory, or no allocation can be as large.
    ///
    /// ```no_run
    /// # let device = radixkv_cuda::Device::open(0)?;
    /// let out = device.zeros::<f32>(64)?;
    /// assert_eq!(out.len(), 64);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        let bytes = byte_len::<T>(len)?;
        self.refuse_capture()?;
        let slice = self.stream().alloc_zeros(len.max(1)).map_err(|error| GpuError::allocating(bytes, error))?;
        Ok(Buffer { device: self.clone(), slice: ManuallyDrop::new(slice), len })
    }

    /// Allocates a buffer with a copy of `elements`.
    ///
    /// # Errors
    ///
    /// [`GpuError::OutOfMemory`] if there is too little memory.
    ///
    /// ```no_run
    /// # let device = radixkv_cuda::Device::open(0)?;
    /// let tokens = device.upload(&[1_u32, 2, 3])?;
    /// assert_eq!(tokens.to_vec()?, [1, 2, 3]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn upload<T: Element>(&self, elements: &[T]) -> Result<Buffer<T>, GpuError> {
        let mut buffer = self.unset(elements.len())?;
        buffer.write(elements)?;
        Ok(buffer)
    }

    /// Allocates a buffer with undefined contents, which must be written before it is read (G4).
    pub(super) fn unset<T: Element>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        let bytes = byte_len::<T>(len)?;
        self.refuse_capture()?;
        // SAFETY: plain numbers: any bits are a value of `T`; and the kernels write before they
        // read (G4).
        let slice = unsafe { self.stream().alloc(len.max(1)) }.map_err(|error| GpuError::allocating(bytes, error))?;
        Ok(Buffer { device: self.clone(), slice: ManuallyDrop::new(slice), len })
    }

    /// Returns the view, if it belongs to this device.
    pub(super) fn resolve(&self, raw: RawView) -> Result<RawView, GpuError> {
        if raw.device == self.identity() { Ok(raw) } else { Err(GpuError::WrongDevice) }
    }
}

/// Bytes of `len` elements. The binding multiplies without a check, and would allocate the
/// remainder.
fn byte_len<T>(len: usize) -> Result<usize, GpuError> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or(GpuError::OutOfMemory { bytes: len.saturating_mul(size_of::<T>()) })
}

impl<T: Element> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces its first elements by `elements`, in the order of the device's stream. The elements
    /// may be changed or freed when it returns; with more than 16 MiB it waits for the queued work.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If there are more elements than the buffer has.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(buffer: &mut Buffer<u32>) -> Result<(), GpuError> {
    /// buffer.write(&[1, 2, 3])?; // the elements after the first three stay
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&mut self, elements: &[T]) -> Result<(), GpuError> {
        assert!(elements.len() <= self.len, "{} elements written to a buffer of {}", elements.len(), self.len);
        if elements.is_empty() {
            return Ok(());
        }
        self.device.refuse_capture()?;
        if size_of_val(elements) <= MOST_BYTES {
            return self.device.stage(elements, self.address());
        }
        // A copy of page-locked elements reads them after the call.
        self.device.stream().memcpy_htod(elements, &mut *self.slice).map_err(GpuError::of)?;
        self.device.synchronize()
    }

    /// Copies all elements to host memory, after waiting for the queued work.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(buffer: &Buffer<f32>) -> Result<(), GpuError> {
    /// let elements: Vec<f32> = buffer.to_vec()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_vec(&self) -> Result<Vec<T>, GpuError> {
        self.device.refuse_capture()?;
        let mut elements = vec![T::default(); self.len];
        if !elements.is_empty() {
            let copied = self.device.stream().memcpy_dtoh(&self.slice.slice(..self.len), &mut elements);
            copied.map_err(GpuError::of)?;
        }
        self.device.synchronize()?;
        Ok(elements)
    }

    /// A view of all elements for reading.
    pub fn view(&self) -> View<'_, T> {
        View { raw: self.raw(), lifetime: PhantomData }
    }

    /// A view of all elements for writing.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { raw: self.raw(), lifetime: PhantomData }
    }

    pub(super) fn raw(&self) -> RawView {
        let (address, _) = self.slice.device_ptr(self.device.stream());
        RawView { address, len: self.len, device: self.device.identity() }
    }

    pub(super) fn address(&self) -> u64 {
        self.raw().address
    }
}

impl<T: 'static> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, and not used after.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        self.device.drop_after_capture(slice);
    }
}

impl<T: 'static> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Element> View<'_, T> {
    /// Makes a view of `len` elements in memory of an engine.
    ///
    /// # Safety
    ///
    /// `address` must be of the context of `device` and a multiple of 16. The elements must be
    /// written in the order of the device's stream, and stay until all work that is queued with the
    /// view is done.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use radixkv_cuda::{Device, GpuError, View};
    /// # fn show(device: &Device, queries: u64, len: usize) {
    /// // SAFETY: the engine's buffer of `len` elements lies there until the step is done.
    /// let queries = unsafe { View::<u16>::from_raw(device, queries, len) };
    /// # }
    /// ```
    pub unsafe fn from_raw(device: &Device, address: u64, len: usize) -> Self {
        Self { raw: RawView { address, len, device: device.identity() }, lifetime: PhantomData }
    }

    pub(super) fn raw(&self) -> RawView {
        self.raw
    }
}

impl<T: Element> ViewMut<'_, T> {
    /// Makes a view of `len` elements in memory of an engine.
    ///
    /// # Safety
    ///
    /// As for [`View::from_raw`]; and nothing else may use the memory until then.
    pub unsafe fn from_raw(device: &Device, address: u64, len: usize) -> Self {
        Self { raw: RawView { address, len, device: device.identity() }, lifetime: PhantomData }
    }

    pub(super) fn raw(&self) -> RawView {
        self.raw
    }
}

/// Sizes and strides of a tensor, or no strides.
///
/// # Safety
///
/// G6.
pub(super) unsafe fn tensor_arrays(tensor: &DlTensor) -> (&[i64], Option<&[i64]>) {
    let dimensions = usize::try_from(tensor.ndim).unwrap_or(0);
    if dimensions == 0 {
        return (&[], None);
    }
    // SAFETY: G6.
    let sizes = unsafe { std::slice::from_raw_parts(tensor.shape, dimensions) };
    let strides = match tensor.strides.is_null() {
        true => None,
        // SAFETY: G6.
        false => Some(unsafe { std::slice::from_raw_parts(tensor.strides, dimensions) }),
    };
    (sizes, strides)
}

impl<T: Element> View<'_, T> {
    /// Makes a view of an engine's tensor, which must be on `device`, with elements of `dtype`,
    /// this shape and no gaps. Rows of queries are `[rows, query heads, head_dim]`.
    ///
    /// # Errors
    ///
    /// [`GpuError::Tensor`] with the field that differs, its value and the required value;
    /// [`GpuError::Unaligned`].
    ///
    /// # Safety
    ///
    /// As for [`View::from_raw`]; and `shape` and `strides` of the tensor must be arrays of `ndim`
    /// numbers, or `strides` null.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use radixkv_attention::Dtype;
    /// # use radixkv_cuda::{Device, DlTensor, GpuError, View};
    /// # fn show(device: &Device, tensor: &DlTensor, rows: usize) -> Result<(), GpuError> {
    /// // SAFETY: the framework's tensor stays until the step is done.
    /// let queries = unsafe { View::<u16>::from_dlpack(device, tensor, Dtype::Bf16, &[rows, 32, 128]) }?;
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn from_dlpack(
        device: &Device,
        tensor: &DlTensor,
        dtype: Dtype,
        shape: &[usize],
    ) -> Result<Self, GpuError> {
        // SAFETY: as the caller promises.
        let arrays = unsafe { tensor_arrays(tensor) };
        let (address, _) = tensor.address(arrays, device, of_view::<T>(dtype)?, shape, false)?;
        // SAFETY: as the caller promises; the tensor has so many elements.
        Ok(unsafe { Self::from_raw(device, address, shape.iter().product()) })
    }
}

impl<T: Element> ViewMut<'_, T> {
    /// As [`View::from_dlpack`], for a tensor that is written.
    ///
    /// # Errors
    ///
    /// As for [`View::from_dlpack`].
    ///
    /// # Safety
    ///
    /// As for [`View::from_dlpack`]; and nothing else may use the memory until the work is done.
    pub unsafe fn from_dlpack(
        device: &Device,
        tensor: &DlTensor,
        dtype: Dtype,
        shape: &[usize],
    ) -> Result<Self, GpuError> {
        // SAFETY: as the caller promises.
        let arrays = unsafe { tensor_arrays(tensor) };
        let (address, _) = tensor.address(arrays, device, of_view::<T>(dtype)?, shape, false)?;
        // SAFETY: as the caller promises; the tensor has so many elements.
        Ok(unsafe { Self::from_raw(device, address, shape.iter().product()) })
    }
}
