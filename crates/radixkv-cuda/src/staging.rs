//! Page-locked memory through which plans and rows are copied to the device. A copy from it returns
//! immediately, and its chunks are reused, so that none is allocated while plans repeat.
#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DeviceRepr, sys};
use parking_lot::Mutex;

use super::driver::{is_done, retry_once, wait_for};
use super::error::GpuError;
use super::page_locked::PageLocked;

/// Bytes of the smallest chunk. Larger chunks are rounded up to a power of two.
const LEAST_BYTES: usize = 64 << 10;

/// Larger copies, in bytes, are not worth separate page-locked memory.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// The most chunks. With this many, and none that is free and large enough, the one that was used
/// first is used again, after waiting for its copy.
const MOST_CHUNKS: usize = 8;

/// The chunks of one stream, including those in use, in the order of their last uses.
#[derive(Debug, Default)]
pub(super) struct Staging {
    chunks: Mutex<Vec<Chunk>>,
}

/// Memory that a copy in flight may read until the event `read`.
#[derive(Debug)]
struct Chunk {
    memory: PageLocked,
    read: CudaEvent,
}

impl Staging {
    /// Queues a copy of `elements` to the device's address `to`. They are first copied to a chunk,
    /// so the caller may drop them immediately. The address stays allocated until the copy
    /// is done, because freeing it is queued on the same stream (G2).
    pub(super) fn send<T: DeviceRepr>(
        &self,
        stream: &Arc<CudaStream>,
        elements: &[T],
        to: u64,
    ) -> Result<(), GpuError> {
        let bytes = size_of_val(elements);
        let mut chunks = self.chunks.lock();
        let chunk = free_chunk(&mut chunks, stream.context(), bytes)?;
        stream.context().bind_to_thread().map_err(GpuError::of)?;
        let from = chunk.memory.as_ptr();
        // SAFETY: the chunk has so many bytes, and no copy reads it (G5); elements and chunk
        // are different memory.
        unsafe { from.copy_from_nonoverlapping(elements.as_ptr().cast(), bytes) };
        // SAFETY: the chunk stays until `read`, the target as said above.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast_const().cast(), bytes, stream.cu_stream()) };
        status.result().map_err(GpuError::of)?;
        // Without the event nothing says when the chunk is free, so this waits for the copy.
        chunk.read.record(stream).inspect_err(|_| retry_once(|| stream.synchronize())).map_err(GpuError::of)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Freeing page-locked memory while a copy reads it ends the context.
        self.chunks.get_mut().drain(..).for_each(|chunk| retry_once(|| wait_for(&chunk.read)));
    }
}

impl Chunk {
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, GpuError> {
        let memory = PageLocked::new(context, bytes.next_power_of_two().max(LEAST_BYTES))?;
        Ok(Self { memory, read: context.new_event(None).map_err(GpuError::of)? })
    }
}

/// The last of the chunks: one of at least `bytes` bytes that no copy reads.
fn free_chunk<'a>(
    chunks: &'a mut Vec<Chunk>,
    context: &Arc<CudaContext>,
    bytes: usize,
) -> Result<&'a mut Chunk, GpuError> {
    let is_free = |chunk: &Chunk| matches!(is_done(&chunk.read), Ok(true));
    let chunk = match chunks.iter().position(|chunk| chunk.memory.bytes() >= bytes && is_free(chunk)) {
        Some(at) => chunks.remove(at),
        None if chunks.len() < MOST_CHUNKS => Chunk::new(context, bytes)?,
        None => {
            let oldest = chunks.remove(0);
            retry_once(|| wait_for(&oldest.read));
            // Page-locked memory is slow to allocate, and to free it waits for the context. Chunks
            // only grow, so that this ends.
            if oldest.memory.bytes() >= bytes {
                oldest
            } else {
                drop(oldest);
                Chunk::new(context, bytes)?
            }
        }
    };
    chunks.push(chunk);
    Ok(chunks.last_mut().expect("pushed"))
}
