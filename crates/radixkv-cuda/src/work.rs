//! The arguments of a batch's kernels, and the launches of decode, tiles and merging.

use super::abi::{DecodeArgs, LayerKv, MergeArgs, ScoringArgs, TileArgs};
use super::buffer::{Buffer, RawView};
use super::device::Device;
use super::error::GpuError;
use super::kernel::{Kernel, MOST_CONTEXT, SOFT_CAPS, Variant, WIDE_HEADS};
use super::launch::TileRows;
use super::plan::{Merges, PlanParams};
use super::upload::{ArraySpan, Arrays, Upload};
use radixkv_attention::{Batch, Half, Layout, ShapeError};

/// The sizes of a batch that its operations need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) layout: Layout,
    pub(super) variant: Variant,
    pub(super) query_heads: usize,
    /// Rows of all sequences.
    pub(super) rows: usize,
    pub(super) scale: f32,
    pub(super) scale_log2: f32,
    /// Whether extend uses warpgroup matrix products (`wgmma`).
    pub(super) wgmma: bool,
}

/// The buffers of an attention kernel: queries, outputs, log-sum-exps.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionIo {
    pub(super) queries: RawView,
    pub(super) out: RawView,
    pub(super) lse: Option<RawView>,
}

/// Room for partial rows, and the list of how they are merged.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) items: ArraySpan,
    pub(super) list: ArraySpan,
    most_rows: usize,
    out: Buffer<f32>,
    sums: Buffer<f32>,
}

impl Device {
    /// Thread blocks of a kernel that the device runs concurrently.
    pub(super) fn slots(&self, kernel: Kernel) -> usize {
        // A device with less shared memory than the kernels are shaped for runs fewer blocks
        // concurrently.
        let shared = |bytes: u32| bytes as usize + 1024;
        let (shape, properties) = (kernel.shape(), self.properties());
        let fit = shared(properties.shared_bytes) / shared(shape.shared_bytes);
        properties.multiprocessors as usize * (shape.blocks_at_once as usize).min(fit.max(1))
    }
}

impl Sizes {
    pub(super) fn of(layout: &Layout, variant: Variant, batch: &Batch<'_>) -> Result<Self, GpuError> {
        // Numbers of rows are `u32` in the kernels, as are those of partial rows.
        let (rows, query_heads) = (batch.total_rows(), batch.query_heads);
        if u32::try_from(rows * query_heads).is_err() {
            return Err(GpuError::TooMuch { kernel: Kernel::Decode(variant) });
        }
        if batch.scale <= 0.0 {
            return Err(GpuError::Scale { scale: batch.scale });
        }
        if let Some(soft_cap) = batch.scoring.soft_cap.filter(|soft_cap| !SOFT_CAPS.contains(soft_cap)) {
            return Err(GpuError::SoftCap { soft_cap });
        }
        check_contexts(batch)?;
        let scale_log2 = batch.scale * std::f32::consts::LOG2_E;
        let (layout, scale, wgmma) = (*layout, batch.scale, false);
        Ok(Self { layout, variant, query_heads, rows, scale, scale_log2, wgmma })
    }

    /// The kernel that decodes.
    pub(super) fn decode_kernel(&self) -> Kernel {
        self.variant.decode(self.query_heads, self.layout.kv_heads)
    }

    /// Number of groups of query heads, each decoded by its own thread blocks: one for each KV
    /// head, or for each pair of them; over latent vectors the fewest that divide the query heads
    /// evenly, with at most [`WIDE_HEADS`] in a group.
    pub(super) fn head_groups(&self) -> usize {
        if let Kernel::DecodePair(_) = self.decode_kernel() {
            return self.layout.kv_heads / 2;
        }
        if self.layout.has_values() {
            return self.layout.kv_heads;
        }
        let fits = |groups: &usize| self.query_heads.is_multiple_of(*groups) && self.query_heads / groups <= WIDE_HEADS;
        (1..=self.query_heads).find(fits).unwrap_or(self.query_heads)
    }

    /// The parameters of plans of decode.
    pub(super) fn decode_params(&self, device: &Device) -> PlanParams {
        PlanParams { kv_heads: self.head_groups(), ..self.params(device) }
    }

    /// The parameters of this batch's other plans.
    pub(super) fn params(&self, device: &Device) -> PlanParams {
        let tiles = match self.variant.is_latent() {
            true => Kernel::Decode, // there are no tiles over latent vectors
            false if self.wgmma => Kernel::ExtendWgmma,
            false => Kernel::Extend,
        };
        PlanParams {
            query_heads: self.query_heads,
            kv_heads: self.layout.kv_heads,
            decode_slots: device.slots(self.decode_kernel()),
            tile_slots: device.slots(tiles(self.variant)),
            tile_rows: self.variant.tile_rows(),
            window: None,
        }
    }

    /// Elements of all rows of keys, or of values.
    pub(super) fn kv_elements(&self, half: Half) -> usize {
        self.rows * self.layout.appended_elements(half)
    }

    pub(super) fn check_layout(&self, layout: &Layout) -> Result<(), GpuError> {
        if self.layout == *layout { Ok(()) } else { Err(GpuError::OtherLayout) }
    }

    /// Checks the lengths of queries, outputs and sums.
    pub(super) fn check_io(&self, io: &AttentionIo) -> Result<(), ShapeError> {
        let (heads, Layout { head_dim, value_dim, .. }) = (self.rows * self.query_heads, self.layout);
        super::kv::check_len("queries", io.queries.len, heads * head_dim)?;
        super::kv::check_len("outputs", io.out.len, heads * value_dim)?;
        match io.lse {
            Some(lse) => super::kv::check_len("log-sum-exps", lse.len, self.rows * self.query_heads),
            None => Ok(()),
        }
    }
}

/// A number that batches have in common if they have the same tables and contexts, and hardly any
/// others.
pub(super) fn fingerprint(batch: &Batch<'_>) -> u64 {
    let arrays = [batch.tables.blocks, batch.tables.offsets, batch.contexts];
    // Lengths too, so that no number passes from one array to the next.
    let words = arrays
        .into_iter()
        .flat_map(|array| [array.len() as u64].into_iter().chain(array.iter().map(|word| u64::from(*word))));
    words.fold(0, |hash: u64, word| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Checks that the kernels can compare the positions of each sequence.
pub(super) fn check_contexts(batch: &Batch<'_>) -> Result<(), GpuError> {
    match batch.contexts.iter().position(|context| *context > MOST_CONTEXT) {
        Some(sequence) => Err(GpuError::Context { sequence, context: batch.contexts[sequence] }),
        None => Ok(()),
    }
}

impl Parts {
    /// Allocates room for the partial rows, and adds the list of how they are merged to the upload.
    pub(super) fn new(device: &Device, sizes: &Sizes, merges: &Merges, upload: &mut Upload) -> Result<Self, GpuError> {
        if u32::try_from(merges.part_rows).is_err() {
            return Err(GpuError::TooMuch { kernel: Kernel::Merge(sizes.variant) });
        }
        Ok(Self {
            items: upload.push(&merges.items),
            list: upload.push(&merges.list),
            most_rows: merges.most_rows(),
            out: device.unset(merges.part_rows * sizes.layout.value_dim)?,
            sums: device.unset(merges.part_rows * 2)?,
        })
    }
}

impl Parts {
    /// Allocates room for the parts of `items` decode items.
    pub(super) fn of_room(device: &Device, sizes: &Sizes, items: usize) -> Result<Self, GpuError> {
        let group = sizes.query_heads / sizes.head_groups();
        let rows = items * group;
        if u32::try_from(rows).is_err() {
            return Err(GpuError::TooMuch { kernel: Kernel::Merge(sizes.variant) });
        }
        let (none, out, sums) =
            (ArraySpan::default(), device.unset(rows * sizes.layout.value_dim)?, device.unset(rows * 2)?);
        Ok(Self { items: none, list: none, most_rows: group, out, sums })
    }
}

/// The arguments that all kernels of one attention share, besides the layer and its
/// [`AttentionIo`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) device: &'a Device,
    pub(super) sizes: &'a Sizes,
    pub(super) arrays: &'a Arrays,
    pub(super) table: ArraySpan,
    pub(super) parts: &'a Parts,
    pub(super) scoring: ScoringArgs,
}

/// The sequences whose rows tiles have.
#[derive(Debug, Clone, Copy)]
pub(super) enum TileOwners {
    /// Chunks of sequences; `trees` has a mask for each row, or is empty.
    Chunk { trees: ArraySpan },
    /// Sequences that share a prefix, and the number of tokens of each.
    Sharers { members: ArraySpan, contexts: ArraySpan },
}

impl Work<'_> {
    /// Queues `decode`.
    pub(super) fn decode(&self, layer_kv: LayerKv, io: &AttentionIo, items: ArraySpan) -> Result<(), GpuError> {
        let sizes = self.sizes;
        let arguments = DecodeArgs {
            kv: layer_kv,
            scoring: self.scoring,
            queries: io.queries.address,
            out: io.out.address,
            lse: io.lse_address(),
            part_out: self.parts.out.address(),
            part_sums: self.parts.sums.address(),
            table: self.arrays.address(self.table),
            items: self.arrays.address(items),
            items_len: items.len as u32,
            query_heads: sizes.query_heads as u32,
            kv_heads: sizes.head_groups() as u32,
            query_stride: (sizes.query_heads * sizes.layout.head_dim) as u32,
            scale_log2: sizes.scale_log2,
            lse_scale: std::f32::consts::LN_2,
        };
        self.device.launch(sizes.decode_kernel(), (items.len, 1), &arguments)
    }

    /// Queues `extend`, or `cascade` for sharers.
    pub(super) fn tiles(
        &self,
        layer_kv: LayerKv,
        io: &AttentionIo,
        tiles: ArraySpan,
        owners: TileOwners,
    ) -> Result<(), GpuError> {
        let sizes = self.sizes;
        let address = |span: ArraySpan| if span.len > 0 { self.arrays.address(span) } else { 0 };
        let (rows, [members, contexts, trees]) = match owners {
            TileOwners::Chunk { trees } => {
                // Both kernels take the tiles, but the one of warpgroups holds positions of pages
                // in 32 bits.
                (TileRows::Chunk { wgmma: sizes.wgmma && layer_kv.fits_units() }, [0, 0, address(trees)])
            }
            TileOwners::Sharers { members, contexts } => (TileRows::Sharers, [address(members), address(contexts), 0]),
        };
        let arguments = TileArgs {
            kv: layer_kv,
            scoring: self.scoring,
            queries: io.queries.address,
            out: io.out.address,
            lse: io.lse_address(),
            part_out: self.parts.out.address(),
            part_sums: self.parts.sums.address(),
            table: self.arrays.address(self.table),
            tiles: self.arrays.address(tiles),
            members,
            contexts,
            trees,
            tiles_len: tiles.len as u32,
            query_heads: sizes.query_heads as u32,
            kv_heads: sizes.layout.kv_heads as u32,
            query_stride: (sizes.query_heads * sizes.layout.head_dim) as u32,
            scale_log2: sizes.scale_log2,
            lse_scale: std::f32::consts::LN_2,
        };
        self.device.launch((sizes.variant, rows), (tiles.len, 1), &arguments)
    }

    /// Queues the merging of partial rows.
    pub(super) fn merge(&self, io: &AttentionIo) -> Result<(), GpuError> {
        let parts = self.parts;
        let arguments = MergeArgs {
            out: io.out.address,
            lse: io.lse_address(),
            part_out: parts.out.address(),
            part_sums: parts.sums.address(),
            items: self.arrays.address(parts.items),
            list: self.arrays.address(parts.list),
            sinks: self.scoring.sinks,
            items_len: parts.items.len as u32,
            query_heads: self.sizes.query_heads as u32,
            lse_scale: std::f32::consts::LN_2,
            pad: 0,
        };
        self.device.launch(self.sizes.variant, (parts.items.len, parts.most_rows), &arguments)
    }
}

impl AttentionIo {
    fn lse_address(&self) -> u64 {
        self.lse.map_or(0, |lse| lse.address)
    }
}
