//! Swaps blocks between the device and page-locked memory, in parallel with the work of the
//! device's stream.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, DriverError};

use super::abi::{CopyArgs, CopyPair};
use super::device::Device;
use super::driver::{self, retry_once};
use super::error::GpuError;
use super::host::{HostPool, Pieces};
use super::kv::{self, Kv};
use super::pairs::{check_ids, check_written_once};
use super::upload::Upload;
use radixkv::BlockId;
use radixkv_attention::ShapeError;

/// Bytes of one block in one plane from which on the copy engine is faster than a kernel, although
/// each of its copies costs more to start.
const ENGINE_BYTES: usize = 28 << 10;

/// Thread blocks of the kernel that copies: enough to fill the link, and few compared with the
/// other work of the device.
const COPYING_BLOCKS: usize = 32;

/// Copies blocks to and from host memory, on a separate stream.
///
/// A kernel copies small blocks, and the copy engine large ones, each by one call if its layers are
/// at even distances; the device's stream continues meanwhile. Transfers of one `Swap` run in the
/// order of the calls. Transfers of several run in any order, so wait for one before another uses
/// the same blocks.
///
/// # Examples
///
/// ```no_run
/// # use {radixkv_attention::*, radixkv_cuda::*};
/// # fn show(device: &Device, kv: &Kv) -> Result<(), GpuError> {
/// let host = HostPool::new(device, kv.layout(), 64)?;
/// let swap = Swap::new(device)?;
/// let out = swap.swap_out(kv, &host, &[(7, 0), (9, 1)])?; // device blocks 7 and 9 to host blocks 0 and 1
/// // ... the device's stream runs on ...
/// out.wait()?; // now the device blocks 7 and 9 may be written again
/// let back = swap.swap_in(kv, &host, &[(0, 12), (1, 13)])?; // host blocks 0 and 1 to device blocks 12 and 13
/// back.wait_on_device(device)?; // work queued from now on sees them
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Swap {
    device: Device,
    copy_stream: Device,
}

/// Copies in flight, from [`Swap::swap_out`] or [`Swap::swap_in`]. If this is dropped, the copies
/// continue, and the memory at both ends stays until they are done.
///
/// ```no_run
/// # use radixkv_cuda::*;
/// # fn show(swap: &Swap, kv: &Kv, host: &HostPool) -> Result<(), GpuError> {
/// let out: Transfer = swap.swap_out(kv, host, &[(7, 0)])?;
/// while !out.is_done()? {
///     std::thread::yield_now(); // or other work
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the blocks may be used again only after the transfer is done"]
pub struct Transfer {
    done: Arc<CudaEvent>,
}

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

impl Swap {
    /// Creates a swapper for storages of `device`, on a new stream.
    ///
    /// # Errors
    ///
    /// If the driver cannot make a stream.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device) -> Result<(), GpuError> {
    /// let swap = Swap::new(device)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(device: &Device) -> Result<Self, GpuError> {
        Ok(Self { device: device.clone(), copy_stream: device.with_new_stream()? })
    }

    /// Copies device blocks to host blocks, each as `(device, host)`, after all work queued so far
    /// on the device's stream.
    ///
    /// The device blocks must not be written before the transfer is done.
    ///
    /// # Errors
    ///
    /// If a block is beyond its pool, or a host block is written twice: nothing is queued then.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(swap: &Swap, kv: &Kv, host: &HostPool) -> Result<(), GpuError> {
    /// swap.swap_out(kv, host, &[(7, 0)])?.wait()?; // device block 7 to host block 0
    /// # Ok(())
    /// # }
    /// ```
    pub fn swap_out(&self, kv: &Kv, host: &HostPool, pairs: &[(BlockId, BlockId)]) -> Result<Transfer, GpuError> {
        self.copy(kv, host, pairs, Direction::Out)
    }

    /// Copies host blocks to device blocks, each as `(host, device)`, after all work queued so far
    /// on the device's stream.
    ///
    /// The device blocks hold the copies when the transfer is done: see
    /// [`Transfer::wait_on_device`].
    ///
    /// # Errors
    ///
    /// If a block is beyond its pool, or a device block is written twice: nothing is queued then.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device, swap: &Swap, kv: &Kv, host: &HostPool) -> Result<(), GpuError> {
    /// swap.swap_in(kv, host, &[(0, 12)])?.wait_on_device(device)?; // host block 0 to device block 12
    /// # Ok(())
    /// # }
    /// ```
    pub fn swap_in(&self, kv: &Kv, host: &HostPool, pairs: &[(BlockId, BlockId)]) -> Result<Transfer, GpuError> {
        self.copy(kv, host, pairs, Direction::In)
    }

    fn copy(
        &self,
        kv: &Kv,
        host: &HostPool,
        pairs: &[(BlockId, BlockId)],
        direction: Direction,
    ) -> Result<Transfer, GpuError> {
        if self.device.identity() != kv.device().identity() || !host.is_of(&self.device) {
            return Err(GpuError::WrongDevice);
        }
        let layout = kv.layout();
        let piece_bytes = kv::block_bytes(layout);
        let (given, needed) = (host.block_bytes(), piece_bytes * kv.planes().0.len());
        if given != needed {
            return Err(ShapeError::Length { what: "a host block", given, needed }.into());
        }
        let (from, to) = match direction {
            Direction::Out => (layout.blocks, host.blocks()),
            Direction::In => (host.blocks(), layout.blocks),
        };
        check_ids(pairs.iter().map(|(block, _)| *block), from)?;
        check_written_once(pairs, to)?;
        self.device.refuse_capture()?;

        self.copy_stream.stream().join(self.device.stream()).map_err(GpuError::of)?;
        let done = Arc::new(self.copy_stream.stream().context().new_event(None).map_err(GpuError::of)?);
        // Both are locked, always in this order, until the use is noted, since another thread may
        // queue on the same stream.
        let (mut host_uses, mut kv_uses) = (host.uses(), kv.uses());
        let queued = if piece_bytes < ENGINE_BYTES {
            self.by_kernel(kv, host, pairs, piece_bytes, direction)
        } else {
            self.by_engine(kv, host, pairs, piece_bytes, direction)
        };
        // Some of the copies may be in flight, even if queueing failed.
        self.end(&done).map_err(GpuError::of)?;
        host_uses.note(&self.copy_stream, &done);
        kv_uses.note(&self.copy_stream, &done);
        queued.map(|()| Transfer { done })
    }

    /// Records `done` after all queued work. If that fails, waits until nothing is in flight.
    fn end(&self, done: &CudaEvent) -> Result<(), DriverError> {
        let copy_stream = self.copy_stream.stream();
        done.record(copy_stream).inspect_err(|_| retry_once(|| copy_stream.synchronize()))
    }

    fn by_kernel(
        &self,
        kv: &Kv,
        host: &HostPool,
        pairs: &[(BlockId, BlockId)],
        piece_bytes: usize,
        direction: Direction,
    ) -> Result<(), GpuError> {
        let units = (piece_bytes / 16) as u32;
        let mapped = host.device_address()?;
        let (on_device, device_planes) = kv.planes();
        let planes = on_device.len();
        let host_planes: Vec<u64> = (0..planes as u64).map(|plane| mapped + plane * piece_bytes as u64).collect();
        let copies: Vec<CopyPair> = pairs.iter().map(|&(from, to)| CopyPair { from, to, units }).collect();
        let mut upload = Upload::default();
        let (host_planes, copies) = (upload.push(&host_planes), upload.push(&copies));
        let arrays = upload.send(&self.copy_stream)?;
        let device = (device_planes, kv.block_stride_bytes());
        let host = (arrays.address(host_planes), host.block_bytes() as u64);
        let ((from_planes, from_stride), (to_planes, to_stride)) = match direction {
            Direction::Out => (device, host),
            Direction::In => (host, device),
        };
        let arguments = CopyArgs {
            from_planes,
            to_planes,
            from_stride,
            to_stride,
            pairs: arrays.address(copies),
            pairs_len: copies.len as u32,
            planes: planes as u32,
            rows: 1,
            row_units: units,
        };
        let blocks = if pairs.is_empty() { 0 } else { COPYING_BLOCKS };
        self.copy_stream.launch((), (blocks, 1), &arguments)
    }

    fn by_engine(
        &self,
        kv: &Kv,
        host: &HostPool,
        pairs: &[(BlockId, BlockId)],
        piece_bytes: usize,
        direction: Direction,
    ) -> Result<(), GpuError> {
        for &(from, to) in pairs {
            let (block, host_block) = match direction {
                Direction::Out => (from, to),
                Direction::In => (to, from),
            };
            for run in kv.runs() {
                let pieces = Pieces {
                    address: kv.planes().0[run.first] + u64::from(block) * kv.block_stride_bytes(),
                    device_pitch: run.pitch,
                    offset: host_block as usize * host.block_bytes() + run.first * piece_bytes,
                    host_pitch: run.step * piece_bytes,
                    bytes: piece_bytes,
                    rows: run.count,
                };
                match direction {
                    Direction::Out => host.copy_in(&self.copy_stream, &pieces)?,
                    Direction::In => host.copy_out(&self.copy_stream, &pieces)?,
                }
            }
        }
        Ok(())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // The stream's own memory is freed with it.
        self.device.drop_after_capture(self.copy_stream.clone());
    }
}

impl Transfer {
    /// Whether all copies are done.
    ///
    /// # Errors
    ///
    /// If one of them failed.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(transfer: &Transfer) -> Result<(), GpuError> {
    /// if transfer.is_done()? {
    ///     // the blocks that were swapped out may be written again
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_done(&self) -> Result<bool, GpuError> {
        driver::is_done(&self.done).map_err(GpuError::of)
    }

    /// Blocks the calling thread until all copies are done.
    ///
    /// # Errors
    ///
    /// If one of them failed.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(swap: &Swap, kv: &Kv, host: &HostPool) -> Result<(), GpuError> {
    /// swap.swap_out(kv, host, &[(7, 0)])?.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(&self) -> Result<(), GpuError> {
        driver::wait_for(&self.done).map_err(GpuError::of)
    }

    /// Makes the stream of `device` wait for the copies before all work that is queued later. The
    /// calling thread does not wait.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(device: &Device, transfer: &Transfer) -> Result<(), GpuError> {
    /// transfer.wait_on_device(device)?; // a decode step that is queued next sees the blocks
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_on_device(&self, device: &Device) -> Result<(), GpuError> {
        device.refuse_capture()?;
        device.stream().wait(&self.done).map_err(GpuError::of)
    }
}
