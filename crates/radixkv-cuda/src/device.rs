//! An open device: its context, one stream for all work, and the kernels loaded into the context.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;

use cudarc::driver::sys::{CUdevice_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DeviceRepr, DriverError, result};

use super::capturing::{self, Capturing};
use super::driver;
use super::error::{Code, GpuError, OpenError};
use super::image::Images;
use super::loaded::LoadedKernels;
use super::staging::Staging;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// The oldest compute capability that has what the kernels use: asynchronous copies, products of
/// `bf16`.
const OLDEST: (u32, u32) = (8, 0);

/// The speed assumed for devices that do not report their memory's speed: 2 TB/s.
const UNKNOWN_BYTES_PER_US: usize = 2_000_000;

/// A GPU with a context, a stream and the kernels.
///
/// Cloning is cheap; clones and everything made with a device keep it open. All work of one
/// `Device` is queued on one stream in the order of the calls; concurrent calls are queued in any
/// order. For two streams, open the device twice: both share the context and the kernels.
///
/// Calls to a device, to a handle made with it, and drops of either make the device's context the
/// current one of the calling thread, and leave it current. A thread that works in several contexts
/// (several GPUs, or an engine's own context beside [`Device::open`], which takes the primary one)
/// sets its own again before its next driver call (`cuCtxSetCurrent`, `cudaSetDevice`).
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
    /// Unique among all devices of the process, including dropped ones.
    identity: u64,
    capturing: Capturing,
    staging: Staging,
    stream: Arc<CudaStream>,
    /// Held while launches that use the same room, such as that for partial rows, are queued.
    queueing: Mutex<()>,
    /// Whether the stream is an engine's.
    is_engines: bool,
    opened: Arc<Opened>,
}

/// A context and the kernels loaded into it.
#[derive(Debug)]
struct Opened {
    context: Arc<CudaContext>,
    kernels: LoadedKernels,
    properties: Properties,
}

/// The devices that are open with prebuilt kernels, each by its number.
static OPENED: Mutex<Vec<(usize, Weak<Opened>)>> = Mutex::new(Vec::new());

/// The properties that a device reports.
///
/// ```no_run
/// # let device = radixkv_cuda::Device::open(0)?;
/// let properties = device.properties();
/// println!("{}: {} GB, {} GB/s", properties.name, properties.memory_bytes >> 30, properties.bytes_per_us / 1000);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its L2 cache.
    pub l2_bytes: usize,
    /// Bytes of shared memory that a thread block may have.
    pub shared_bytes: u32,
    /// Bytes of its memory.
    pub memory_bytes: usize,
    /// Bytes that its memory moves in a microsecond, by clock and bus width.
    pub bytes_per_us: usize,
}

impl Device {
    /// Opens a device in its primary context, with its own stream and the kernels that are embedded
    /// in the crate.
    ///
    /// Takes 0.1 s or more if the device is not yet open in this process: the driver makes a
    /// context and loads the kernels. The context's memory pool keeps freed memory for later
    /// allocations.
    ///
    /// # Errors
    ///
    /// If there is no driver or no such device, or it cannot run the kernels. It never panics, so
    /// it may be called to find out whether there is a device.
    ///
    /// ```no_run
    /// use radixkv_cuda::Device;
    ///
    /// let has_gpu = Device::open(0).is_ok();
    /// ```
    pub fn open(ordinal: usize) -> Result<Self, OpenError> {
        Self::open_with(ordinal, Images::Prebuilt)
    }

    /// Opens a device with chosen images of the kernels: see [`Images`].
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); and if the kernels do not compile.
    ///
    /// ```no_run
    /// use radixkv_cuda::{Device, Images};
    ///
    /// let nvrtc = std::path::Path::new("libnvrtc.so.12");
    /// let device = Device::open_with(0, Images::Compile { nvrtc })?;
    /// # Ok::<_, radixkv_cuda::OpenError>(())
    /// ```
    pub fn open_with(ordinal: usize, images: Images<'_>) -> Result<Self, OpenError> {
        check_ordinal(ordinal)?;
        let opened = match images {
            Images::Prebuilt => Opened::shared(ordinal)?,
            Images::Compile { .. } => Opened::primary(ordinal, images)?,
        };
        let stream = opened.context.new_stream().map_err(OpenError::of)?;
        Ok(Self::of(stream, opened, false))
    }

    /// Wraps a context and a stream of an engine: the stream orders the engine's kernels and those
    /// of this crate, and they share addresses. Neither is destroyed when the device is dropped,
    /// and the memory pool of the context stays as the engine has set it.
    ///
    /// While the engine captures the stream, launches are captured, and operations that
    /// [`capture`](Self::capture) refuses are refused. Transfers, events and host pools may be asked
    /// and waited for, on any thread. Memory that is dropped meanwhile is freed after the capture,
    /// at the next drop or allocation; so keep a handle of the device until the capture has ended.
    ///
    /// `context` is a `CUcontext`, `stream` a `CUstream` of it; null is the context's default
    /// stream.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// Both must be of device `ordinal`, and stay valid until the `Device`, its clones and all that
    /// was allocated through them are dropped. `stream` must not be the per-thread default stream
    /// (2): that is a different stream in each thread, while memory is freed in the order of one.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::ffi::c_void;
    /// # use radixkv_cuda::{Device, OpenError};
    /// # fn show(context: *mut c_void, stream: *mut c_void) -> Result<(), OpenError> {
    /// // SAFETY: the engine's context and stream outlive the device.
    /// let device = unsafe { Device::from_raw(0, context, stream, Default::default()) }?;
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn from_raw(
        ordinal: usize,
        context: *mut c_void,
        stream: *mut c_void,
        images: Images<'_>,
    ) -> Result<Self, OpenError> {
        check_ordinal(ordinal)?;
        let device = result::device::get(ordinal as i32).map_err(OpenError::of)?;
        // SAFETY: the caller's promise.
        let context = unsafe { CudaContext::from_raw_context(ordinal, device, context.cast()) };
        let context = context.map_err(OpenError::of)?;
        // The binding would destroy the engine's context with the last handle, so one is never
        // dropped.
        std::mem::forget(Arc::clone(&context));
        // SAFETY: as in `Opened::primary`.
        unsafe { context.disable_event_tracking() };
        // SAFETY: the caller's promise.
        let stream = unsafe { context.wrap_borrowed_stream(stream.cast()) };
        Ok(Self::of(stream, Opened::new(context, images)?, true))
    }

    fn of(stream: Arc<CudaStream>, opened: Arc<Opened>, is_engines: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the number matters, and nothing is published by it.
        let identity = NEXT.fetch_add(1, Relaxed);
        let (capturing, staging, queueing) = (Capturing::default(), Staging::default(), Mutex::new(()));
        Self { inner: Arc::new(Inner { identity, capturing, staging, stream, queueing, is_engines, opened }) }
    }

    /// The same context and kernels with another stream, which runs beside this one.
    pub(super) fn with_new_stream(&self) -> Result<Self, GpuError> {
        let opened = &self.inner.opened;
        let stream = opened.context.new_stream().map_err(GpuError::of)?;
        Ok(Self::of(stream, Arc::clone(opened), false))
    }

    /// The properties of the device.
    pub fn properties(&self) -> &Properties {
        &self.inner.opened.properties
    }

    /// Blocks the calling thread until everything queued on the stream is done.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed.
    ///
    /// ```no_run
    /// # let device = radixkv_cuda::Device::open(0)?;
    /// device.synchronize()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.refuse_capture()?;
        self.inner.stream.synchronize().map_err(GpuError::of)
    }

    /// The stream as a `CUstream`: for an engine that orders its own work by it.
    pub fn raw_stream(&self) -> *mut c_void {
        self.inner.stream.cu_stream().cast()
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.inner.stream
    }

    /// Keeps other threads from queueing work between the launches of one operation.
    pub(super) fn queue_together(&self) -> MutexGuard<'_, ()> {
        self.inner.queueing.lock()
    }

    pub(super) fn kernels(&self) -> &LoadedKernels {
        &self.inner.opened.kernels
    }

    pub(super) fn capturing(&self) -> &Capturing {
        &self.inner.capturing
    }

    /// Fails within [`capture`](Self::capture), and while an engine captures its own stream. Called
    /// by operations that cannot be captured, or whose results a graph could not use when it is
    /// launched.
    pub(super) fn refuse_capture(&self) -> Result<(), GpuError> {
        let by_engine = self.engine_captures();
        if self.capturing().breaks() || by_engine == Ok(true) {
            return Err(GpuError::NotCaptured { code: Code::CAPTURE_UNSUPPORTED });
        }
        by_engine.map_err(GpuError::of)?;
        self.capturing().free_kept();
        Ok(())
    }

    /// Drops `memory`, or keeps it until a capture in progress has ended: freeing it would also be
    /// captured, or break the capture.
    pub(super) fn drop_after_capture(&self, memory: impl Any + Send) {
        self.capturing().drop_after(memory, || self.engine_captures() != Ok(false));
    }

    /// Whether an engine captures its stream.
    pub(super) fn engine_captures(&self) -> Result<bool, DriverError> {
        if self.inner.is_engines { driver::is_captured(&self.inner.stream) } else { Ok(false) }
    }

    /// Queues a copy of `elements` to the device's address `to`, through page-locked memory.
    pub(super) fn stage<T: DeviceRepr>(&self, elements: &[T], to: u64) -> Result<(), GpuError> {
        self.inner.staging.send(&self.inner.stream, elements, to)
    }

    /// A number that clones share and no other device of the process has, not even after this one
    /// is dropped. It names the stream that orders the use of a buffer.
    pub(super) fn identity(&self) -> u64 {
        self.inner.identity
    }
}

impl Opened {
    /// The primary context of a device with prebuilt kernels, shared with `Device`s that are
    /// already open.
    fn shared(ordinal: usize) -> Result<Arc<Self>, OpenError> {
        let mut open = OPENED.lock();
        open.retain(|(_, opened)| opened.strong_count() > 0);
        let known = open.iter().find(|(number, _)| *number == ordinal).and_then(|(_, opened)| opened.upgrade());
        if let Some(opened) = known {
            return Ok(opened);
        }
        let opened = Self::primary(ordinal, Images::Prebuilt)?;
        open.push((ordinal, Arc::downgrade(&opened)));
        Ok(opened)
    }

    /// The primary context of a device.
    fn primary(ordinal: usize, images: Images<'_>) -> Result<Arc<Self>, OpenError> {
        let context = CudaContext::new(ordinal).map_err(OpenError::of)?;
        // SAFETY: every buffer is used on one stream, and other streams are ordered by events of
        // this crate (G2).
        unsafe { context.disable_event_tracking() };
        // If there is no pool, memory is allocated without one.
        let _ = driver::keep_pooled(context.cu_device());
        Self::new(context, images)
    }

    fn new(context: Arc<CudaContext>, images: Images<'_>) -> Result<Arc<Self>, OpenError> {
        let properties = Properties::of(&context).map_err(OpenError::of)?;
        let (major, minor) = properties.capability;
        if properties.capability < OLDEST {
            return Err(OpenError::Unsupported { major, minor });
        }
        let kernels = LoadedKernels::load(&context, properties.capability, images)?;
        Ok(Arc::new(Self { context, kernels, properties }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        capturing::drop_after_thread(std::mem::take(&mut self.staging));
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
        // Two transfers in a cycle; the clock is in kHz, the bus in bits.
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
        Err(error) => return Err(OpenError::of(error)),
    };
    if ordinal < devices { Ok(()) } else { Err(OpenError::NoDevice { ordinal, devices }) }
}
