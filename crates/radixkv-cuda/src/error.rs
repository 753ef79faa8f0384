//! Errors of opening a device and of using it, with what to do.
//!
//! They contain no type of the binding: its errors are converted here to numbers of the driver
//! ([`Code`]).

use std::fmt;

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

use super::dlpack::TensorField;
use super::kernel::{Kernel, MOST_CONTEXT, SOFT_CAPS};
use radixkv_attention::{Dtype, ShapeError};

/// A status of the driver, by its number in `cuda.h`.
///
/// ```no_run
/// use radixkv_cuda::{Device, OpenError};
///
/// match Device::open(0) {
///     Err(OpenError::Driver { code }) => eprintln!("{code}, number {} of cuda.h", code.number()),
///     opened => drop(opened),
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(u32);

/// Why a device could not be opened.
///
/// ```
/// use radixkv_cuda::OpenError;
///
/// let error = OpenError::DriverTooOld { version: 11_080, needed: 12_000 };
/// assert_eq!(error.to_string(), "the NVIDIA driver supports CUDA 11.8, the kernels need 12.0; update it");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// `libcuda.so.1` was not found: install NVIDIA's driver, or compute on the CPU.
    NoDriver,
    /// The driver lacks a function of CUDA 12.0: update it.
    DriverIncomplete {
        /// The first function that is missing.
        function: &'static str,
    },
    /// The driver is older than the kernels: update it (525 or newer).
    DriverTooOld {
        /// CUDA version that it supports, as `1000 * major + 10 * minor`.
        version: i32,
        /// The oldest version that the kernels run on.
        needed: i32,
    },
    /// The driver sees no device of this number: check `CUDA_VISIBLE_DEVICES`, or open another.
    NoDevice {
        /// Requested number, from 0.
        ordinal: usize,
        /// Devices that the driver sees.
        devices: usize,
    },
    /// The device is older than the kernels: compute on the CPU, or on a device of compute
    /// capability 8.0 or later.
    Unsupported {
        /// Compute capability, before the point.
        major: u32,
        /// After the point.
        minor: u32,
    },
    /// The device has no memory left for a context or the kernels: free some, in this process or
    /// another.
    OutOfMemory,
    /// The driver refused the image of a kernel: update the driver, or compile the kernels
    /// ([`Images::Compile`](super::Images::Compile)).
    Image {
        /// The kernel.
        kernel: Kernel,
        /// The driver's reason.
        code: Code,
    },
    /// The run-time compiler was not found: check its path, or open the device with the prebuilt
    /// kernels.
    NoCompiler,
    /// The run-time compiler lacks a function: use NVRTC 12 or later.
    CompilerIncomplete {
        /// The first function that is missing.
        function: &'static str,
    },
    /// The run-time compiler refused a source: most likely it is older than the device; use a newer
    /// one.
    Compile {
        /// The source file.
        source: &'static str,
        /// The compiler's reason, by its number in `nvrtc.h`.
        status: u32,
    },
    /// The driver failed in another way; the code says how.
    Driver {
        /// The driver's reason.
        code: Code,
    },
}

/// Why an operation on an open device failed.
///
/// ```
/// use radixkv_cuda::GpuError;
///
/// let error = GpuError::OutOfMemory { bytes: 4096 };
/// assert_eq!(error.to_string(), "allocating 4096 bytes failed; free some or request less");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum GpuError {
    /// A shape does not fit; nothing was queued.
    Shape(ShapeError),
    /// Device or page-locked memory ran out: free some, or request less. The device stays usable.
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
    },
    /// A kernel was not started; work queued before it continues.
    Launch {
        /// The kernel.
        kernel: Kernel,
        /// The driver's reason.
        code: Code,
    },
    /// The launch is larger than a grid may be; nothing was queued. Split the batch.
    TooMuch {
        /// The kernel.
        kernel: Kernel,
    },
    /// The kernels are not compiled for the element type with heads of these sizes:
    /// [`Variant`](super::Variant) lists those that they are compiled for.
    Layout {
        /// Type of an element.
        dtype: Dtype,
        /// Elements of a head of keys.
        head_dim: usize,
        /// Elements of a head of values.
        value_dim: usize,
    },
    /// There are no kernels for this over latent vectors; nothing was queued.
    Latent {
        /// What was requested.
        what: &'static str,
        /// What to use instead.
        instead: &'static str,
    },
    /// A sequence has 2^31 tokens or more, whose positions the kernels cannot compare.
    Context {
        /// The sequence.
        sequence: usize,
        /// Its tokens.
        context: u32,
    },
    /// The batch was reserved for another scoring, which is recorded with its launches.
    OtherScoring,
    /// The batch was prepared for another layout than the storage has.
    OtherLayout,
    /// A batch is larger than the reserved room: reserve one with more room. The reserved batch has
    /// not changed.
    Capacity {
        /// What exceeds the room.
        what: &'static str,
        /// The number given.
        given: usize,
        /// The number that fits.
        room: usize,
    },
    /// The batch was prepared without room for others: reserve it.
    NotReserved,
    /// The batch was reserved for another softmax scale, which is recorded with its launches.
    OtherScale {
        /// The scale given.
        given: f32,
        /// The scale that it was reserved with.
        reserved: f32,
    },
    /// A tensor of an engine does not have the form that the operation needs.
    Tensor {
        /// The field that differs.
        field: TensorField,
        /// The value of the field.
        given: i64,
        /// The required value.
        needed: i64,
    },
    /// An address of an engine's memory, or a number of bytes, is not a multiple of 16.
    Unaligned {
        /// The address, or the bytes.
        address: u64,
    },
    /// The storage is an engine's memory ([`Kv::from_raw`](super::Kv::from_raw)): read and write it
    /// there.
    Borrowed,
    /// The softmax scale is not above zero, which the kernels need.
    Scale {
        /// The scale given.
        scale: f32,
    },
    /// The soft-cap is outside the range that the kernels compute, which is about 1.2e-38 to 1,024:
    /// use none for a larger one, which changes hardly any score.
    SoftCap {
        /// The soft-cap given.
        soft_cap: f32,
    },
    /// A kernel faulted, or the device was lost. The context is unusable and its memory gone: open
    /// the device again, in most cases after a restart of the process.
    Lost {
        /// The driver's reason.
        code: Code,
    },
    /// An operation within [`Device::capture`](super::Device::capture) cannot be captured, or a
    /// graph could not use its results later, or memory was dropped there; nothing was captured.
    /// Prepare, allocate, copy, wait and drop before or after the capture.
    NotCaptured {
        /// The driver's reason.
        code: Code,
    },
    /// A storage, a batch or a buffer belongs to another [`Device`](super::Device), whose stream
    /// orders its use: use it with that device.
    WrongDevice,
    /// The driver failed in another way; the code says how.
    Driver {
        /// The driver's reason.
        code: Code,
    },
}

impl Code {
    const OUT_OF_MEMORY: Self = Self(2);
    pub(super) const CAPTURE_UNSUPPORTED: Self = Self(900);
    pub(super) const CAPTURE_INVALIDATED: Self = Self(901);
    /// The driver is older than the requested function.
    pub(super) const NOT_SUPPORTED: Self = Self(801);

    pub(super) fn new(number: u32) -> Self {
        Self(number)
    }

    fn of(error: DriverError) -> Self {
        Self(error.0 as u32)
    }

    /// Its number in `cuda.h`.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Its name in `cuda.h` without `CUDA_ERROR_`, for the common ones.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }

    /// Whether the status means that something could not be captured into a graph.
    fn is_of_capture(self) -> bool {
        matches!(self.0, 900..=908)
    }

    /// Whether the context is unusable after this status.
    fn is_fatal(self) -> bool {
        matches!(self.0, 46 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719)
    }
}

/// Names of the common statuses.
const NAMES: [(u32, &str); 36] = [
    (1, "INVALID_VALUE"),
    (2, "OUT_OF_MEMORY"),
    (3, "NOT_INITIALIZED"),
    (4, "DEINITIALIZED"),
    (34, "STUB_LIBRARY"),
    (46, "DEVICE_UNAVAILABLE"),
    (100, "NO_DEVICE"),
    (101, "INVALID_DEVICE"),
    (200, "INVALID_IMAGE"),
    (201, "INVALID_CONTEXT"),
    (209, "NO_BINARY_FOR_GPU"),
    (214, "ECC_UNCORRECTABLE"),
    (218, "INVALID_PTX"),
    (220, "NVLINK_UNCORRECTABLE"),
    (221, "JIT_COMPILER_NOT_FOUND"),
    (222, "UNSUPPORTED_PTX_VERSION"),
    (400, "INVALID_HANDLE"),
    (401, "ILLEGAL_STATE"),
    (500, "NOT_FOUND"),
    (600, "NOT_READY"),
    (700, "ILLEGAL_ADDRESS"),
    (701, "LAUNCH_OUT_OF_RESOURCES"),
    (702, "LAUNCH_TIMEOUT"),
    (709, "CONTEXT_IS_DESTROYED"),
    (710, "ASSERT"),
    (714, "HARDWARE_STACK_ERROR"),
    (715, "ILLEGAL_INSTRUCTION"),
    (716, "MISALIGNED_ADDRESS"),
    (717, "INVALID_ADDRESS_SPACE"),
    (718, "INVALID_PC"),
    (719, "LAUNCH_FAILED"),
    (801, "NOT_SUPPORTED"),
    (803, "SYSTEM_DRIVER_MISMATCH"),
    (900, "STREAM_CAPTURE_UNSUPPORTED"),
    (901, "STREAM_CAPTURE_INVALIDATED"),
    (906, "STREAM_CAPTURE_IMPLICIT"),
];

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "status {}", self.0),
        }
    }
}

impl OpenError {
    /// The error of a call about which nothing more is known.
    pub(super) fn of(error: DriverError) -> Self {
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Self::OutOfMemory,
            _ => Self::Driver { code: Code::of(error) },
        }
    }

    /// The error of loading the image of `kernel`.
    pub(super) fn image(kernel: Kernel, error: DriverError) -> Self {
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Self::OutOfMemory,
            _ => Self::Image { kernel, code: Code::of(error) },
        }
    }
}

impl From<ShapeError> for GpuError {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

impl GpuError {
    /// The error of a call about which nothing more is known.
    pub(super) fn of(error: DriverError) -> Self {
        Self::of_code(Code::of(error))
    }

    /// The error for a status of the driver.
    pub(super) fn of_code(code: Code) -> Self {
        match code {
            _ if code.is_fatal() => Self::Lost { code },
            _ if code.is_of_capture() => Self::NotCaptured { code },
            _ => Self::Driver { code },
        }
    }

    /// The error of an allocation of `bytes`.
    pub(super) fn allocating(bytes: usize, error: DriverError) -> Self {
        if Code::of(error) == Code::OUT_OF_MEMORY { Self::OutOfMemory { bytes } } else { Self::of(error) }
    }

    /// The error of starting `kernel`.
    pub(super) fn launching(kernel: Kernel, error: DriverError) -> Self {
        let code = Code::of(error);
        if code.is_fatal() { Self::Lost { code } } else { Self::Launch { kernel, code } }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => f.write_str("no NVIDIA driver is installed (libcuda.so.1 was not found)"),
            Self::DriverIncomplete { function } => write!(f, "the NVIDIA driver lacks {function}; update it"),
            Self::DriverTooOld { version, needed } => {
                let dotted = |version: i32| (version / 1000, version % 1000 / 10);
                let ((major, minor), (least, after)) = (dotted(*version), dotted(*needed));
                write!(
                    f,
                    "the NVIDIA driver supports CUDA {major}.{minor}, the kernels need {least}.{after}; update it"
                )
            }
            Self::NoDevice { ordinal, devices } => {
                write!(f, "GPU {ordinal} was not found: the driver sees {devices} (CUDA_VISIBLE_DEVICES may hide some)")
            }
            Self::Unsupported { major, minor } => {
                write!(f, "the GPU has compute capability {major}.{minor}, the kernels need 8.0 or later")
            }
            Self::OutOfMemory => f.write_str("the GPU has no memory left for a context and the kernels; free some"),
            Self::Image { kernel, code } => write!(f, "the driver refused the image of {kernel}: {code}; update it"),
            Self::NoCompiler => f.write_str("the run-time compiler (NVRTC) was not found; check its path"),
            Self::CompilerIncomplete { function } => {
                write!(f, "the run-time compiler lacks {function}; use NVRTC 12 or later")
            }
            Self::Compile { source, status } => write!(
                f,
                "the run-time compiler refused {source}: status {status} of nvrtc.h; it may be older than the GPU"
            ),
            Self::Driver { code } => write!(f, "the driver failed to open the GPU: {code}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(shape) => shape.fmt(f),
            Self::OutOfMemory { bytes } => write!(f, "allocating {bytes} bytes failed; free some or request less"),
            Self::Launch { kernel, code } => write!(f, "{kernel} was not started: {code}"),
            Self::TooMuch { kernel } => write!(f, "the launch of {kernel} exceeds one grid; split the batch"),
            Self::Layout { dtype, head_dim, value_dim } => {
                write!(
                    f,
                    "no kernels for {dtype} with heads of {head_dim} elements of keys and {value_dim} of values; there are \
                     kernels for f16 and bf16 with 64, 96, 128, 192 and 256 of both, and with 192 and 128; for i8 and \
                     e4m3 with 64 and 128 of both; and for latent vectors of f16 and bf16 with 576 and 512"
                )
            }
            Self::Latent { what, instead } => write!(f, "no kernels for {what} over latent vectors; {instead}"),
            Self::Context { sequence, context } => {
                write!(f, "sequence {sequence} has {context} tokens, the kernels take {MOST_CONTEXT} at most")
            }
            Self::OtherScoring => f.write_str(
                "the batch was reserved for another window, soft-cap, sinks or slopes; reserve one with these",
            ),
            Self::Capacity { what, given, room } => {
                write!(f, "{given} {what} requested, the reserved batch has room for {room}; reserve a larger one")
            }
            Self::NotReserved => f.write_str("the batch was prepared without room for other batches; reserve it"),
            Self::OtherScale { given, reserved } => {
                write!(f, "the softmax scale is {given}, the batch was reserved for {reserved}")
            }
            Self::OtherLayout => f.write_str("the batch was prepared for another layout than the storage has"),
            Self::Tensor { field, given, needed } => {
                write!(f, "the tensor's {field} is {given}, but {needed} is needed")
            }
            Self::Unaligned { address } => {
                write!(f, "the address, stride or length {address:#x} is not a multiple of 16 bytes")
            }
            Self::Borrowed => f.write_str("the storage is the engine's memory; read and write it there"),
            Self::Scale { scale } => write!(f, "the softmax scale {scale} is not above zero"),
            Self::SoftCap { soft_cap } => {
                let (least, most) = (SOFT_CAPS.start(), SOFT_CAPS.end());
                write!(
                    f,
                    "the soft-cap {soft_cap} is not one from {least:e} to {most}, which the kernels compute; use none"
                )
            }
            Self::Lost { code } => write!(f, "the GPU context is lost ({code}); open the device again"),
            Self::NotCaptured { code } => {
                write!(f, "this cannot be captured into a graph ({code}); do it before or after")
            }
            Self::WrongDevice => {
                f.write_str("a storage, batch or buffer belongs to another device; use it with that device")
            }
            Self::Driver { code } => write!(f, "the driver failed: {code}"),
        }
    }
}

impl std::error::Error for GpuError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Shape(shape) => Some(shape),
            _ => None,
        }
    }
}
