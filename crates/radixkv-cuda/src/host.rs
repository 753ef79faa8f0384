//! Page-locked host memory for blocks that are swapped out.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemorytype};

use super::device::Device;
use super::error::GpuError;
use super::kv;
use super::page_locked::PageLocked;
use super::uses::Uses;
use parking_lot::{Mutex, MutexGuard};
use radixkv::BlockId;
use radixkv_attention::Layout;

/// Blocks in page-locked host memory. A block is contiguous over all layers: the keys of a layer,
/// its values, the keys of the next layer, and so on.
///
/// Copies to and from it run while the CPU continues. The caller, not the pool, knows which of its
/// blocks are free.
///
/// # Examples
///
/// ```no_run
/// # use radixkv_cuda::{Device, GpuError, HostPool, Kv};
/// # fn show(device: &Device, kv: &Kv) -> Result<(), GpuError> {
/// let host = HostPool::new(device, kv.layout(), 64)?;
/// let mut bytes = vec![0; host.block_bytes()];
/// host.read(5, &mut bytes)?; // for a slower tier, after a `Swap::swap_out` to block 5
/// host.write(6, &bytes)?; // from there, before a `Swap::swap_in` of block 6
/// # Ok(())
/// # }
/// ```
pub struct HostPool {
    device: Device,
    memory: Arc<PageLocked>,
    blocks: usize,
    block_bytes: usize,
    /// Transfers that may still use the memory. The CPU touches it under this lock, after waiting
    /// for them (G5).
    uses: Mutex<Uses>,
}

impl HostPool {
    /// Allocates zeroed page-locked memory for `blocks` blocks of this layout. Locking the pages of
    /// one GiB takes about 0.3 s.
    ///
    /// # Errors
    ///
    /// [`GpuError::Shape`] if a size of the layout is zero or too large; [`GpuError::OutOfMemory`]
    /// if there is too little memory, or the system cannot lock more pages.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device, kv: &Kv) -> Result<(), GpuError> {
    /// let host = HostPool::new(device, kv.layout(), 1024)?;
    /// println!("{} MB", (host.blocks() * host.block_bytes()) >> 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(device: &Device, layout: &Layout, blocks: usize) -> Result<Self, GpuError> {
        layout.check()?;
        let block_bytes = layout.halves().len() * layout.layers * kv::block_bytes(layout);
        let bytes = blocks.checked_mul(block_bytes).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(GpuError::OutOfMemory { bytes: usize::MAX })?;
        device.refuse_capture()?;
        let memory = Arc::new(PageLocked::new(device.stream().context(), bytes)?);
        Ok(Self { device: device.clone(), memory, blocks, block_bytes, uses: Mutex::new(Uses::default()) })
    }

    /// Number of blocks.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(host: &HostPool) {
    /// let mut free: Vec<u32> = (0..host.blocks() as u32).collect(); // kept by the engine
    /// # }
    /// ```
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes of one block, over all layers.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Copies a block to `bytes`, after waiting for the transfers in flight.
    ///
    /// # Errors
    ///
    /// If a transfer failed.
    ///
    /// # Panics
    ///
    /// If there is no such block, or `bytes` is not as long as a block.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(host: &HostPool) -> Result<(), GpuError> {
    /// let mut bytes = vec![0; host.block_bytes()];
    /// host.read(5, &mut bytes)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, block: BlockId, bytes: &mut [u8]) -> Result<(), GpuError> {
        let first = self.check(block, bytes.len());
        let uses = self.uses.lock();
        uses.wait().map_err(GpuError::of)?;
        // SAFETY: `check` found the block inside; no transfer is in flight and none begins under
        // the lock (G5).
        unsafe { first.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Replaces a block by `bytes`, after waiting for the transfers in flight: to fill it from a
    /// slower tier.
    ///
    /// # Errors
    ///
    /// If a transfer failed.
    ///
    /// # Panics
    ///
    /// If there is no such block, or `bytes` is not as long as a block.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(host: &HostPool, bytes: &[u8]) -> Result<(), GpuError> {
    /// host.write(5, bytes)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&self, block: BlockId, bytes: &[u8]) -> Result<(), GpuError> {
        let first = self.check(block, bytes.len());
        let uses = self.uses.lock();
        uses.wait().map_err(GpuError::of)?;
        // SAFETY: as in `read`.
        unsafe { first.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn check(&self, block: BlockId, len: usize) -> *mut u8 {
        assert!((block as usize) < self.blocks, "block {block} of {}", self.blocks);
        assert_eq!(len, self.block_bytes, "bytes of a block");
        self.memory.as_ptr().wrapping_add(block as usize * self.block_bytes)
    }

    /// Whether transfers of `device` may use the pool: page-locked memory belongs to a context, not
    /// to a stream.
    pub(super) fn is_of(&self, device: &Device) -> bool {
        self.device.stream().context() == device.stream().context()
    }

    /// The address of the first byte, for kernels of the context.
    pub(super) fn device_address(&self) -> Result<u64, GpuError> {
        let mut address = 0;
        let memory = self.memory.as_ptr().cast();
        // SAFETY: the memory was allocated for mapping, in this context.
        let status = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, memory, 0) };
        status.result().map_err(GpuError::of)?;
        Ok(address)
    }

    /// Transfers that may still use the memory; locked while a transfer is queued and noted.
    pub(super) fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock()
    }

    /// Queues a copy of pieces from the device.
    pub(super) fn copy_in(&self, stream: &Device, pieces: &Pieces) -> Result<(), GpuError> {
        let (from, to) = (Side::device(pieces), self.side(pieces));
        pieces.copy(stream, from, to)
    }

    /// Queues a copy of pieces to the device.
    pub(super) fn copy_out(&self, stream: &Device, pieces: &Pieces) -> Result<(), GpuError> {
        let (from, to) = (self.side(pieces), Side::device(pieces));
        pieces.copy(stream, from, to)
    }

    fn side(&self, pieces: &Pieces) -> Side {
        let &Pieces { offset, host_pitch, bytes, rows, .. } = pieces;
        debug_assert!(offset + (rows - 1) * host_pitch + bytes <= self.blocks * self.block_bytes);
        let kind = CUmemorytype::CU_MEMORYTYPE_HOST;
        Side { kind, host: self.memory.as_ptr().wrapping_add(offset).cast(), device: 0, pitch: host_pitch }
    }
}

/// `rows` pieces of a block, with a pitch on the device and one in the pool. The pitches are at
/// least as large as a piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pieces {
    /// Address of the first piece on the device.
    pub(super) address: u64,
    pub(super) device_pitch: usize,
    /// Bytes before the first piece in the pool.
    pub(super) offset: usize,
    pub(super) host_pitch: usize,
    /// Bytes of a piece.
    pub(super) bytes: usize,
    pub(super) rows: usize,
}

/// One end of a copy.
#[derive(Clone, Copy)]
struct Side {
    kind: CUmemorytype,
    host: *mut c_void,
    device: u64,
    pitch: usize,
}

impl Side {
    fn device(pieces: &Pieces) -> Self {
        let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        Self { kind, host: std::ptr::null_mut(), device: pieces.address, pitch: pieces.device_pitch }
    }
}

impl Pieces {
    fn copy(&self, stream: &Device, from: Side, to: Side) -> Result<(), GpuError> {
        let null = std::ptr::null_mut();
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from.kind,
            srcHost: from.host.cast_const(),
            srcDevice: from.device,
            srcArray: null,
            srcPitch: from.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to.kind,
            dstHost: to.host,
            dstDevice: to.device,
            dstArray: null,
            dstPitch: to.pitch,
            WidthInBytes: self.bytes,
            Height: self.rows,
        };
        stream.stream().context().bind_to_thread().map_err(GpuError::of)?;
        // SAFETY: both ends are in allocations that stay until the event that is noted as their use
        // (G2, G5).
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.stream().cu_stream()) }.result().map_err(GpuError::of)
    }
}

impl Drop for HostPool {
    fn drop(&mut self) {
        let (uses, memory) = (self.uses.get_mut().take(), Arc::clone(&self.memory));
        self.device.drop_after_capture(LateMemory { uses, _memory: memory });
    }
}

/// The memory of a pool, freed after its uses: freeing it while a copy uses it ends the context.
struct LateMemory {
    uses: Uses,
    _memory: Arc<PageLocked>,
}

impl Drop for LateMemory {
    fn drop(&mut self) {
        self.uses.end();
    }
}

impl fmt::Debug for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, block_bytes, .. } = self;
        f.debug_struct("HostPool").field("blocks", blocks).field("block_bytes", block_bytes).finish_non_exhaustive()
    }
}
