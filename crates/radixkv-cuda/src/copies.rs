//! Copies of blocks within a storage.

use super::abi::{CopyArgs, CopyPair};
use super::attention::Attention;
use super::device::Device;
use super::error::GpuError;
use super::kv::{self, Kv};
use super::pairs::check_copies;
use super::upload::{ArraySpan, Arrays, Upload};
use radixkv::BlockId;
use radixkv_attention::Layout;

/// A checked list of block copies on the device, which can be launched as often as needed. From
/// [`Attention::prepare_copies`].
///
/// ```no_run
/// # use radixkv_cuda::*;
/// # fn show(attention: &Attention, kv: &Kv) -> Result<(), GpuError> {
/// let copies: BlockCopies = attention.prepare_copies(kv.layout(), &[(7, 8), (7, 9)])?;
/// attention.launch_copies(kv, &copies)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BlockCopies {
    device: Device,
    layout: Layout,
    arrays: Arrays,
    pairs: ArraySpan,
    units: usize,
}

impl Attention {
    /// Checks copies of blocks, each as `(from, to)`, and copies their list to the device.
    /// [`copy_blocks`](radixkv_attention::Backend::copy_blocks) does the same, and launches them
    /// once.
    ///
    /// # Errors
    ///
    /// If a block is beyond the layout, written twice, or written and read; or if the driver fails.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(attention: &Attention, kv: &Kv) -> Result<(), GpuError> {
    /// let copies = attention.prepare_copies(kv.layout(), &[(7, 8)])?; // block 7 to block 8
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare_copies(&self, layout: &Layout, pairs: &[(BlockId, BlockId)]) -> Result<BlockCopies, GpuError> {
        kv::check(layout)?;
        check_copies(pairs, layout.blocks)?;
        let units = kv::block_bytes(layout) / 16;
        let pairs: Vec<CopyPair> = pairs.iter().map(|&(from, to)| CopyPair { from, to, units: units as u32 }).collect();
        let mut upload = Upload::default();
        let span = upload.push(&pairs);
        let arrays = upload.send(self.device())?;
        Ok(BlockCopies { device: self.device().clone(), layout: *layout, arrays, pairs: span, units })
    }

    /// Queues the copies; can be captured into a graph.
    ///
    /// # Errors
    ///
    /// [`GpuError::WrongDevice`] or [`GpuError::OtherLayout`] if the copies were prepared for
    /// another device or layout than the storage has; or if the kernel does not start.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(attention: &Attention, kv: &Kv, copies: &BlockCopies) -> Result<(), GpuError> {
    /// attention.launch_copies(kv, copies)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch_copies(&self, kv: &Kv, copies: &BlockCopies) -> Result<(), GpuError> {
        let of_one = [kv.device(), &copies.device].iter().all(|device| device.identity() == self.device().identity());
        if !of_one {
            return Err(GpuError::WrongDevice);
        }
        if copies.layout != *kv.layout() {
            return Err(GpuError::OtherLayout);
        }
        let (planes, on_device) = kv.planes();
        let stride = kv.block_stride_bytes();
        let arguments = CopyArgs {
            from_planes: on_device,
            to_planes: on_device,
            from_stride: stride,
            to_stride: stride,
            pairs: copies.arrays.address(copies.pairs),
            pairs_len: copies.pairs.len as u32,
            planes: planes.len() as u32,
            rows: 1,
            row_units: copies.units as u32,
        };
        let pieces = copies.units.div_ceil(2048) * copies.pairs.len * planes.len();
        self.device().launch((), (pieces.min(65_536), 1), &arguments)
    }
}
