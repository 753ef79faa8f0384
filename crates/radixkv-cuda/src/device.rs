//! An open device: its context, one stream for all work of ours, the kernels loaded for it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUdevice_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use super::driver;
use super::error::{GpuError, OpenError};
use super::image::Images;
use super::kernel::Loaded;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The oldest compute capability that the kernels run on: they copy asynchronously and multiply `bf16`.
const OLDEST: (u32, u32) = (8, 0);

/// For devices that do not say: 2 TB/s.
const UNKNOWN_BYTES_PER_US: usize = 2_000_000;

/// A GPU with a context, a stream and the kernels.
///
/// Cheap to clone; everything that came out of it keeps it open. All work of one `Device` is queued on one stream, in
/// the order of the calls; work of threads that use it at once is queued in some order. Open it twice for two streams.
///
/// # Examples
///
/// ```no_run
/// use radixkv_cuda::{Device, OpenError};
///
/// match Device::open(0) {
///     Ok(device) => println!("{device}"),
///     Err(OpenError::NoDriver) => println!("no GPU here: compute on the processor"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// No other of the process has it, before or after.
    identity: u64,
    stream: Arc<CudaStream>,
    kernels: Arc<Loaded>,
    properties: Properties,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Its name.
    pub name: String,
    /// Compute capability: before and after the point.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its second-level cache.
    pub l2_bytes: usize,
    /// Bytes of shared memory that a thread block may have.
    pub shared_bytes: u32,
    /// Bytes of its memory.
    pub memory_bytes: usize,
    /// Bytes that the memory moves in a microsecond, by its data sheet.
    pub bytes_per_us: usize,
}

impl Device {
    /// Opens a device in its primary context, with a stream of its own and the kernels that came with the crate.
    ///
    /// Takes 0.1 s and more the first time in a process: the driver makes a context and loads the kernels.
    ///
    /// # Errors
    ///
    /// If there is no driver or no such device, or it cannot run the kernels. Never panics: an embedder may probe.
    pub fn open(ordinal: usize) -> Result<Self, OpenError> {
        Self::open_with(ordinal, Images::Prebuilt)
    }

    /// Opens a device with other images of the kernels: see [`Images`].
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); also if the images are not the kernels.
    pub fn open_with(ordinal: usize, images: Images<'_>) -> Result<Self, OpenError> {
        check_ordinal(ordinal)?;
        let context = CudaContext::new(ordinal)?;
        // SAFETY: every buffer of this module is used on one stream, or orders other streams by events itself (G2).
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        Self::build(stream, images)
    }

    /// Works in a context and on a stream that an engine owns, so that its kernels and ours are ordered by the stream
    /// and share addresses. The context is never destroyed from here.
    ///
    /// `context` is a `CUcontext`, `stream` a `CUstream` of it; null is the context's default stream.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// Both must be valid, of device `ordinal`, and stay so until the `Device`, its clones and all that was allocated
    /// through them are gone. `stream` must not be the per-thread default stream (2): that is another one in each thread,
    /// and memory is freed in the order of one.
    pub unsafe fn within(
        ordinal: usize,
        context: *mut c_void,
        stream: *mut c_void,
        images: Images<'_>,
    ) -> Result<Self, OpenError> {
        check_ordinal(ordinal)?;
        let device = result::device::get(ordinal as i32)?;
        // SAFETY: the caller's promise.
        let context = unsafe { CudaContext::from_raw_context(ordinal, device, context.cast()) }?;
        // The binding would destroy the engine's context with the last handle: one is never dropped.
        std::mem::forget(Arc::clone(&context));
        // SAFETY: as in `open_with`.
        unsafe { context.disable_event_tracking() };
        // SAFETY: the caller's promise.
        let stream = unsafe { context.wrap_borrowed_stream(stream.cast()) };
        Self::build(stream, images)
    }

    fn build(stream: Arc<CudaStream>, images: Images<'_>) -> Result<Self, OpenError> {
        let properties = Properties::of(stream.context())?;
        let (major, minor) = properties.capability;
        if properties.capability < OLDEST {
            return Err(OpenError::Unsupported { major, minor });
        }
        let kernels = Arc::new(Loaded::load(stream.context(), properties.capability, images)?);
        Ok(Self::of(stream, kernels, properties))
    }

    fn of(stream: Arc<CudaStream>, kernels: Arc<Loaded>, properties: Properties) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: nothing but the number is handed on.
        let identity = NEXT.fetch_add(1, Relaxed);
        Self { inner: Arc::new(Inner { identity, stream, kernels, properties }) }
    }

    /// The same device with a stream of its own: what is queued there runs beside what is queued here.
    pub(super) fn beside(&self) -> Result<Self, GpuError> {
        let Inner { stream, kernels, properties, .. } = &*self.inner;
        Ok(Self::of(stream.context().new_stream()?, Arc::clone(kernels), properties.clone()))
    }

    /// What the device is.
    pub fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    /// Waits until everything queued on its stream is done.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        Ok(self.inner.stream.synchronize()?)
    }

    /// The stream, as the driver knows it: for an engine that orders its own work by it.
    pub fn raw_stream(&self) -> *mut c_void {
        self.inner.stream.cu_stream().cast()
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.inner.stream
    }

    pub(super) fn kernels(&self) -> &Loaded {
        &self.inner.kernels
    }

    /// A number that clones share and no other device of the process has, not even when this one is gone: whose stream
    /// orders the use of a buffer.
    pub(super) fn identity(&self) -> u64 {
        self.inner.identity
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Properties { name, capability: (major, minor), multiprocessors, .. } = self.properties();
        write!(f, "{name}, compute capability {major}.{minor}, {multiprocessors} multiprocessors")
    }
}

impl Properties {
    fn of(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let attribute = |attribute| context.attribute(attribute).map(|value| value.max(0) as usize);
        let (major, minor) = context.compute_capability()?;
        // Two transfers a cycle, the clock in kHz and the bus in bits.
        let clock = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bus = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        let bytes_per_us = match 2 * clock * (bus / 8) / 1000 {
            0 => UNKNOWN_BYTES_PER_US,
            known => known,
        };
        Ok(Self {
            name: context.name()?,
            capability: (major.max(0) as u32, minor.max(0) as u32),
            multiprocessors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32,
            l2_bytes: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            shared_bytes: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32,
            memory_bytes: context.total_mem()?,
            bytes_per_us,
        })
    }
}

fn check_ordinal(ordinal: usize) -> Result<(), OpenError> {
    driver::find()?;
    let devices = match CudaContext::device_count() {
        Ok(count) => count.max(0) as usize,
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
        Err(error) => return Err(error.into()),
    };
    if ordinal < devices { Ok(()) } else { Err(OpenError::NoDevice { ordinal, devices }) }
}
