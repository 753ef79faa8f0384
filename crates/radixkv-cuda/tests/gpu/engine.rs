//! An engine that has a context and a stream of its own.

use std::ffi::c_void;

use libloading::Library;
use radixkv_cuda::{Device, Images};

/// An engine's side of the driver: a context, a stream, memory.
pub struct Engine {
    library: Library,
    context: *mut c_void,
    stream: *mut c_void,
}

/// Of device memory.
pub type Address = u64;

impl Engine {
    pub fn new() -> Self {
        // SAFETY: the driver is loaded; this is another handle of it.
        let library = unsafe { Library::new("libcuda.so.1") }.expect("the driver");
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let engine = Self { library, context, stream };
        // SAFETY: types of cuda.h, here and below.
        engine.call(|init: unsafe extern "C" fn(u32) -> u32| unsafe { init(0) }, "cuInit");
        engine.call(
            // SAFETY: as above.
            |create: unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> u32| unsafe { create(&mut context, 0, 0) },
            "cuCtxCreate_v2",
        );
        engine.call(
            // SAFETY: as above.
            |create: unsafe extern "C" fn(*mut *mut c_void, u32) -> u32| unsafe { create(&mut stream, 1) },
            "cuStreamCreate",
        );
        Self { context, stream, ..engine }
    }

    pub fn call<F: Copy>(&self, call: impl FnOnce(F) -> u32, name: &str) {
        // SAFETY: each caller gives the type that cuda.h declares.
        let function = unsafe { self.library.get::<F>(name) }.expect("a function of the driver");
        assert_eq!(call(*function), 0, "{name}");
    }

    /// A device in its context and on its stream, which end after it: by [`leave`](Self::leave).
    pub fn device(&self) -> Device {
        // SAFETY: as said above.
        unsafe { Device::from_raw(0, self.context, self.stream, Images::Prebuilt) }.expect("a device")
    }

    /// A device on the context's default stream.
    pub fn device_on_default_stream(&self) -> Device {
        // SAFETY: as above.
        unsafe { Device::from_raw(0, self.context, std::ptr::null_mut(), Images::Prebuilt) }.expect("a device")
    }

    /// Begins to capture the stream, in the mode of one thread.
    pub fn begin_capture(&self) {
        self.begin_capture_as(1);
    }

    /// Begins to capture the stream: 0, other threads may end the capture as well; 1, only this
    /// one.
    pub fn begin_capture_as(&self, mode: i32) {
        type Begin = unsafe extern "C" fn(*mut c_void, i32) -> u32;
        // SAFETY: as above.
        self.call(|begin: Begin| unsafe { begin(self.stream, mode) }, "cuStreamBeginCapture_v2");
    }

    /// Which captures the driver keeps the calling thread from ending: 0, as in a new thread.
    pub fn capture_mode(&self) -> i32 {
        let mut mode = 0;
        // SAFETY: as above.
        let exchange = |exchange: unsafe extern "C" fn(*mut i32) -> u32| unsafe { exchange(&mut mode) };
        self.call(exchange, "cuThreadExchangeStreamCaptureMode");
        mode
    }

    /// Ends the capture, which has to have made a graph.
    pub fn end_capture(&self) {
        type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> u32;
        let mut graph = std::ptr::null_mut();
        // SAFETY: as above.
        self.call(|end: End| unsafe { end(self.stream, &mut graph) }, "cuStreamEndCapture");
        assert!(!graph.is_null(), "no graph");
        // SAFETY: as above.
        self.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(graph) }, "cuGraphDestroy");
    }

    /// The stream, as a `CUstream`.
    pub fn stream(&self) -> *mut c_void {
        self.stream
    }

    pub fn allocate(&self, bytes: usize) -> Address {
        let mut address = 0;
        self.call(
            // SAFETY: as above.
            |alloc: unsafe extern "C" fn(*mut Address, usize) -> u32| unsafe { alloc(&mut address, bytes) },
            "cuMemAlloc_v2",
        );
        address
    }

    pub fn write(&self, address: Address, elements: &[u16]) {
        type Copy = unsafe extern "C" fn(Address, *const c_void, usize, *mut c_void) -> u32;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: as above.
        let copy = |copy: Copy| unsafe { copy(address, elements.as_ptr().cast(), bytes, self.stream) };
        self.call(copy, "cuMemcpyHtoDAsync_v2");
    }

    pub fn read(&self, address: Address, elements: &mut [u16]) {
        type Copy = unsafe extern "C" fn(*mut c_void, Address, usize, *mut c_void) -> u32;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: as above.
        let copy = |copy: Copy| unsafe { copy(elements.as_mut_ptr().cast(), address, bytes, self.stream) };
        self.call(copy, "cuMemcpyDtoHAsync_v2");
        // SAFETY: as above.
        self.call(|wait: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { wait(self.stream) }, "cuStreamSynchronize");
    }

    pub fn leave(self, memory: &[Address]) {
        for address in memory {
            // SAFETY: as above.
            self.call(|free: unsafe extern "C" fn(Address) -> u32| unsafe { free(*address) }, "cuMemFree_v2");
        }
        // SAFETY: as above.
        self.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(self.stream) }, "cuStreamDestroy_v2");
        // SAFETY: as above. The context is still there: nothing else has destroyed it.
        self.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(self.context) }, "cuCtxDestroy_v2");
    }
}
