//! Blocks between the device and page-locked memory, beside the work of the device's stream.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, DriverError};

use super::abi::{CopyArgs, CopyPair};
use super::attention::check_ids;
use super::device::Device;
use super::error::GpuError;
use super::host::HostPool;
use super::kv::Kv;
use super::upload::Upload;
use super::uses::insist;
use radixkv::BlockId;
use radixkv_attention::ShapeError;

/// From so many bytes of one block in one layer's keys on, the copy engine is faster than a kernel: a start of it costs
/// more.
const ENGINE_BYTES: usize = 28 << 10;

/// Blocks of threads of the kernel that copies: enough for the link, and few beside the work of the device.
const COPYING_BLOCKS: usize = 32;

/// Copies blocks on a stream of its own.
///
/// Small blocks are copied by a kernel, large ones by the copy engine; both leave the device's stream running.
/// Transfers of one `Swap` run in the order in which they were asked for.
///
/// # Examples
///
/// ```no_run
/// # use {radixkv_attention::*, radixkv_cuda::*};
/// # fn show(device: &Device, kv: &Kv) -> Result<(), GpuError> {
/// let host = HostPool::new(device, kv.layout(), 64)?;
/// let swap = Swap::new(device)?;
/// let out = swap.out(kv, &host, &[(7, 0), (9, 1)])?; // device blocks 7 and 9 to host blocks 0 and 1
/// // ... the device's stream runs on; when `out` is done, blocks 7 and 9 may be given back ...
/// out.wait()?;
/// let back = swap.back(kv, &host, &[(0, 12), (1, 13)])?; // host blocks 0 and 1 to device blocks 12 and 13
/// back.before(device)?; // what is queued from now on sees them
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Swap {
    device: Device,
    lane: Device,
}

/// A transfer on its way. Dropping it changes nothing: the copies go on, and both ends stay until they are done.
#[derive(Debug)]
#[must_use = "the blocks may be used again only once it is done"]
pub struct Transfer {
    done: Arc<CudaEvent>,
}

/// Which way blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Out,
    Back,
}

impl Swap {
    /// Swapping beside the work of `device`.
    ///
    /// # Errors
    ///
    /// If the driver gives no stream.
    pub fn new(device: &Device) -> Result<Self, GpuError> {
        Ok(Self { device: device.clone(), lane: device.beside()? })
    }

    /// Copies device blocks to host blocks, `(device, host)` each, once what the device's stream has queued so far is
    /// done.
    ///
    /// The device blocks must not be written before the transfer is done.
    ///
    /// # Errors
    ///
    /// If a block is beyond its pool, or a host block is written twice; nothing was queued then.
    pub fn out(&self, kv: &Kv, host: &HostPool, pairs: &[(BlockId, BlockId)]) -> Result<Transfer, GpuError> {
        self.copy(kv, host, pairs, Way::Out)
    }

    /// Copies host blocks to device blocks, `(host, device)` each, once what the device's stream has queued so far is
    /// done.
    ///
    /// The device blocks hold the copies when the transfer is done: see [`Transfer::before`].
    ///
    /// # Errors
    ///
    /// If a block is beyond its pool, or a device block is written twice; nothing was queued then.
    pub fn back(&self, kv: &Kv, host: &HostPool, pairs: &[(BlockId, BlockId)]) -> Result<Transfer, GpuError> {
        self.copy(kv, host, pairs, Way::Back)
    }

    fn copy(&self, kv: &Kv, host: &HostPool, pairs: &[(BlockId, BlockId)], way: Way) -> Result<Transfer, GpuError> {
        if self.device.identity() != kv.device().identity() || !host.is_of(&self.device) {
            return Err(GpuError::WrongDevice);
        }
        let layout = kv.layout();
        let chunk = layout.block() * layout.dtype.bytes();
        let (given, needed) = (host.block_bytes(), chunk * kv.planes().0.len());
        if given != needed {
            return Err(ShapeError::Length { what: "a host block", given, needed }.into());
        }
        let (from, to) = match way {
            Way::Out => (layout.blocks, host.blocks()),
            Way::Back => (host.blocks(), layout.blocks),
        };
        check_ids(pairs.iter().map(|(block, _)| *block), from)?;
        check_ids(pairs.iter().map(|(_, block)| *block), to)?;
        super::attention::check_written_once(pairs)?;

        self.lane.stream().join(self.device.stream())?;
        let done = Arc::new(self.lane.stream().context().new_event(None)?);
        // Both locked, always in this order, until the use is noted: another thread may queue on the same lane.
        let (mut host_uses, mut kv_uses) = (host.uses(), kv.uses());
        let queued = if chunk < ENGINE_BYTES {
            self.by_kernel(kv, host, pairs, chunk, way)
        } else {
            self.by_engine(kv, host, pairs, chunk, way)
        };
        // Part of it may be in flight even if it failed.
        self.end(&done)?;
        host_uses.note(&self.lane, &done);
        kv_uses.note(&self.lane, &done);
        queued.map(|()| Transfer { done })
    }

    /// Records `done` behind all that is queued. Where that fails, nothing is left in flight.
    fn end(&self, done: &CudaEvent) -> Result<(), DriverError> {
        let lane = self.lane.stream();
        done.record(lane).inspect_err(|_| insist(|| lane.synchronize()))
    }

    fn by_kernel(
        &self,
        kv: &Kv,
        host: &HostPool,
        pairs: &[(BlockId, BlockId)],
        chunk: usize,
        way: Way,
    ) -> Result<(), GpuError> {
        let units = (chunk / 16) as u32;
        let mapped = host.device_address()?;
        let (on_device, device_planes) = kv.planes();
        let planes = on_device.len();
        let host_planes: Vec<u64> = (0..planes as u64).map(|plane| mapped + plane * chunk as u64).collect();
        let copies: Vec<CopyPair> = pairs.iter().map(|&(from, to)| CopyPair { from, to, units }).collect();
        let mut upload = Upload::default();
        let (host_planes, copies) = (upload.push(&host_planes), upload.push(&copies));
        let arrays = upload.send(&self.lane)?;
        let device = (device_planes, kv.block_stride_bytes());
        let host = (arrays.address(host_planes), host.block_bytes() as u64);
        let ((from_planes, from_stride), (to_planes, to_stride)) = match way {
            Way::Out => (device, host),
            Way::Back => (host, device),
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
        self.lane.launch((), (blocks, 1), &arguments)
    }

    fn by_engine(
        &self,
        kv: &Kv,
        host: &HostPool,
        pairs: &[(BlockId, BlockId)],
        chunk: usize,
        way: Way,
    ) -> Result<(), GpuError> {
        for &(from, to) in pairs {
            let (block, host_block) = match way {
                Way::Out => (from, to),
                Way::Back => (to, from),
            };
            for (plane, address) in kv.planes().0.iter().enumerate() {
                let on_device = address + u64::from(block) * kv.block_stride_bytes();
                let offset = host_block as usize * host.block_bytes() + plane * chunk;
                match way {
                    Way::Out => host.copy_in(&self.lane, offset, on_device, chunk)?,
                    Way::Back => host.copy_out(&self.lane, offset, on_device, chunk)?,
                }
            }
        }
        Ok(())
    }
}

impl Transfer {
    /// Whether all copies are done.
    ///
    /// # Errors
    ///
    /// If one of them failed.
    pub fn is_done(&self) -> Result<bool, GpuError> {
        Ok(self.done.try_is_complete()?)
    }

    /// Waits until all copies are done.
    ///
    /// # Errors
    ///
    /// If one of them failed.
    pub fn wait(&self) -> Result<(), GpuError> {
        Ok(self.done.synchronize()?)
    }

    /// Makes what `device` queues from now on wait for the copies, without stopping the caller.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    pub fn before(&self, device: &Device) -> Result<(), GpuError> {
        Ok(device.stream().wait(&self.done)?)
    }
}
