//! Memory of a device, and views of it.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

use cudarc::driver::{CudaSlice, DevicePtr, DeviceRepr, ValidAsZeroBits};

use super::device::Device;
use super::error::GpuError;

/// What a [`Buffer`] holds: plain numbers.
pub trait Element: DeviceRepr + ValidAsZeroBits + Copy + Default + private::Sealed + 'static {}

mod private {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty)*) => {$(
        impl private::Sealed for $element {}
        impl Element for $element {}
    )*};
}
elements!(u8 u16 u32 u64 f32);

/// Elements in a device's memory; freed, in the order of the device's stream, when dropped.
///
/// # Examples
///
/// ```no_run
/// # let device = radixkv_cuda::Device::open(0)?;
/// let queries = device.upload::<u16>(&[0x3f80; 8 * 128])?; // a row of 8 heads of ones, in bf16
/// assert_eq!(queries.to_vec()?.len(), 1024);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Buffer<T> {
    device: Device,
    slice: CudaSlice<T>,
    len: usize,
}

/// Device memory to be read, of elements of `T`; [`Buffer::view`] makes it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T> {
    raw: Raw,
    lifetime: PhantomData<&'a [T]>,
}

/// Device memory to be written, of elements of `T`; [`Buffer::view_mut`] makes it.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    raw: Raw,
    lifetime: PhantomData<&'a mut [T]>,
}

/// Where a view lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    /// Address of the first element.
    pub(super) address: u64,
    /// Elements.
    pub(super) len: usize,
    /// The device on whose stream it may be used.
    device: u64,
}

impl Device {
    /// A buffer of zeros.
    ///
    /// # Errors
    ///
    /// If there is too little memory.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        let slice = self.stream().alloc_zeros(len.max(1)).map_err(|error| self.allocating::<T>(len, error))?;
        Ok(Buffer { device: self.clone(), slice, len })
    }

    /// A buffer with a copy of `elements`.
    ///
    /// # Errors
    ///
    /// If there is too little memory.
    pub fn upload<T: Element>(&self, elements: &[T]) -> Result<Buffer<T>, GpuError> {
        let mut buffer = self.unset(elements.len())?;
        buffer.write(elements)?;
        Ok(buffer)
    }

    /// A buffer that is written before it is read.
    pub(super) fn unset<T: Element>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        // SAFETY: plain numbers; whatever is there is some value of `T`, and our kernels write before they read (G4).
        let slice = unsafe { self.stream().alloc(len.max(1)) }.map_err(|error| self.allocating::<T>(len, error))?;
        Ok(Buffer { device: self.clone(), slice, len })
    }

    fn allocating<T>(&self, len: usize, error: cudarc::driver::DriverError) -> GpuError {
        GpuError::allocating(len.saturating_mul(size_of::<T>()), error)
    }

    /// Where a view of this device lies.
    pub(super) fn resolve(&self, raw: Raw) -> Result<Raw, GpuError> {
        if raw.device == self.identity() { Ok(raw) } else { Err(GpuError::WrongDevice) }
    }
}

impl<T: Element> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces the first elements by `elements`, in the order of the device's stream.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If there are more than the buffer has.
    pub fn write(&mut self, elements: &[T]) -> Result<(), GpuError> {
        assert!(elements.len() <= self.len, "{} elements written to a buffer of {}", elements.len(), self.len);
        if elements.is_empty() {
            return Ok(());
        }
        Ok(self.device.stream().memcpy_htod(elements, &mut self.slice)?)
    }

    /// Copies all elements out, after waiting for what is queued.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed.
    pub fn to_vec(&self) -> Result<Vec<T>, GpuError> {
        let mut elements = vec![T::default(); self.len];
        if !elements.is_empty() {
            self.device.stream().memcpy_dtoh(&self.slice.slice(..self.len), &mut elements)?;
        }
        self.device.synchronize()?;
        Ok(elements)
    }

    /// All of it, to be read.
    pub fn view(&self) -> View<'_, T> {
        View { raw: self.raw(), lifetime: PhantomData }
    }

    /// All of it, to be written.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { raw: self.raw(), lifetime: PhantomData }
    }

    pub(super) fn raw(&self) -> Raw {
        let (address, _) = self.slice.device_ptr(self.device.stream());
        Raw { address, len: self.len, device: self.device.identity() }
    }

    pub(super) fn address(&self) -> u64 {
        self.raw().address
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Element> View<'_, T> {
    /// Memory that an engine owns.
    ///
    /// # Safety
    ///
    /// `address` must lie in `device`'s context, aligned to 16 bytes, with `len` elements that are ready in the order
    /// of the device's stream and stay while what is queued with the view runs.
    pub unsafe fn from_raw(device: &Device, address: u64, len: usize) -> Self {
        Self { raw: Raw { address, len, device: device.identity() }, lifetime: PhantomData }
    }

    pub(super) fn raw(&self) -> Raw {
        self.raw
    }
}

impl<T: Element> ViewMut<'_, T> {
    /// Memory that an engine owns.
    ///
    /// # Safety
    ///
    /// As for [`View::from_raw`]; and nothing else may use it in between.
    pub unsafe fn from_raw(device: &Device, address: u64, len: usize) -> Self {
        Self { raw: Raw { address, len, device: device.identity() }, lifetime: PhantomData }
    }

    pub(super) fn raw(&self) -> Raw {
        self.raw
    }
}
