//! The device's paged keys and values.

use std::fmt;

use cudarc::driver::CudaEvent;

use super::abi::Pages;
use super::buffer::{Buffer, ViewMut};
use super::device::Device;
use super::error::GpuError;
use super::kernel::Variant;
use super::upload::{Arrays, Span, Upload};
use crate::attention::{Layout, ShapeError};
use crate::sync::Mutex;

/// Keys and values of all layers in one allocation, laid out as the [`Layout`] says.
///
/// Freed when dropped, after all that is queued on the device's stream and every transfer of a [`Swap`](super::Swap)
/// that uses it.
pub struct Kv {
    layout: Layout,
    device: Device,
    elements: Buffer<u16>,
    /// Addresses of block 0 of each plane: a layer's keys, its values, the next layer's keys...
    planes: Vec<u64>,
    planes_on_device: (Arrays, Span),
    /// The last use by each other stream, by the stream's identity.
    uses: Mutex<Vec<(usize, CudaEvent)>>,
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
        let planes: Vec<u64> = (0..2 * layout.layers as u64).map(|index| elements.address() + index * plane).collect();
        let mut upload = Upload::default();
        let span = upload.push(&planes);
        let planes_on_device = (upload.send(device)?, span);
        Ok(Self { layout, device: device.clone(), elements, planes, planes_on_device, uses: Mutex::new(Vec::new()) })
    }

    /// How it is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All of it, to be written: to fill it from elsewhere.
    pub fn view_mut(&mut self) -> ViewMut<'_, u16> {
        self.elements.view_mut()
    }

    /// Replaces all of it, or its beginning, in the order of the device's stream.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If there are more elements than the layout has.
    pub fn write(&mut self, elements: &[u16]) -> Result<(), GpuError> {
        self.elements.write(elements)
    }

    /// A copy of all of it, after waiting for what is queued.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed.
    pub fn to_vec(&self) -> Result<Vec<u16>, GpuError> {
        self.elements.to_vec()
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Addresses of block 0 in each plane, here and in an array on the device.
    pub(super) fn planes(&self) -> (&[u64], u64) {
        let (arrays, span) = &self.planes_on_device;
        (&self.planes, arrays.address(*span))
    }

    /// Pages of one layer.
    pub(super) fn pages(&self, layer: usize) -> Result<Pages, GpuError> {
        let layers = self.layout.layers;
        if layer >= layers {
            return Err(ShapeError::Layer { layer, layers }.into());
        }
        Ok(pages(&self.layout, self.planes[2 * layer], self.planes[2 * layer + 1]))
    }

    /// Notes that `stream` uses it until `event`.
    pub(super) fn used_by(&self, stream: &Device, event: CudaEvent) {
        let mut uses = self.uses.lock();
        uses.retain(|(by, _)| *by != stream.identity());
        uses.push((stream.identity(), event));
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
        for (_, event) in self.uses.get_mut().drain(..) {
            // Freeing is queued behind this; if it cannot be, the other stream is waited for here.
            if self.device.stream().wait(&event).is_err() {
                let _ = event.synchronize();
            }
        }
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
