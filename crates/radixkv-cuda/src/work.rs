//! What the kernels of one batch are started with.

use super::abi::{DecodeArgs, MergeArgs, Pages, TileArgs};
use super::buffer::{Buffer, Raw};
use super::device::Device;
use super::error::GpuError;
use super::kernel::{Kernel, Variant};
use super::launch::Sharing;
use super::plan::{Machine, Merges};
use super::upload::{Arrays, Span, Upload};
use radixkv_attention::{Batch, Layout, ShapeError};

/// Sizes of a batch that its operations go by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) layout: Layout,
    pub(super) variant: Variant,
    pub(super) query_heads: usize,
    /// Rows of all sequences.
    pub(super) rows: usize,
    scale_log2: f32,
}

/// Where a kernel of attention reads queries and writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) queries: Raw,
    pub(super) out: Raw,
    pub(super) lse: Option<Raw>,
}

/// Partial rows and their merging.
#[derive(Debug)]
pub(super) struct Parts {
    items: Span,
    list: Span,
    most_rows: usize,
    out: Buffer<f32>,
    sums: Buffer<f32>,
}

impl Sizes {
    pub(super) fn of(layout: &Layout, variant: Variant, batch: &Batch<'_>) -> Result<Self, GpuError> {
        // Where a row's keys and values lie is a `u32` in the kernels: rows, and partial rows, have to fit.
        let (rows, query_heads) = (batch.total_rows(), batch.query_heads);
        if u32::try_from(rows * query_heads).is_err() {
            return Err(GpuError::TooMuch { kernel: Kernel::Decode(variant) });
        }
        if batch.scale <= 0.0 {
            return Err(GpuError::Scale { scale: batch.scale });
        }
        let scale_log2 = batch.scale * std::f32::consts::LOG2_E;
        Ok(Self { layout: *layout, variant, query_heads, rows, scale_log2 })
    }

    /// Heads, and what the device runs of them at once.
    pub(super) fn machine(&self, device: &Device) -> Machine {
        let multiprocessors = device.properties().multiprocessors as usize;
        // Devices with less shared memory than the one the kernels are shaped for run fewer blocks at once.
        let shared = |bytes: u32| bytes as usize + 1024;
        let slots = |kernel: Kernel| {
            let shape = kernel.shape();
            let fit = shared(device.properties().shared_bytes) / shared(shape.shared_bytes);
            multiprocessors * (shape.blocks_at_once as usize).min(fit.max(1))
        };
        Machine {
            query_heads: self.query_heads,
            kv_heads: self.layout.kv_heads,
            decode_slots: slots(Kernel::Decode(self.variant)),
            tile_slots: slots(Kernel::Extend(self.variant)),
        }
    }

    /// Elements of all query rows, and of all outputs.
    pub(super) fn query_elements(&self) -> usize {
        self.rows * self.query_heads * self.layout.head_dim
    }

    /// Elements of all rows of keys, and of values.
    pub(super) fn kv_elements(&self) -> usize {
        self.rows * self.layout.row()
    }

    pub(super) fn check_layout(&self, layout: &Layout) -> Result<(), GpuError> {
        if self.layout == *layout { Ok(()) } else { Err(GpuError::OtherLayout) }
    }

    /// Checks the lengths of queries, outputs and sums.
    pub(super) fn check_ends(&self, ends: &Ends) -> Result<(), ShapeError> {
        let needed = self.query_elements();
        super::kv::check_len("queries", ends.queries.len, needed)?;
        super::kv::check_len("outputs", ends.out.len, needed)?;
        match ends.lse {
            Some(lse) => super::kv::check_len("log-sum-exps", lse.len, self.rows * self.query_heads),
            None => Ok(()),
        }
    }
}

impl Parts {
    /// Room for the partial rows; their merging goes into the upload.
    pub(super) fn new(device: &Device, sizes: &Sizes, merges: &Merges, upload: &mut Upload) -> Result<Self, GpuError> {
        if u32::try_from(merges.part_rows).is_err() {
            return Err(GpuError::TooMuch { kernel: Kernel::Merge(sizes.variant) });
        }
        Ok(Self {
            items: upload.push(&merges.items),
            list: upload.push(&merges.list),
            most_rows: merges.most_rows(),
            out: device.unset(merges.part_rows * sizes.layout.head_dim)?,
            sums: device.unset(merges.part_rows * 2)?,
        })
    }
}

/// Everything that the kernels of one attention are started with, but the pages and the ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) device: &'a Device,
    pub(super) sizes: &'a Sizes,
    pub(super) arrays: &'a Arrays,
    pub(super) table: Span,
    pub(super) parts: &'a Parts,
}

impl Work<'_> {
    /// Queues `decode`.
    pub(super) fn decode(&self, pages: Pages, ends: &Ends, items: Span) -> Result<(), GpuError> {
        let sizes = self.sizes;
        let arguments = DecodeArgs {
            pages,
            queries: ends.queries.address,
            out: ends.out.address,
            lse: ends.lse_address(),
            part_out: self.parts.out.address(),
            part_sums: self.parts.sums.address(),
            table: self.arrays.address(self.table),
            items: self.arrays.address(items),
            items_len: items.len as u32,
            query_heads: sizes.query_heads as u32,
            kv_heads: sizes.layout.kv_heads as u32,
            query_stride: (sizes.query_heads * sizes.layout.head_dim) as u32,
            scale_log2: sizes.scale_log2,
            lse_scale: std::f32::consts::LN_2,
        };
        self.device.launch(sizes.variant, (items.len, 1), &arguments)
    }

    /// Queues `extend`, or `cascade` over prefixes that `members` share.
    pub(super) fn tiles(&self, pages: Pages, ends: &Ends, tiles: Span, members: Option<Span>) -> Result<(), GpuError> {
        let sizes = self.sizes;
        let arguments = TileArgs {
            pages,
            queries: ends.queries.address,
            out: ends.out.address,
            lse: ends.lse_address(),
            part_out: self.parts.out.address(),
            part_sums: self.parts.sums.address(),
            table: self.arrays.address(self.table),
            tiles: self.arrays.address(tiles),
            members: members.map_or(0, |members| self.arrays.address(members)),
            tiles_len: tiles.len as u32,
            query_heads: sizes.query_heads as u32,
            kv_heads: sizes.layout.kv_heads as u32,
            query_stride: (sizes.query_heads * sizes.layout.head_dim) as u32,
            scale_log2: sizes.scale_log2,
            lse_scale: std::f32::consts::LN_2,
        };
        let sharing = if members.is_some() { Sharing::Prefix } else { Sharing::Alone };
        self.device.launch((sizes.variant, sharing), (tiles.len, 1), &arguments)
    }

    /// Queues the merging of partial rows.
    pub(super) fn merge(&self, ends: &Ends) -> Result<(), GpuError> {
        let parts = self.parts;
        let arguments = MergeArgs {
            out: ends.out.address,
            lse: ends.lse_address(),
            part_out: parts.out.address(),
            part_sums: parts.sums.address(),
            items: self.arrays.address(parts.items),
            list: self.arrays.address(parts.list),
            items_len: parts.items.len as u32,
            lse_scale: std::f32::consts::LN_2,
        };
        self.device.launch(self.sizes.variant, (parts.items.len, parts.most_rows), &arguments)
    }
}

impl Ends {
    fn lse_address(&self) -> u64 {
        self.lse.map_or(0, |lse| lse.address)
    }
}
