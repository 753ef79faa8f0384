//! Attention on a device: what the trait asks for, as launches of kernels.

use super::abi::{CopyArgs, CopyPair, Pages};
use super::buffer::{View, ViewMut};
use super::device::Device;
use super::error::GpuError;
use super::kv::{self, Kv, check_len};
use super::prepared::{Cascade, Prepared};
use super::upload::Upload;
use super::work::{Ends, Sizes};
use radixkv::BlockId;
use radixkv_attention::plan::{Rule, Sharing};
use radixkv_attention::{Backend, Batch, Layout, Output, Qkv, ShapeError};

/// A shared prefix is read once if that saves more reading than so many microseconds: a cascade launches two kernels
/// more.
const WORTHWHILE_US: usize = 10;

/// Paged attention on one device, on its stream.
///
/// Elements are `f16` or `bf16` as `u16`, heads have 64 or 128 elements, blocks 16, 32 or 64 tokens. Every operation
/// returns once its work is queued; [`Device::synchronize`], or reading a buffer, waits for it. Preparing a batch
/// copies its plan to the device; the operations on a prepared batch launch kernels and nothing else, so they can be
/// captured into a graph.
///
/// # Examples
///
/// ```no_run
/// use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Tables};
/// use radixkv_cuda::{Attention, Device};
///
/// let device = Device::open(0)?;
/// let attention = Attention::new(&device);
/// let layout =
///     Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, dtype: Dtype::Bf16, order: Order::Nhd };
/// let kv = attention.allocate(layout)?;
/// let batch = Batch {
///     query_heads: 8,
///     scale: 0.125,
///     tables: Tables { blocks: &[3, 5], offsets: &[0, 2] },
///     contexts: &[18],
///     rows: &[0, 1],
///     save_kv: true,
///     slots: &[5 * 16 + 1],
/// };
/// let batch = attention.prepare(&layout, &batch)?;
/// let (keys, values) = (device.zeros::<u16>(128)?, device.zeros::<u16>(128)?);
/// let (queries, mut out) = (device.zeros::<u16>(512)?, device.zeros::<u16>(512)?);
/// attention.append(&kv, 0, &batch, keys.view(), values.view())?;
/// attention.decode(&kv, 0, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })?;
/// println!("{:?}", out.to_vec()?);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Attention {
    device: Device,
}

impl Attention {
    /// Attention on this device.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone() }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn check_device(&self, device: &Device) -> Result<(), GpuError> {
        if self.device.identity() == device.identity() { Ok(()) } else { Err(GpuError::WrongDevice) }
    }

    /// Where an attention begins and ends, if its buffers fit.
    fn ends(
        &self,
        sizes: &Sizes,
        queries: View<'_, u16>,
        out: Output<ViewMut<'_, u16>, ViewMut<'_, f32>>,
    ) -> Result<Ends, GpuError> {
        let ends = Ends {
            queries: self.device.resolve(queries.raw())?,
            out: self.device.resolve(out.rows.raw())?,
            lse: out.lse.map(|lse| self.device.resolve(lse.raw())).transpose()?,
        };
        sizes.check_ends(&ends)?;
        Ok(ends)
    }

    /// Checks that pages and batch belong together and to this device; the layer's pages.
    fn pages(&self, kv: &Kv, layer: usize, device: &Device, sizes: &Sizes) -> Result<Pages, GpuError> {
        self.check_device(kv.device())?;
        self.check_device(device)?;
        sizes.check_layout(kv.layout())?;
        kv.pages(layer)
    }
}

impl Backend for Attention {
    type Kv = Kv;
    type Prepared = Prepared;
    type Cascade = Cascade;
    type Rows<'a> = View<'a, u16>;
    type RowsMut<'a> = ViewMut<'a, u16>;
    type LseMut<'a> = ViewMut<'a, f32>;
    type Error = GpuError;

    fn allocate(&self, layout: Layout) -> Result<Kv, GpuError> {
        Kv::new(&self.device, layout)
    }

    fn prepare(&self, layout: &Layout, batch: &Batch<'_>) -> Result<Prepared, GpuError> {
        let variant = kv::check(layout)?;
        batch.check(layout)?;
        Prepared::new(&self.device, Sizes::of(layout, variant, batch)?, batch)
    }

    fn append(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        keys: View<'_, u16>,
        values: View<'_, u16>,
    ) -> Result<(), GpuError> {
        let pages = self.pages(kv, layer, &batch.device, &batch.sizes)?;
        let (keys, values) = batch.rows(keys, values)?;
        if !batch.keeps {
            return Err(ShapeError::NotKept.into());
        }
        batch.write(pages, keys, values)
    }

    fn decode(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        queries: View<'_, u16>,
        out: Output<ViewMut<'_, u16>, ViewMut<'_, f32>>,
    ) -> Result<(), GpuError> {
        let pages = self.pages(kv, layer, &batch.device, &batch.sizes)?;
        let ends = self.ends(&batch.sizes, queries, out)?;
        batch.decodes?;
        batch.attend(pages, &ends)
    }

    fn extend(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        new: Qkv<View<'_, u16>>,
        out: Output<ViewMut<'_, u16>, ViewMut<'_, f32>>,
    ) -> Result<(), GpuError> {
        let pages = self.pages(kv, layer, &batch.device, &batch.sizes)?;
        let ends = self.ends(&batch.sizes, new.queries, out)?;
        let (keys, values) = batch.rows(new.keys, new.values)?;
        batch.write(batch.kept_in(pages), keys, values)?;
        batch.attend(pages, &ends)
    }

    fn rule(&self, layout: &Layout) -> Rule {
        let bytes_per_token = 2 * layout.row() * layout.dtype.bytes();
        let bytes_per_us = self.device.properties().bytes_per_us;
        let group_cost_tokens = (WORTHWHILE_US * bytes_per_us).div_ceil(bytes_per_token.max(1));
        Rule { grain_tokens: layout.block_size, group_cost_tokens }
    }

    fn prepare_cascade(&self, layout: &Layout, batch: &Batch<'_>, sharing: &Sharing) -> Result<Cascade, GpuError> {
        let variant = kv::check(layout)?;
        batch.check(layout)?;
        batch.check_decode()?;
        sharing.check(batch.tables, batch.contexts, layout.block_size)?;
        let uneven = sharing.groups.iter().position(|group| group.shared_tokens % layout.block_size != 0);
        if let Some(group) = uneven {
            return Err(ShapeError::Shared { group, tokens: sharing.groups[group].shared_tokens }.into());
        }
        Cascade::new(&self.device, Sizes::of(layout, variant, batch)?, batch, sharing)
    }

    fn cascade(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        cascade: &Cascade,
        queries: View<'_, u16>,
        out: Output<ViewMut<'_, u16>, ViewMut<'_, f32>>,
    ) -> Result<(), GpuError> {
        let pages = self.pages(kv, layer, &cascade.device, &cascade.sizes)?;
        check_len("the cascade's rows", cascade.sizes.rows, batch.sizes.rows)?;
        let ends = self.ends(&cascade.sizes, queries, out)?;
        let work = cascade.work();
        work.tiles(pages, &ends, cascade.tiles, Some(cascade.members))?;
        work.decode(pages, &ends, cascade.items)?;
        work.merge(&ends)
    }

    fn copy_blocks(&self, kv: &Kv, pairs: &[(BlockId, BlockId)]) -> Result<(), GpuError> {
        self.check_device(kv.device())?;
        let layout = kv.layout();
        check_copies(pairs, layout.blocks)?;
        let units = (layout.block() * layout.dtype.bytes() / 16) as u32;
        let pairs: Vec<CopyPair> = pairs.iter().map(|&(from, to)| CopyPair { from, to, units }).collect();
        let mut upload = Upload::default();
        let span = upload.push(&pairs);
        let arrays = upload.send(&self.device)?;
        let (planes, on_device) = kv.planes();
        let stride = kv.block_stride_bytes();
        let arguments = CopyArgs {
            from_planes: on_device,
            to_planes: on_device,
            from_stride: stride,
            to_stride: stride,
            pairs: arrays.address(span),
            pairs_len: span.len as u32,
            planes: planes.len() as u32,
            rows: 1,
            row_units: units,
        };
        let pieces = (units as usize).div_ceil(2048) * span.len * planes.len();
        self.device.launch((), (pieces.min(65_536), 1), &arguments)
    }
}

/// Whether blocks can be copied all at once: none is beyond the layout, written twice, or written and read.
fn check_copies(pairs: &[(BlockId, BlockId)], blocks: usize) -> Result<(), ShapeError> {
    check_ids(pairs.iter().flat_map(|(from, to)| [*from, *to]), blocks)?;
    let written = check_written_once(pairs)?;
    match pairs.iter().find(|(from, _)| written.binary_search(from).is_ok()) {
        Some(&(block, _)) => Err(ShapeError::CopyOverlap { block }),
        None => Ok(()),
    }
}

/// Whether all ids are below `blocks`.
pub(super) fn check_ids(mut ids: impl Iterator<Item = BlockId>, blocks: usize) -> Result<(), ShapeError> {
    match ids.find(|block| *block as usize >= blocks) {
        Some(block) => Err(ShapeError::CopyRange { block, blocks }),
        None => Ok(()),
    }
}

/// The blocks written, sorted, if none is written twice.
pub(super) fn check_written_once(pairs: &[(BlockId, BlockId)]) -> Result<Vec<BlockId>, ShapeError> {
    let mut written: Vec<BlockId> = pairs.iter().map(|(_, to)| *to).collect();
    written.sort_unstable();
    match written.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ShapeError::CopyOverlap { block: pair[0] }),
        None => Ok(written),
    }
}
