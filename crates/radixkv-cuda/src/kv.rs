//! The device's paged keys and values.
#![allow(unsafe_code)]

use std::fmt;

use super::abi::Pages;
use super::buffer::Buffer;
use super::device::Device;
use super::error::GpuError;
use super::kernel::Variant;
use super::upload::{Arrays, Span, Upload};
use super::uses::Uses;
use parking_lot::{Mutex, MutexGuard};
use radixkv_attention::{Layout, ShapeError};

/// Keys and values of all layers: in one allocation, laid out as the [`Layout`] says, or in an engine's own memory.
///
/// An allocation is freed when it is dropped, after all that is queued on the device's stream and every transfer of a
/// [`Swap`](super::Swap) that uses it.
pub struct Kv {
    layout: Layout,
    device: Device,
    /// Nothing where the memory is the engine's.
    elements: Option<Buffer<u16>>,
    /// Elements from a block to the next one in its plane.
    block_stride: usize,
    /// Addresses of block 0 of each plane: a layer's keys, its values, the next layer's keys...
    planes: Vec<u64>,
    planes_on_device: (Arrays, Span),
    /// Uses by other streams.
    uses: Mutex<Uses>,
}

/// Where an engine keeps keys and values.
///
/// A block is laid out as the [`Layout`] says: its tokens and heads follow each other without gaps.
#[derive(Debug, Clone, Copy)]
pub struct Planes<'a> {
    /// Device address of block 0's keys, in each layer.
    pub keys: &'a [u64],
    /// Device address of block 0's values, in each layer.
    pub values: &'a [u64],
    /// Elements from a block's keys to those of the next one, and so for values: [`Layout::block`] where blocks follow
    /// each other, twice that where the values of a block lie between.
    pub block_stride: usize,
}

/// What the kernels ask of a layout; the variant of the attention kernels for it.
pub(super) fn check(layout: &Layout) -> Result<Variant, GpuError> {
    layout.check()?;
    let Layout { dtype, head_dim, block_size, .. } = *layout;
    let refused = GpuError::Layout { dtype, head_dim, block_size };
    if !matches!(block_size, 16 | 32 | 64) {
        return Err(refused);
    }
    // Strides inside a block are `u32`, and so are the units of a copy.
    if u32::try_from(layout.block() * size_of::<u16>()).is_err() {
        return Err(ShapeError::TooLarge { blocks: layout.blocks }.into());
    }
    Variant::of(dtype, head_dim).ok_or(refused)
}

impl Kv {
    /// Memory for `layout`, zero at first.
    pub(super) fn new(device: &Device, layout: Layout) -> Result<Self, GpuError> {
        check(&layout)?;
        let elements = device.zeros::<u16>(layout.elements())?;
        let plane = (layout.half() * size_of::<u16>()) as u64;
        let planes = (0..2 * layout.layers as u64).map(|index| elements.address() + index * plane).collect();
        Self::of(device, layout, Some(elements), planes, layout.block())
    }

    /// Pages in memory that an engine owns. They are not freed from here.
    ///
    /// # Errors
    ///
    /// [`GpuError::Shape`] if there is not one address a layer, or blocks overlap; [`GpuError::Unaligned`] if an address
    /// or the stride is no multiple of 16 bytes; if the layout is not one that the kernels are compiled for, or the
    /// driver fails.
    ///
    /// # Safety
    ///
    /// Every block of `layout`, at these addresses, must lie in `device`'s context, ready in the order of the device's
    /// stream, and stay until all that is queued with it is done; nothing else writes it in between.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use radixkv_attention::{Dtype, Layout, Order};
    /// use radixkv_cuda::{Device, Kv, Planes};
    ///
    /// # let (layers, blocks, block_size, kv_heads, head_dim) = (1, 1024, 16, 8, 128);
    /// # let (context, stream, pool) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    /// // An engine's pool of one layer: [block][keys, values][token][head][element].
    /// let layout = Layout { layers, blocks, block_size, kv_heads, head_dim, dtype: Dtype::Bf16, order: Order::Nhd };
    /// let (keys, values) = ([pool], [pool + 2 * layout.block() as u64]);
    /// let planes = Planes { keys: &keys, values: &values, block_stride: 2 * layout.block() };
    /// // SAFETY: the engine's context, stream and pool outlive all that is done with them.
    /// let kv = unsafe {
    ///     let device = Device::within(0, context, stream, Default::default())?;
    ///     Kv::from_raw(&device, layout, planes)?
    /// };
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn from_raw(device: &Device, layout: Layout, planes: Planes<'_>) -> Result<Self, GpuError> {
        check(&layout)?;
        let Planes { keys, values, block_stride } = planes;
        check_len("addresses of keys", keys.len(), layout.layers)?;
        check_len("addresses of values", values.len(), layout.layers)?;
        if block_stride < layout.block() {
            let (what, given, needed) = ("elements from block to block", block_stride, layout.block());
            return Err(ShapeError::Length { what, given, needed }.into());
        }
        let planes: Vec<u64> = keys.iter().zip(values).flat_map(|(keys, values)| [*keys, *values]).collect();
        let bytes = block_stride.saturating_mul(size_of::<u16>()) as u64;
        if let Some(&address) = planes.iter().chain([&bytes]).find(|address| **address % 16 != 0) {
            return Err(GpuError::Unaligned { address });
        }
        Self::of(device, layout, None, planes, block_stride)
    }

    fn of(
        device: &Device,
        layout: Layout,
        elements: Option<Buffer<u16>>,
        planes: Vec<u64>,
        block_stride: usize,
    ) -> Result<Self, GpuError> {
        let mut upload = Upload::default();
        let span = upload.push(&planes);
        let planes_on_device = (upload.send(device)?, span);
        let (device, uses) = (device.clone(), Mutex::new(Uses::default()));
        Ok(Self { layout, device, elements, block_stride, planes, planes_on_device, uses })
    }

    /// How it is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Replaces all of it, or its beginning, in the order of the device's stream.
    ///
    /// # Errors
    ///
    /// If the driver fails, or the memory is an engine's.
    ///
    /// # Panics
    ///
    /// If there are more elements than the layout has.
    pub fn write(&mut self, elements: &[u16]) -> Result<(), GpuError> {
        self.elements.as_mut().ok_or(GpuError::Borrowed)?.write(elements)
    }

    /// A copy of all of it, after waiting for what is queued.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed, or the memory is an engine's.
    pub fn to_vec(&self) -> Result<Vec<u16>, GpuError> {
        self.elements.as_ref().ok_or(GpuError::Borrowed)?.to_vec()
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Addresses of block 0 in each plane, here and in an array on the device.
    pub(super) fn planes(&self) -> (&[u64], u64) {
        let (arrays, span) = &self.planes_on_device;
        (&self.planes, arrays.address(*span))
    }

    /// Bytes from a block to the next one in its plane.
    pub(super) fn block_stride_bytes(&self) -> u64 {
        (self.block_stride * size_of::<u16>()) as u64
    }

    /// Pages of one layer.
    pub(super) fn pages(&self, layer: usize) -> Result<Pages, GpuError> {
        let layers = self.layout.layers;
        if layer >= layers {
            return Err(ShapeError::Layer { layer, layers }.into());
        }
        let (keys, values) = (self.planes[2 * layer], self.planes[2 * layer + 1]);
        Ok(Pages { block_stride: self.block_stride as u64, ..pages(&self.layout, keys, values) })
    }

    /// Uses by other streams; held while one is queued and noted.
    pub(super) fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock()
    }
}

/// Pages of this layout whose keys and values begin at these addresses.
pub(super) fn pages(layout: &Layout, keys: u64, values: u64) -> Pages {
    Pages {
        keys,
        values,
        block_stride: layout.block() as u64,
        token_stride: layout.token_stride() as u32,
        head_stride: layout.head_stride() as u32,
        block_shift: layout.block_size.ilog2(),
        blocks: layout.blocks as u32,
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        // Freeing is queued behind this.
        self.uses.get_mut().end_before(&self.device);
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Elements that a view must have.
pub(super) fn check_len(what: &'static str, given: usize, needed: usize) -> Result<(), ShapeError> {
    if given == needed { Ok(()) } else { Err(ShapeError::Length { what, given, needed }) }
}
