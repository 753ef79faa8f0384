//! Batches whose plans lie on the device.

use super::abi::{AppendArgs, Pages};
use super::buffer::{Buffer, Raw, View};
use super::device::Device;
use super::error::GpuError;
use super::kv::{self, check_len};
use super::plan::{cascade, decode, extend};
use super::upload::{Arrays, Span, Upload};
use super::work::{Ends, Parts, Sizes, Work};
use radixkv::BlockId;
use radixkv_attention::plan::Sharing;
use radixkv_attention::{Batch, Layout, ShapeError};

/// A batch whose plan lies on the device.
#[derive(Debug)]
pub struct Prepared {
    pub(super) device: Device,
    pub(super) sizes: Sizes,
    arrays: Arrays,
    table: Span,
    slots: Span,
    pub(super) keeps: bool,
    /// Whether it can be decoded, and if not, why.
    pub(super) decodes: Result<(), ShapeError>,
    parts: Parts,
    step: Step,
}

/// How a prepared batch is computed.
#[derive(Debug)]
enum Step {
    /// One row a sequence.
    Decode { items: Span },
    /// Rows that are in their blocks.
    Extend { tiles: Span },
    /// Rows beside the blocks: tiles over what precedes them, and over themselves, kept in pages of their own.
    Apart { before: Span, own: Span, pages: Pages, _memory: Buffer<u16> },
}

/// What the sequences of a batch share, planned, on the device.
#[derive(Debug)]
pub struct Cascade {
    pub(super) device: Device,
    pub(super) sizes: Sizes,
    arrays: Arrays,
    table: Span,
    pub(super) tiles: Span,
    pub(super) members: Span,
    pub(super) items: Span,
    parts: Parts,
}

impl Prepared {
    pub(super) fn new(device: &Device, sizes: Sizes, batch: &Batch<'_>) -> Result<Self, GpuError> {
        let machine = sizes.machine(device);
        let mut upload = Upload::default();
        let decodes = batch.check_decode();
        let chunk = |sequence: usize| extend::Chunk {
            table: batch.tables.offsets[sequence],
            rows: batch.rows_of(sequence),
            context: batch.contexts[sequence] as usize,
        };
        let (table, slots, parts, step);
        if decodes.is_ok() {
            let plan = decode::plan(&machine, batch.contexts, batch.tables.offsets);
            (table, slots) = (upload.push(batch.tables.blocks), upload.push(batch.slots));
            parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
            step = Step::Decode { items: upload.push(&plan.items) };
        } else if batch.save_kv {
            let chunks: Vec<_> = (0..batch.len()).map(chunk).collect();
            let plan = extend::plan(&machine, &chunks);
            (table, slots) = (upload.push(batch.tables.blocks), upload.push(batch.slots));
            parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
            step = Step::Extend { tiles: upload.push(&plan.tiles) };
        } else {
            let chunks: Vec<_> = (0..batch.len()).map(chunk).collect();
            let scratch = Scratch::of(&sizes.layout, batch, &chunks);
            let before: Vec<_> = chunks.iter().map(extend::Chunk::before).collect();
            let (before, plan) = extend::plan_apart(&machine, &before, &scratch.chunks);
            (table, slots) = (upload.push(&scratch.table), upload.push(&scratch.slots));
            parts = Parts::new(device, &sizes, &plan.merges, &mut upload)?;
            let (pages, _memory) = scratch.allocate(device, &sizes.layout)?;
            let (before, own) = (upload.push(&before), upload.push(&plan.tiles));
            step = Step::Apart { before, own, pages, _memory };
        }
        let arrays = upload.send(device)?;
        let keeps = batch.save_kv;
        Ok(Self { device: device.clone(), sizes, arrays, table, slots, keeps, decodes, parts, step })
    }

    /// Keys and values of the rows, if they are as many as the batch says.
    pub(super) fn rows(&self, keys: View<'_, u16>, values: View<'_, u16>) -> Result<(Raw, Raw), GpuError> {
        let (keys, values) = (self.device.resolve(keys.raw())?, self.device.resolve(values.raw())?);
        check_len("keys", keys.len, self.sizes.kv_elements())?;
        check_len("values", values.len, self.sizes.kv_elements())?;
        Ok((keys, values))
    }

    /// The pages that the rows are written to: the layer's, or those of rows that are not kept.
    pub(super) fn kept_in(&self, layer: Pages) -> Pages {
        match &self.step {
            Step::Apart { pages, .. } => *pages,
            Step::Decode { .. } | Step::Extend { .. } => layer,
        }
    }

    /// Queues the writing of rows into the slots of some pages.
    pub(super) fn write(&self, pages: Pages, keys: Raw, values: Raw) -> Result<(), GpuError> {
        let layout = &self.sizes.layout;
        let arguments = AppendArgs {
            pages,
            keys: keys.address,
            values: values.address,
            slots: self.arrays.address(self.slots),
            key_stride: layout.row() as u32,
            value_stride: layout.row() as u32,
            tokens: self.sizes.rows as u32,
            kv_heads: layout.kv_heads as u32,
            head_dim: layout.head_dim as u32,
            pad: 0,
        };
        // A thread of 512 in two takes one unit of 16 bytes: 8 elements.
        let blocks = (self.sizes.kv_elements() / 8).div_ceil(512);
        let most = 16 * self.device.properties().multiprocessors as usize;
        self.device.launch((), (blocks.min(most), 1), &arguments)
    }

    pub(super) fn attend(&self, pages: Pages, ends: &Ends) -> Result<(), GpuError> {
        let Self { device, sizes, arrays, table, parts, .. } = self;
        let work = Work { device, sizes, arrays, table: *table, parts };
        match &self.step {
            Step::Decode { items } => work.decode(pages, ends, *items)?,
            Step::Extend { tiles } => work.tiles(pages, ends, *tiles, None)?,
            Step::Apart { before, own, pages: apart, .. } => {
                work.tiles(pages, ends, *before, None)?;
                work.tiles(*apart, ends, *own, None)?;
            }
        }
        work.merge(ends)
    }
}

/// Pages for rows that are not kept: as many blocks as each sequence's rows fill, behind the table of the real ones.
struct Scratch {
    table: Vec<BlockId>,
    slots: Vec<u64>,
    chunks: Vec<extend::Chunk>,
    blocks: usize,
}

impl Scratch {
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
            scratch.chunks.push(extend::Chunk { table, context: rows.len(), rows });
        }
        scratch
    }

    fn allocate(&self, device: &Device, layout: &Layout) -> Result<(Pages, Buffer<u16>), GpuError> {
        let layout = Layout { layers: 1, blocks: self.blocks.max(1), ..*layout };
        let memory = device.unset::<u16>(layout.elements())?;
        let values = memory.address() + (layout.half() * size_of::<u16>()) as u64;
        Ok((kv::pages(&layout, memory.address(), values), memory))
    }
}

impl Cascade {
    pub(super) fn new(device: &Device, sizes: Sizes, batch: &Batch<'_>, sharing: &Sharing) -> Result<Self, GpuError> {
        let plan = cascade::plan(&sizes.machine(device), batch.contexts, batch.tables.offsets, sharing);
        let mut upload = Upload::default();
        let table = upload.push(batch.tables.blocks);
        let (tiles, members) = (upload.push(&plan.tiles), upload.push(&plan.members));
        let items = upload.push(&plan.rest.items);
        let parts = Parts::new(device, &sizes, &plan.rest.merges, &mut upload)?;
        let arrays = upload.send(device)?;
        Ok(Self { device: device.clone(), sizes, arrays, table, tiles, members, items, parts })
    }

    pub(super) fn work(&self) -> Work<'_> {
        let Self { device, sizes, arrays, table, parts, .. } = self;
        Work { device, sizes, arrays, table: *table, parts }
    }
}
