//! The storage of paged keys and values in device memory, allocated here or by an engine.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};

use super::abi::{LayerKv, Plane};
use super::buffer::{Buffer, tensor_arrays};
use super::device::Device;
use super::dlpack::{self, DlTensor, TensorField};
use super::driver;
use super::error::GpuError;
use super::kernel::Variant;
use super::upload::{ArraySpan, Arrays, Upload};
use super::uses::Uses;
use parking_lot::{Mutex, MutexGuard};
use radixkv_attention::{Half, Layout, Order, ShapeError};

/// The keys and values of all layers, in their own allocation or in memory of an engine
/// ([`Kv::from_raw`]).
///
/// [`Attention::allocate`](radixkv_attention::Backend::allocate) makes one, laid out as the
/// [`Layout`] describes. Two 8-bit elements are stored in a 16-bit word, and the scales of a block
/// follow its elements: `[kv_heads, block_size]`, of `f32`. If heads of keys and of values differ
/// in size, blocks of both take as much room as the larger ones. The allocation is freed after all
/// work that is queued on the device's stream, and after every transfer of a [`Swap`](super::Swap)
/// that uses it.
///
/// A NaN in the values of a head shows in that head's outputs. If elements have 8 bits, it may also
/// show in the outputs of another head of the same sequence.
///
/// # Examples
///
/// ```no_run
/// use radixkv_attention::{Backend, Dtype, Layout, Order, element};
/// use radixkv_cuda::{Attention, Device};
///
/// let (dtype, order) = (Dtype::Bf16, Order::Nhd);
/// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
/// let mut kv = Attention::new(&Device::open(0)?).allocate(layout)?;
/// kv.write(&vec![element::to_bits(dtype, 0.5) as u16; layout.elements()])?;
/// assert_eq!(kv.to_vec()?[0], 0x3f00);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Kv {
    layout: Layout,
    device: Device,
    /// The allocation; `None` for memory of an engine.
    elements: Option<Buffer<u16>>,
    /// Bytes from a block to the next one in its plane.
    block_stride: usize,
    /// Static scales, if the element type has them: `[layers, {keys, values}, kv_heads]`; and the
    /// same on the device.
    scales: Option<(Vec<f32>, Buffer<f32>)>,
    /// Addresses of block 0 in each plane: the keys of a layer, its values, the keys of the next
    /// layer, and so on; only the keys of latent vectors.
    planes: Vec<u64>,
    planes_on_device: (Arrays, ArraySpan),
    /// The planes, in runs that one copy can take.
    runs: Vec<PlaneRun>,
    /// Uses by streams other than the device's.
    uses: Mutex<Uses>,
}

/// The addresses of an engine's keys and values, for [`Kv::from_raw`].
///
/// Within a block, tokens and heads are laid out as the [`Layout`] says, without gaps.
///
/// A plain struct without a constructor: no field has a default, and a literal names the two arrays
/// of addresses.
///
/// ```
/// use radixkv_cuda::Planes;
///
/// // Two layers; a block has 1,024 elements of keys, and its values follow its keys.
/// let (keys, values) = ([0x10_0000, 0x20_0000], [0x10_0000 + 2 * 1024, 0x20_0000 + 2 * 1024]);
/// let planes = Planes { keys: &keys, values: &values, block_stride: 2 * 1024 };
/// # drop(planes);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Planes<'a> {
    /// Device address of block 0's keys, in each layer.
    pub keys: &'a [u64],
    /// Device address of block 0's values, in each layer; empty for latent vectors.
    pub values: &'a [u64],
    /// Elements from the keys of a block to those of the next block, and from values to values:
    /// [`Layout::block_elements`] if blocks follow each other, twice that if a block's values are
    /// in between.
    pub block_stride: usize,
}

/// Checks a layout; returns the variant of the attention kernels for it, if there is one.
pub(super) fn check(layout: &Layout) -> Result<Variant, GpuError> {
    layout.check()?;
    let Layout { dtype, head_dim, value_dim, .. } = *layout;
    check_stride(layout, block_bytes(layout))?;
    Variant::of_layout(layout).ok_or(GpuError::Layout { dtype, head_dim, value_dim })
}

/// Checks that the kernels can address every row of a plane with `stride` bytes from block to
/// block.
fn check_stride(layout: &Layout, stride: usize) -> Result<(), GpuError> {
    let Layout { head_dim, block_size, blocks, .. } = *layout;
    let piece = block_bytes(layout);
    // Strides inside a block and units of a copy are `u32` in the kernels; if the table is looked
    // up for each token, so are positions in a plane, in units of 16 bytes.
    let of_tokens = block_size % 16 != 0 || !matches!(head_dim, 64 | 128 | 256);
    let most_of_a_plane = if of_tokens { MOST_IN_UNITS } else { usize::MAX };
    let plane = stride.saturating_mul(blocks - 1).saturating_add(piece);
    if u32::try_from(piece).is_err() || plane > most_of_a_plane {
        return Err(ShapeError::TooLarge { blocks }.into());
    }
    Ok(())
}

/// The bytes that 32 bits can address in units of 16.
const MOST_IN_UNITS: usize = 16 << 32;

/// Bytes of the elements of one block in a plane.
fn element_bytes(layout: &Layout, half: Half) -> usize {
    layout.of(half).block_elements() * layout.dtype.bytes()
}

/// Whether each block stores its own scales.
fn has_block_scales(layout: &Layout) -> bool {
    layout.dtype.has_scales() && !layout.dtype.has_static_scales()
}

/// Bytes of one block in a plane, the same for keys and values: the size of the larger half, with
/// its scales.
pub(super) fn block_bytes(layout: &Layout) -> usize {
    let scales = if has_block_scales(layout) { layout.kv_heads * layout.block_size * size_of::<f32>() } else { 0 };
    element_bytes(layout, Half::Keys).max(element_bytes(layout, Half::Values)) + scales.next_multiple_of(16)
}

impl Kv {
    /// Allocates zeroed memory for `layout`.
    pub(super) fn new(device: &Device, layout: Layout) -> Result<Self, GpuError> {
        check(&layout)?;
        let plane = layout.blocks * block_bytes(&layout);
        let count = layout.halves().len() * layout.layers;
        let elements = device.zeros::<u16>(count * plane / size_of::<u16>())?;
        let planes = (0..count).map(|index| elements.address() + (index * plane) as u64).collect();
        Self::of(device, layout, Some(elements), planes, block_bytes(&layout), true)
    }

    /// Makes a storage in memory of an engine; dropping it does not free the memory.
    ///
    /// # Errors
    ///
    /// [`GpuError::Shape`] if there is not one address for each layer, blocks overlap, or a plane
    /// spans more than 64 GiB while the layout needs the table for each token;
    /// [`GpuError::Unaligned`] if an address or the stride is not a multiple of 16 bytes;
    /// [`GpuError::Layout`] if there are no kernels for the layout; or if the driver fails.
    ///
    /// # Safety
    ///
    /// Every block of `layout` at these addresses must be memory of the device's context, be ready
    /// in the order of the device's stream, and stay until all work queued with it is done; nothing
    /// else may write it in between.
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
    /// let layout = Layout { layers, blocks, block_size, kv_heads, head_dim, value_dim: head_dim, dtype: Dtype::Bf16, order: Order::Nhd };
    /// let (keys, values) = ([pool], [pool + 2 * layout.block_elements() as u64]); // 2 bytes an element
    /// let planes = Planes { keys: &keys, values: &values, block_stride: 2 * layout.block_elements() };
    /// // SAFETY: the engine's context, stream and pool outlive all that is done with them.
    /// let kv = unsafe {
    ///     let device = Device::from_raw(0, context, stream, Default::default())?;
    ///     Kv::from_raw(&device, layout, planes)?
    /// };
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn from_raw(device: &Device, layout: Layout, planes: Planes<'_>) -> Result<Self, GpuError> {
        check(&layout)?;
        let Planes { keys, values, block_stride } = planes;
        check_len("addresses of keys", keys.len(), layout.layers)?;
        check_len("addresses of values", values.len(), if layout.has_values() { layout.layers } else { 0 })?;
        let (bytes, needed) = (layout.dtype.bytes(), block_bytes(&layout).div_ceil(layout.dtype.bytes()));
        if block_stride < needed {
            let (what, given) = ("elements from block to block", block_stride);
            return Err(ShapeError::Length { what, given, needed }.into());
        }
        let planes: Vec<u64> = match layout.has_values() {
            true => keys.iter().zip(values).flat_map(|(keys, values)| [*keys, *values]).collect(),
            false => keys.to_vec(),
        };
        let stride = block_stride.saturating_mul(bytes);
        let bytes = stride as u64;
        if let Some(&address) = planes.iter().chain([&bytes]).find(|address| **address % 16 != 0) {
            return Err(GpuError::Unaligned { address });
        }
        check_stride(&layout, stride)?;
        let last = (layout.blocks as u64 - 1).saturating_mul(bytes);
        let extent = last.saturating_add(block_bytes(&layout) as u64);
        let together = are_in_one_allocation(device, &planes, extent);
        Self::of(device, layout, None, planes, stride, together)
    }

    fn of(
        device: &Device,
        layout: Layout,
        elements: Option<Buffer<u16>>,
        planes: Vec<u64>,
        block_stride: usize,
        together: bool,
    ) -> Result<Self, GpuError> {
        let runs = plane_runs(&planes, if together { MOST_PITCH } else { 0 }, block_bytes(&layout));
        let mut upload = Upload::default();
        let span = upload.push(&planes);
        let planes_on_device = (upload.send(device)?, span);
        let ones = layout.dtype.has_static_scales().then(|| vec![1.0; layout.scales()]);
        let scales = ones.map(|ones| device.upload(&ones).map(|buffer| (ones, buffer))).transpose()?;
        let (device, uses) = (device.clone(), Mutex::new(Uses::default()));
        Ok(Self { layout, device, elements, block_stride, scales, planes, planes_on_device, runs, uses })
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Sets the static scales of one layer's keys or values: one for each head, or one for all
    /// heads. They take effect in the order of the device's stream: work that is queued afterwards
    /// uses them.
    ///
    /// # Errors
    ///
    /// [`GpuError::Shape`] if the element type computes its scales, or has none; if there is no
    /// such layer, the number of scales is wrong, or a scale is not positive and finite; or if the
    /// driver fails.
    ///
    /// ```no_run
    /// # use radixkv_attention::Half;
    /// # use radixkv_cuda::*;
    /// # fn show(kv: &mut Kv) -> Result<(), GpuError> {
    /// kv.set_scales(0, Half::Keys, &[0.04])?; // one for the tensor
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_scales(&mut self, layer: usize, half: Half, scales: &[f32]) -> Result<(), GpuError> {
        let given = self.layout.static_scales(layer, scales)?;
        let Some((all, on_device)) = &mut self.scales else { return Ok(()) };
        let mut changed = all.clone();
        let first = (2 * layer + usize::from(half == Half::Values)) * self.layout.kv_heads;
        changed[first..].iter_mut().zip(given).for_each(|(to, scale)| *to = scale);
        on_device.write(&changed)?;
        *all = changed;
        Ok(())
    }

    /// Replaces the first words of the storage by `elements`, in the order of the device's stream,
    /// after all transfers that use the storage. A word is the bits of an `f16` or `bf16`
    /// ([`element::to_bits`](radixkv_attention::element::to_bits)), or two 8-bit elements.
    ///
    /// # Errors
    ///
    /// If the driver fails; [`GpuError::Borrowed`] if the storage is memory of an engine.
    ///
    /// # Panics
    ///
    /// If there are more elements than the storage has words.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(kv: &mut Kv, saved: &[u16]) -> Result<(), GpuError> {
    /// kv.write(saved)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&mut self, elements: &[u16]) -> Result<(), GpuError> {
        let own = self.elements.as_mut().ok_or(GpuError::Borrowed)?;
        self.device.refuse_capture()?;
        self.uses.get_mut().wait_on(&self.device).map_err(GpuError::of)?;
        own.write(elements)
    }

    /// Copies all of its memory, as 16-bit words, to host memory, after waiting for the queued work
    /// and all transfers that use the storage.
    ///
    /// # Errors
    ///
    /// If something queued earlier failed; [`GpuError::Borrowed`] if the storage is memory of an
    /// engine.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(kv: &Kv) -> Result<(), GpuError> {
    /// let saved = kv.to_vec()?;
    /// assert_eq!(saved.len(), kv.layout().elements());
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_vec(&self) -> Result<Vec<u16>, GpuError> {
        let own = self.elements.as_ref().ok_or(GpuError::Borrowed)?;
        self.device.refuse_capture()?;
        self.uses.lock().wait_on(&self.device).map_err(GpuError::of)?;
        own.to_vec()
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The addresses of block 0 in each plane, and the address of an array of them on the device.
    pub(super) fn planes(&self) -> (&[u64], u64) {
        let (arrays, span) = &self.planes_on_device;
        (&self.planes, arrays.address(*span))
    }

    /// The planes, in runs that one copy can take.
    pub(super) fn runs(&self) -> &[PlaneRun] {
        &self.runs
    }

    /// Bytes from a block to the next one in its plane.
    pub(super) fn block_stride_bytes(&self) -> u64 {
        self.block_stride as u64
    }

    /// Keys and values of one layer.
    pub(super) fn layer_kv(&self, layer: usize) -> Result<LayerKv, GpuError> {
        let layers = self.layout.layers;
        if layer >= layers {
            return Err(ShapeError::Layer { layer, layers }.into());
        }
        let planes = match self.layout.has_values() {
            true => [self.planes[2 * layer], self.planes[2 * layer + 1]],
            false => [self.planes[layer]; 2],
        };
        let heads = (2 * layer * self.layout.kv_heads * size_of::<f32>()) as u64;
        let scales = self.scales.as_ref().map(|(_, scales)| scales.address() + heads);
        Ok(layer_kv(&self.layout, planes, self.block_stride, scales))
    }

    /// Uses by streams other than the device's; locked while a use is queued and noted.
    pub(super) fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock()
    }
}

impl Kv {
    /// Makes a storage in tensors of an engine, two for each layer: keys
    /// `[blocks, block_size, kv_heads, head_dim]`, and values with `value_dim`, for [`Order::Nhd`];
    /// `[blocks, kv_heads, block_size, ...]` for [`Order::Hnd`]; one for each layer,
    /// `[blocks, block_size, head_dim]`, and no values, for [`Order::Latent`]. Blocks may have gaps
    /// between them, the same in all tensors, as in a tensor `[blocks, 2, ...]`.
    ///
    /// # Errors
    ///
    /// [`GpuError::Tensor`] with the field that differs, its value and the required value; and as
    /// for [`Kv::from_raw`].
    ///
    /// # Safety
    ///
    /// As for [`Kv::from_raw`]; and `shape` and `strides` of each tensor must be arrays of `ndim`
    /// numbers, or `strides` null.
    pub unsafe fn from_dlpack(
        device: &Device,
        layout: Layout,
        keys: &[DlTensor],
        values: &[DlTensor],
    ) -> Result<Self, GpuError> {
        check(&layout)?;
        let mut stride = None;
        let mut addresses = |half: Half, tensors: &[DlTensor]| -> Result<Vec<u64>, GpuError> {
            let Layout { blocks, block_size, kv_heads, head_dim, dtype, order, .. } = layout.of(half);
            let shape = match order {
                Order::Hnd => vec![blocks, kv_heads, block_size, head_dim],
                Order::Latent => vec![blocks, block_size, head_dim],
                _ => vec![blocks, block_size, kv_heads, head_dim],
            };
            tensors
                .iter()
                .map(|tensor| {
                    // SAFETY: as the caller promises.
                    let arrays = unsafe { tensor_arrays(tensor) };
                    let (address, given) = tensor.address(arrays, device, dtype, &shape, true)?;
                    let needed = *stride.get_or_insert(given);
                    dlpack::check(TensorField::Stride(0), given as i64, needed as i64).map(|()| address)
                })
                .collect()
        };
        let (keys, values) = (addresses(Half::Keys, keys)?, addresses(Half::Values, values)?);
        let block_stride = stride.unwrap_or(layout.block_elements());
        // SAFETY: as the caller promises; every block is in a tensor.
        unsafe { Self::from_raw(device, layout, Planes { keys: &keys, values: &values, block_stride }) }
    }
}

/// The most bytes from row to row of a copy: `CU_DEVICE_ATTRIBUTE_MAX_PITCH` on every device so
/// far.
const MOST_PITCH: u64 = i32::MAX as u64;

/// Planes at even distances: `first`, `first + step`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaneRun {
    pub(super) first: usize,
    pub(super) step: usize,
    pub(super) count: usize,
    /// Bytes from one to the next.
    pub(super) pitch: usize,
}

/// Divides the planes into runs: all in one run, or keys and values in one each, or each plane in
/// its own. `piece` is how many bytes of a plane are copied, and `most` the largest pitch.
fn plane_runs(planes: &[u64], most: u64, piece: usize) -> Vec<PlaneRun> {
    let run = |first: usize, step: usize| {
        let mut of = planes[first..].iter().step_by(step);
        let (start, count) = (*of.next()?, of.len() + 1);
        let pitch = of.next().map_or(Some(piece as u64), |next| next.checked_sub(start))?;
        if !(piece as u64..=most).contains(&pitch) {
            return None;
        }
        let is_even =
            (0..).zip(planes[first..].iter().step_by(step)).all(|(at, plane)| *plane == start.wrapping_add(at * pitch));
        is_even.then_some(PlaneRun { first, step, count, pitch: pitch as usize })
    };
    let together = run(0, 1).map(|all| vec![all]);
    let halves = || run(0, 2).zip(run(1, 2)).map(|(keys, values)| vec![keys, values]);
    let alone = |first| PlaneRun { first, step: 1, count: 1, pitch: piece };
    together.or_else(halves).unwrap_or_else(|| (0..planes.len()).map(alone).collect())
}

/// Whether the planes of an engine are in one allocation, as the rows of one copy must be.
fn are_in_one_allocation(device: &Device, planes: &[u64], extent: u64) -> bool {
    let (Some(least), Some(most)) = (planes.iter().min(), planes.iter().max()) else { return false };
    if !driver::has_functions(&["cuMemGetAddressRange_v2"]) || device.stream().context().bind_to_thread().is_err() {
        return false;
    }
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: it writes an address and a number to the given variables; it fails if the address is
    // in no allocation.
    let status = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut bytes, *least) };
    let end = most.checked_add(extent);
    status.result().is_ok() && end.is_some_and(|end| end <= base + bytes as u64)
}

/// The keys and values of one layer at the addresses `planes`, with `block_stride` bytes from block
/// to block. `scales` is the address of the layer's static scales, first for keys, then for values.
pub(super) fn layer_kv(layout: &Layout, planes: [u64; 2], block_stride: usize, scales: Option<u64>) -> LayerKv {
    let (bytes, scale_bytes) = (layout.dtype.bytes(), size_of::<f32>());
    let plane = |half: Half| {
        let (of, address) = (layout.of(half), planes[usize::from(half == Half::Values)]);
        let scale = match scales {
            Some(scales) => scales + (usize::from(half == Half::Values) * layout.kv_heads * scale_bytes) as u64,
            None if has_block_scales(layout) => address + element_bytes(layout, half) as u64,
            None => 0,
        };
        Plane {
            address,
            block_stride: (block_stride / bytes) as u64,
            token_stride: of.token_stride() as u32,
            head_stride: of.head_stride() as u32,
            scale,
        }
    };
    let of_blocks = scales.is_none() && has_block_scales(layout);
    LayerKv {
        keys: plane(Half::Keys),
        values: plane(Half::Values),
        scale_block_stride: if of_blocks { (block_stride / scale_bytes) as u64 } else { 0 },
        scale_token_stride: u32::from(of_blocks),
        scale_head_stride: if of_blocks { layout.block_size as u32 } else { 1 },
        block_tokens: layout.block_size as u32,
        blocks: layout.blocks as u32,
    }
}

impl LayerKv {
    /// Whether 32 bits can hold the positions of pages of 16-bit elements, in units of 16 bytes.
    pub(super) fn fits_units(&self) -> bool {
        let stride = self.keys.block_stride.max(self.values.block_stride);
        stride.saturating_mul(2 * u64::from(self.blocks)) <= MOST_IN_UNITS as u64
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        // The fields are freed after this, in the order of the device's stream.
        let (uses, stream) = (self.uses.get_mut().take(), Arc::clone(self.device.stream()));
        self.device.drop_after_capture(LateUses { uses, stream });
    }
}

/// Uses of a storage, dropped before its memory, so that freeing the memory is queued after them.
struct LateUses {
    uses: Uses,
    stream: Arc<CudaStream>,
}

impl Drop for LateUses {
    fn drop(&mut self) {
        self.uses.end_before(&self.stream);
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Checks the length of a view.
pub(super) fn check_len(what: &'static str, given: usize, needed: usize) -> Result<(), ShapeError> {
    if given == needed { Ok(()) } else { Err(ShapeError::Length { what, given, needed }) }
}

#[cfg(test)]
mod tests {
    use radixkv_attention::Dtype;

    use super::*;

    #[test]
    fn planes_are_in_as_few_runs_as_their_places_allow() {
        let run = |first, step, count, pitch| PlaneRun { first, step, count, pitch };
        assert_eq!(plane_runs(&[0x100, 0x300, 0x500, 0x700], MOST_PITCH, 0x100), [run(0, 1, 4, 0x200)]);
        let interleaved = plane_runs(&[0x100, 0x200, 0x900, 0xa00, 0x1100, 0x1200], MOST_PITCH, 0x100);
        assert_eq!(interleaved, [run(0, 2, 3, 0x800), run(1, 2, 3, 0x800)]);
        let alone = [run(0, 1, 1, 0x100), run(1, 1, 1, 0x100)];
        let two = |from, to, most| plane_runs(&[from, to], most, 0x100);
        assert_eq!(two(0x100, 0x300, MOST_PITCH), [run(0, 1, 2, 0x200)]);
        // Planes that are too near, in descending order or too far apart each have their own run.
        for planes in [[0x100, 0x180], [0x300, 0x100], [0x100, 0x100 + MOST_PITCH + 1]] {
            let halves = two(planes[0], planes[1], MOST_PITCH);
            assert!(halves.iter().map(|run| (run.first, run.count)).eq([(0, 1), (1, 1)]), "{halves:?}");
        }
        assert_eq!(two(0x100, 0x300, 0), alone);
    }

    /// 64 GiB, whichever plane reaches further.
    #[test]
    fn places_of_pages_fit_32_bits_up_to_where_16_bytes_a_unit_reach() {
        let (dtype, order) = (Dtype::Bf16, Order::Nhd);
        let (layers, blocks, block_size, kv_heads, head_dim, value_dim) = (1, 1024, 16, 8, 128, 128);
        let layout = Layout { layers, blocks, block_size, kv_heads, head_dim, value_dim, dtype, order };
        let fits = |stride| layer_kv(&layout, [0x100, 0x200], stride, None).fits_units();
        assert!(fits(1 << 26) && !fits((1 << 26) + 16) && !fits(1 << 40));
        let more = Layout { blocks: 1025, ..layout };
        assert!(!layer_kv(&more, [0x100, 0x200], 1 << 26, None).fits_units());
    }
}
