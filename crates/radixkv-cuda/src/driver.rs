//! Finding the driver before anything calls it: the binding panics if the library, or a function of it, is missing.
//!
//! # Invariants
//!
//! - **G1** No function of the driver is called before [`find`] has succeeded.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::CUevent;
use libloading::Library;

use super::error::{Code, GpuError, OpenError};
use std::sync::OnceLock;

/// CUDA 12.0, the oldest driver that runs kernels built by a 12.x compiler.
const OLDEST: i32 = 12_000;

/// Names of the driver's library, in the order in which they are tried.
const NAMES: [&str; 2] = if cfg!(windows) { ["nvcuda.dll", "nvcuda64.dll"] } else { ["libcuda.so.1", "libcuda.so"] };

/// The functions that every device needs; the binding loads each when it is first called.
const FUNCTIONS: [&str; 41] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuMemGetInfo_v2",
];

/// The driver, once found.
static DRIVER: OnceLock<Library> = OnceLock::new();

/// Whether the driver has these functions, which not every device needs.
pub(super) fn has_functions(functions: &[&'static str]) -> bool {
    let Some(driver) = DRIVER.get() else { return false };
    // SAFETY: symbols are looked up, not called.
    functions.iter().all(|function| unsafe { driver.get::<*const c_void>(*function) }.is_ok())
}

/// Milliseconds from one event to another, both done. Not through the binding, which calls the function by the name
/// that the newest driver it knows has.
pub(super) fn elapsed(start: CUevent, end: CUevent) -> Result<f32, GpuError> {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> u32;
    let missing = GpuError::Driver { code: Code::NOT_SUPPORTED };
    let driver = DRIVER.get().ok_or(missing)?;
    // SAFETY: the type is that of `cuEventElapsedTime` in cuda.h.
    let function = unsafe { driver.get::<Elapsed>("cuEventElapsedTime") }.map_err(|_| missing)?;
    let mut milliseconds = 0.0;
    // SAFETY: both events exist; it writes one float to the address given.
    match unsafe { function(&mut milliseconds, start, end) } {
        0 => Ok(milliseconds),
        code => Err(GpuError::of_code(Code::new(code))),
    }
}

/// Finds the driver, once, and checks that it has every function and is new enough.
pub(super) fn find() -> Result<(), OpenError> {
    if DRIVER.get().is_some() {
        return Ok(());
    }
    // SAFETY: its initialisers run in every CUDA program; the library stays loaded once it was found.
    let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok()).ok_or(OpenError::NoDriver)?;
    for function in FUNCTIONS {
        // SAFETY: the symbol is looked up, not called.
        if unsafe { library.get::<*const c_void>(function) }.is_err() {
            return Err(OpenError::DriverIncomplete { function });
        }
    }
    let version = version(&library)?;
    if version < OLDEST {
        return Err(OpenError::DriverTooOld { version, needed: OLDEST });
    }
    DRIVER.get_or_init(|| library);
    Ok(())
}

/// The CUDA version that the driver supports, as `1000 * major + 10 * minor`.
fn version(library: &Library) -> Result<i32, OpenError> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> u32;
    // SAFETY: the type is that of `cuDriverGetVersion` in cuda.h.
    let function = unsafe { library.get::<GetVersion>("cuDriverGetVersion") };
    let function = function.map_err(|_| OpenError::DriverIncomplete { function: "cuDriverGetVersion" })?;
    let mut version: c_int = 0;
    // SAFETY: it writes one int to the address given, and may be called before `cuInit`.
    match unsafe { function(&mut version) } {
        0 => Ok(version),
        code => Err(OpenError::Driver { code: Code::new(code) }),
    }
}
