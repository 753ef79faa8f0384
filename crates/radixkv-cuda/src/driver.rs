//! Finds the driver before anything calls it, because the binding panics if the library or one of
//! its functions is missing.
//!
//! # Invariants
//!
//! - **G1** No function of the driver is called before [`find`] has succeeded.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::path::Path;

use cudarc::driver::sys::{self, CUdevice, CUevent, CUmemPool_attribute, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaEvent, CudaStream, DriverError, result};
use libloading::Library;

use super::error::{Code, GpuError, OpenError};
use std::sync::OnceLock;

/// CUDA 12.0, the oldest driver that runs kernels built by a 12.x compiler.
const OLDEST: i32 = 12_000;

/// Names of the driver's library, in the order in which the binding tries them: it takes the first
/// that loads.
const NAMES: [&str; 2] = if cfg!(windows) { ["nvcuda.dll", "nvcuda64.dll"] } else { ["libcuda.so", "libcuda.so.1"] };

/// Folders that may have the driver although the system's loader does not search them: containers
/// and some distributions mount it there.
const FOLDERS: &[&str] = if cfg!(target_os = "linux") {
    &[
        "/usr/local/nvidia/lib64",
        "/usr/local/nvidia/lib",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
        "/usr/lib64/nvidia",
        "/usr/lib/nvidia",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ]
} else {
    &[]
};

/// The functions that every device needs; the binding loads each when it is first called.
const FUNCTIONS: [&str; 46] = [
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
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
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
    "cuMemcpy2DAsync_v2",
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolSetAttribute",
];

/// The driver, once found.
static DRIVER: OnceLock<Library> = OnceLock::new();

/// Whether the driver has these functions, which not every device needs.
pub(super) fn has_functions(functions: &[&'static str]) -> bool {
    let Some(driver) = DRIVER.get() else { return false };
    // SAFETY: symbols are looked up, not called.
    functions.iter().all(|function| unsafe { driver.get::<*const c_void>(*function) }.is_ok())
}

/// Milliseconds from one event to another, both of them done. Leaves captures in progress whole. The
/// function is not called through the binding, which uses its name in the newest driver that the
/// binding knows.
pub(super) fn elapsed(start: &CudaEvent, end: &CudaEvent) -> Result<f32, GpuError> {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> u32;
    let missing = GpuError::Driver { code: Code::NOT_SUPPORTED };
    let driver = DRIVER.get().ok_or(missing)?;
    // SAFETY: the type matches `cuEventElapsedTime` in cuda.h.
    let function = unsafe { driver.get::<Elapsed>("cuEventElapsedTime") }.map_err(|_| missing)?;
    beside_captures(start, |start| {
        let mut milliseconds = 0.0;
        // SAFETY: both events exist; it writes one float to the address given.
        match unsafe { function(&mut milliseconds, start.cu_event(), end.cu_event()) } {
            0 => Ok(milliseconds),
            code => Err(GpuError::of_code(Code::new(code))),
        }
    })
}

/// Whether the work before `event` is done. Leaves captures in progress whole.
pub(super) fn is_done(event: &CudaEvent) -> Result<bool, DriverError> {
    beside_captures(event, CudaEvent::try_is_complete)
}

/// Blocks the calling thread until the work before `event` is done. Leaves captures in progress
/// whole.
pub(super) fn wait_for(event: &CudaEvent) -> Result<(), DriverError> {
    beside_captures(event, CudaEvent::synchronize)
}

/// Makes a call about an event that nothing captures. Without this, the driver refuses the call and
/// ends the captures of the calling thread, and those of other threads whose mode is global.
fn beside_captures<T>(event: &CudaEvent, call: impl FnOnce(&CudaEvent) -> T) -> T {
    // A thread that has made no call yet has no context, and drivers may refuse to exchange its mode.
    // Without a context the call fails, which says so.
    // SAFETY: the context exists as long as the event.
    let _ = unsafe { result::ctx::set_current(event.context().cu_ctx()) };
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: it exchanges the mode of this thread for the one at the address given.
    let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result();
    let answer = call(event);
    if exchanged.is_ok() {
        // SAFETY: as above; it gives back the mode that the thread had.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result();
    }
    answer
}

/// Whether `stream` is being captured. Not asked through the binding, which makes no call after a
/// failed drop, but returns the drop's error: that error is left to the next call.
pub(super) fn is_captured(stream: &CudaStream) -> Result<bool, DriverError> {
    // The handle of a default stream means that of the current context.
    // SAFETY: the context exists as long as the stream.
    unsafe { result::ctx::set_current(stream.context().cu_ctx()) }?;
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: it writes one status to the address given.
    unsafe { sys::cuStreamIsCapturing(stream.cu_stream(), &mut status) }.result()?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Calls `wait`, and once more if it fails: after a failed drop, the binding's next call returns
/// that error, once, and is not made. If the second call fails as well, the context and its work
/// have ended.
pub(super) fn retry_once(wait: impl Fn() -> Result<(), DriverError>) {
    let _ = wait().or_else(|_| wait());
}

/// Makes the memory pool of a device keep freed memory. By default the pool gives all of it back
/// whenever a thread waits for a stream, and the next allocations are as slow as in a new process.
pub(super) fn keep_pooled(device: CUdevice) -> Result<(), DriverError> {
    let (mut pool, mut bytes) = (std::ptr::null_mut(), u64::MAX);
    // SAFETY: it writes one handle to the address given.
    unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, device) }.result()?;
    let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute's value is a `u64`, which is read immediately.
    unsafe { sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut bytes).cast()) }.result()
}

/// Loads the library that the binding will use. While a library from one of the folders is loaded,
/// the binding finds it under the library's own name.
fn load(folders: &[&str]) -> Option<Library> {
    // SAFETY: its initialisers run in every CUDA program; the library stays loaded once it was
    // found.
    let named = |name: &str| unsafe { Library::new(name) }.ok();
    if let Some(library) = NAMES.iter().copied().find_map(named) {
        return Some(library);
    }
    folders.iter().find_map(|folder| {
        // SAFETY: as above.
        let library = unsafe { Library::new(Path::new(folder).join(NAMES[1])) }.ok()?;
        NAMES.iter().copied().any(|name| named(name).is_some()).then_some(library)
    })
}

/// Finds the driver, once, and checks that it has every function and is new enough.
pub(super) fn find() -> Result<(), OpenError> {
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let library = load(FOLDERS).ok_or(OpenError::NoDriver)?;
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
    // SAFETY: the type matches `cuDriverGetVersion` in cuda.h.
    let function = unsafe { library.get::<GetVersion>("cuDriverGetVersion") };
    let function = function.map_err(|_| OpenError::DriverIncomplete { function: "cuDriverGetVersion" })?;
    let mut version: c_int = 0;
    // SAFETY: it writes one int to the address given, and may be called before `cuInit`.
    match unsafe { function(&mut version) } {
        0 => Ok(version),
        code => Err(OpenError::Driver { code: Code::new(code) }),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_driver_in_a_folder_is_found_under_the_name_that_the_binding_uses() {
        if NAMES.iter().any(|name| load_library(Path::new(name)).is_some()) {
            return eprintln!("skipped: a driver is on the loader's path");
        }
        let folder = std::env::temp_dir().join(format!("radixkv-driver-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (text, library) = (folder.join("driver.c"), folder.join("libcuda.so.1"));
        std::fs::write(&text, "int cuInit() { return 7; }").expect("a source");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let build = |name: &str| {
            let options = ["-shared", "-fPIC", name, "-o"];
            Command::new(&compiler).args(options).args([&library, &text]).status().is_ok()
        };
        let folders = ["/nowhere", folder.to_str().expect("UTF-8")];
        if !build("-Wl,-soname,another.so.1") {
            return eprintln!("skipped: no C compiler for a driver");
        }
        assert!(load(&folders).is_none(), "the binding would not find it");
        assert!(build("-Wl,-soname,libcuda.so.1"));
        assert!(load(&folders[..1]).is_none());
        let found = load(&folders).expect("the driver of the folder");
        let by_name = load_library(Path::new("libcuda.so.1")).expect("the same by its name");
        let address = |library: &Library| {
            // SAFETY: the symbol is looked up, not called.
            *unsafe { library.get::<*const c_void>("cuInit") }.expect("a function")
        };
        assert_eq!(address(&found), address(&by_name));
        let _ = std::fs::remove_dir_all(&folder);
    }

    fn load_library(path: &Path) -> Option<Library> {
        // SAFETY: the libraries of these tests have no initialisers.
        unsafe { Library::new(path) }.ok()
    }
}
