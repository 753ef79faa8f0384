//! Batches that were planned and copied to the device, and the operations on them.

use super::abi::{AppendArgs, LayerKv};
use super::buffer::{Buffer, RawView, View};
use super::capacity::Capacity;
use super::device::Device;
use super::error::GpuError;
use super::kernel::Kernel;
use super::kv::{self, check_len};
use super::plan::{PlanParams, cascade, decode, extend};
use super::scoring::DeviceScoring;
use super::upload::{ArraySpan, Arrays, Upload};
use super::work::{AttentionIo, Parts, Sizes, TileOwners, Work, fingerprint};
use radixkv::BlockId;
use radixkv_attention::plan::Sharing;
use radixkv_attention::{Batch, Half, Layout, ShapeError};

/// A planned batch on the device. From [`Attention::prepare`](radixkv_attention::Backend::prepare);
/// or from [`Attention::reserve`](super::Attention::reserve), which makes one that can be replaced
/// in place. Threads may share it: the launches of one operation are queued together.
///
/// ```no_run
/// # use radixkv_attention::*;
/// # use radixkv_cuda::*;
/// # fn show(attention: &Attention, kv: &Kv, batch: &Batch<'_>) -> Result<(), GpuError> {
/// let prepared: Prepared = attention.prepare(kv.layout(), batch)?; // once a step, for every layer
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Prepared {
    pub(super) device: Device,
    pub(super) sizes: Sizes,
    pub(super) arrays: Arrays,
    pub(super) table: ArraySpan,
    pub(super) slots: ArraySpan,
    pub(super) save_kv: bool,
    /// Whether it can be decoded, or why not.
    pub(super) decodes: Result<(), ShapeError>,
    pub(super) parts: Parts,
    pub(super) scoring: DeviceScoring,
    pub(super) step: Step,
    /// Of the batch: see [`fingerprint`].
    pub(super) fingerprint: u64,
    /// The room that it has for other batches, if it was reserved.
    pub(super) capacity: Option<Capacity>,
}

/// How a prepared batch is computed.
#[derive(Debug)]
pub(super) enum Step {
    /// One row for each sequence; over latent vectors, any rows.
    Decode { items: ArraySpan },
    /// Rows that are kept in blocks.
    Extend { tiles: ArraySpan, trees: ArraySpan },
    /// Rows that are not kept: tiles over the context that precedes them, and over the rows
    /// themselves, which are appended to scratch blocks.
    NotKept { before: ArraySpan, own: ArraySpan, trees: ArraySpan, scratch: LayerKv, _memory: Buffer<u16> },
}

/// The planned shared prefixes of a batch on the device. From
/// [`Attention::prepare_cascade`](radixkv_attention::Backend::prepare_cascade).
///
/// ```no_run
/// # use radixkv_attention::*;
/// # use radixkv_cuda::*;
/// # fn show(attention: &Attention, kv: &Kv, batch: &Batch<'_>) -> Result<(), GpuError> {
/// let sharing = plan::share(batch.tables, batch.contexts, kv.layout().block_size, attention.rule(kv.layout()));
/// let cascade: Cascade = attention.prepare_cascade(kv.layout(), batch, &sharing)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cascade {
    pub(super) device: Device,
    pub(super) sizes: Sizes,
    /// Of its batch: see [`fingerprint`].
    pub(super) fingerprint: u64,
    arrays: Arrays,
    table: ArraySpan,
    pub(super) tiles: ArraySpan,
    members: ArraySpan,
    contexts: ArraySpan,
    parts: Parts,
    scoring: DeviceScoring,
}

impl Prepared {
    pub(super) fn new(device: &Device, sizes: Sizes, batch: &Batch<'_>) -> Result<Self, GpuError> {
        let window = batch.scoring.window;
        let params = PlanParams { window, ..sizes.params(device) };
        let decode_params = PlanParams { window, ..sizes.decode_params(device) };
        let scoring = DeviceScoring::new(device, &batch.scoring, batch.query_heads)?;
        let mut upload = Upload::default();
        let decodes = batch.check_decode();
        let chunk = |sequence: usize| extend::Chunk {
            table: batch.tables.offsets[sequence],
            rows: batch.rows_of(sequence),
            context: batch.contexts[sequence] as usize,
            is_tree: !batch.scoring.trees.is_empty(),
        };
        let (table, slots, parts, step);
        if sizes.variant.is_latent() {
            let (contexts, tables) = rows_apart(batch)?;
            let plan = decode::plan(&decode_params, &contexts, &tables);
            (table, slots) = (upload.push(batch.tables.blocks), upload.push(batch.slots));
            parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
            step = Step::Decode { items: upload.push(&plan.items) };
        } else if decodes.is_ok() {
            let plan = decode::plan(&decode_params, batch.contexts, batch.tables.offsets);
            (table, slots) = (upload.push(batch.tables.blocks), upload.push(batch.slots));
            parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
            step = Step::Decode { items: upload.push(&plan.items) };
        } else if batch.save_kv {
            let chunks: Vec<_> = (0..batch.len()).map(chunk).collect();
            let plan = extend::plan(&params, &chunks);
            (table, slots) = (upload.push(batch.tables.blocks), upload.push(batch.slots));
            parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
            step = Step::Extend { tiles: upload.push(&plan.tiles), trees: upload.push(batch.scoring.trees) };
        } else {
            let chunks: Vec<_> = (0..batch.len()).map(chunk).collect();
            let scratch = ScratchBlocks::of(&sizes.layout, batch, &chunks);
            let before: Vec<_> = chunks.iter().map(extend::Chunk::before).collect();
            let (before, plan) = extend::plan_apart(&params, &before, &scratch.chunks);
            (table, slots) = (upload.push(&scratch.table), upload.push(&scratch.slots));
            parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
            let (scratch_kv, _memory) = scratch.allocate(device, &sizes.layout)?;
            let (before, own) = (upload.push(&before), upload.push(&plan.tiles));
            let trees = upload.push(batch.scoring.trees);
            step = Step::NotKept { before, own, trees, scratch: scratch_kv, _memory };
        }
        let arrays = upload.send(device)?;
        let (save_kv, fingerprint) = (batch.save_kv, fingerprint(batch));
        let (device, capacity) = (device.clone(), None);
        Ok(Self { device, sizes, arrays, table, slots, save_kv, decodes, parts, scoring, step, fingerprint, capacity })
    }

    /// Keys and values of the rows, if they belong to this device and have the required lengths.
    pub(super) fn rows(&self, keys: View<'_, u16>, values: View<'_, u16>) -> Result<(RawView, RawView), GpuError> {
        let (keys, values) = (self.device.resolve(keys.raw())?, self.device.resolve(values.raw())?);
        check_len("keys", keys.len, self.sizes.kv_elements(Half::Keys))?;
        check_len("values", values.len, self.sizes.kv_elements(Half::Values))?;
        Ok((keys, values))
    }

    /// The storage for the rows: the layer's, or the scratch blocks.
    pub(super) fn kept_in(&self, layer: LayerKv) -> LayerKv {
        match &self.step {
            Step::NotKept { scratch, .. } => with_static_scales(*scratch, &layer, &self.sizes.layout),
            Step::Decode { .. } | Step::Extend { .. } => layer,
        }
    }

    /// Queues the writing of rows into their slots.
    pub(super) fn write(&self, layer_kv: LayerKv, keys: RawView, values: RawView) -> Result<(), GpuError> {
        let layout = &self.sizes.layout;
        let arguments = AppendArgs {
            kv: layer_kv,
            keys: keys.address,
            values: values.address,
            slots: self.arrays.address(self.slots),
            key_stride: layout.row_elements() as u32,
            value_stride: layout.appended_elements(Half::Values) as u32,
            tokens: self.sizes.rows as u32,
            kv_heads: layout.kv_heads as u32,
            head_dim: layout.head_dim as u32,
            value_dim: if layout.has_values() { layout.value_dim as u32 } else { 0 },
            static_scales: u32::from(layout.dtype.has_static_scales()),
            pad: 0,
        };
        // A warp copies a token, or one head of it if rows have scales; a thread block has 8 warps.
        let of_a_token = if layout.dtype.has_scales() { layout.kv_heads } else { 1 };
        let blocks = (self.sizes.rows * of_a_token).div_ceil(8);
        let most = 16 * self.device.properties().multiprocessors as usize;
        self.device.launch(self.sizes.variant, (blocks.min(most), 1), &arguments)
    }

    pub(super) fn attend(&self, layer_kv: LayerKv, layer: usize, io: &AttentionIo) -> Result<(), GpuError> {
        let Self { device, sizes, arrays, table, parts, .. } = self;
        let work = Work { device, sizes, arrays, table: *table, parts, scoring: self.scoring.args(layer) };
        match &self.step {
            Step::Decode { items } => work.decode(layer_kv, io, *items)?,
            Step::Extend { tiles, trees } => work.tiles(layer_kv, io, *tiles, TileOwners::Chunk { trees: *trees })?,
            Step::NotKept { before, own, trees, scratch, .. } => {
                let scratch = with_static_scales(*scratch, &layer_kv, &sizes.layout);
                let owners = TileOwners::Chunk { trees: *trees };
                work.tiles(layer_kv, io, *before, owners)?;
                work.tiles(scratch, io, *own, owners)?;
            }
        }
        work.merge(io)
    }
}

/// Turns each row of a batch over latent vectors into a sequence that ends with the row. Returns
/// the token counts of these sequences, and the indices of their first blocks in the table.
fn rows_apart(batch: &Batch<'_>) -> Result<(Vec<u32>, Vec<u32>), GpuError> {
    if !batch.save_kv {
        return Err(GpuError::Latent { what: "rows that are not kept", instead: "prepare the batch with save_kv" });
    }
    let (mut contexts, mut tables) = (Vec::new(), Vec::new());
    for sequence in 0..batch.len() {
        let rows = batch.rows_of(sequence);
        let masks = batch.scoring.trees.get(rows.clone()).unwrap_or_default();
        if masks.iter().zip(1..).any(|(mask, index)| mask.count_ones() != index) {
            return Err(GpuError::Latent { what: "trees", instead: "verify each path as a sequence" });
        }
        let before = batch.contexts[sequence] - rows.len() as u32;
        contexts.extend((1..=rows.len() as u32).map(|row| before + row));
        tables.extend(rows.map(|_| batch.tables.offsets[sequence]));
    }
    Ok((contexts, tables))
}

/// Gives scratch blocks the static scales of the layer; scales that are not static are their own.
fn with_static_scales(scratch: LayerKv, layer: &LayerKv, layout: &Layout) -> LayerKv {
    if !layout.dtype.has_static_scales() {
        return scratch;
    }
    let mut scratch = scratch;
    (scratch.keys.scale, scratch.values.scale) = (layer.keys.scale, layer.values.scale);
    scratch
}

/// Blocks for rows that are not kept, as many as the rows of each sequence fill. Their table
/// follows the batch's table.
struct ScratchBlocks {
    table: Vec<BlockId>,
    slots: Vec<u64>,
    chunks: Vec<extend::Chunk>,
    blocks: usize,
}

impl ScratchBlocks {
    fn of(layout: &Layout, batch: &Batch<'_>, chunks: &[extend::Chunk]) -> Self {
        let mut scratch =
            Self { table: batch.tables.blocks.to_vec(), slots: Vec::new(), chunks: Vec::new(), blocks: 0 };
        for chunk in chunks {
            let (rows, table) = (chunk.rows.clone(), scratch.table.len() as u32);
            let first = (scratch.blocks * layout.block_size) as u64;
            scratch.slots.extend(first..first + rows.len() as u64);
            let blocks = rows.len().div_ceil(layout.block_size);
            scratch.table.extend((scratch.blocks..scratch.blocks + blocks).map(|block| block as BlockId));
            scratch.blocks += blocks;
            scratch.chunks.push(extend::Chunk { table, context: rows.len(), rows, is_tree: chunk.is_tree });
        }
        scratch
    }

    fn allocate(&self, device: &Device, layout: &Layout) -> Result<(LayerKv, Buffer<u16>), GpuError> {
        let layout = Layout { layers: 1, blocks: self.blocks.max(1), ..*layout };
        let piece = kv::block_bytes(&layout);
        let memory = device.unset::<u16>(2 * layout.blocks * piece / size_of::<u16>())?;
        let planes = [memory.address(), memory.address() + (layout.blocks * piece) as u64];
        Ok((kv::layer_kv(&layout, planes, piece, None), memory))
    }
}

impl Cascade {
    pub(super) fn new(device: &Device, sizes: Sizes, batch: &Batch<'_>, sharing: &Sharing) -> Result<Self, GpuError> {
        let (tile_slots, window) = (device.slots(Kernel::Cascade(sizes.variant)), batch.scoring.window);
        let params = PlanParams { tile_slots, window, ..sizes.params(device) };
        let scoring = DeviceScoring::new(device, &batch.scoring, batch.query_heads)?;
        let plan = cascade::plan(&params, batch.contexts, batch.tables.offsets, sharing);
        let mut upload = Upload::default();
        let table = upload.push(batch.tables.blocks);
        let (tiles, members) = (upload.push(&plan.tiles), upload.push(&plan.members));
        let contexts = upload.push(&plan.contexts);
        let parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
        let arrays = upload.send(device)?;
        let (device, fingerprint) = (device.clone(), fingerprint(batch));
        Ok(Self { device, sizes, fingerprint, arrays, table, tiles, members, contexts, parts, scoring })
    }

    pub(super) fn work(&self, layer: usize) -> Work<'_> {
        let Self { device, sizes, arrays, table, parts, .. } = self;
        Work { device, sizes, arrays, table: *table, parts, scoring: self.scoring.args(layer) }
    }

    pub(super) fn owners(&self) -> TileOwners {
        TileOwners::Sharers { members: self.members, contexts: self.contexts }
    }
}
