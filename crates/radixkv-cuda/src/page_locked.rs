//! Page-locked host memory, for `staging` and `host`: copies to and from it run while the CPU
//! continues.
#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::driver::retry_once;
use super::error::GpuError;

/// Page-locked memory of a context, zeroed when allocated. Its owner must drop it only when no
/// transfer that uses it is in flight.
#[derive(Debug)]
pub(super) struct PageLocked {
    context: Arc<CudaContext>,
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs only to this value; those that share it touch it in turns (G5).
unsafe impl Send for PageLocked {}
// SAFETY: as above.
unsafe impl Sync for PageLocked {}

impl PageLocked {
    /// Allocates `bytes` bytes, at least one.
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, GpuError> {
        let bytes = bytes.max(1);
        context.bind_to_thread().map_err(GpuError::of)?;
        // Not write-combined: the CPU reads swapped-out blocks, to verify them or to write them to
        // a slower tier.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let allocating = |error: DriverError| GpuError::allocating(bytes, error);
        // SAFETY: the driver was found (G1) and the context is current.
        let memory = unsafe { result::malloc_host(bytes, flags) }.map_err(allocating)?.cast::<u8>();
        // SAFETY: the allocation is `bytes` long.
        unsafe { memory.write_bytes(0, bytes) };
        Ok(Self { context: Arc::clone(context), memory, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the first byte.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.memory
    }
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        retry_once(|| self.context.bind_to_thread());
        // SAFETY: allocated by `malloc_host`, freed once.
        let _ = unsafe { result::free_host(self.memory.cast()) };
    }
}
