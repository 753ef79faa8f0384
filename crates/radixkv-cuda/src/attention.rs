//! Attention on a device: implements [`Backend`] by launches of kernels.

use super::abi::LayerKv;
use super::buffer::{View, ViewMut};
use super::device::Device;
use super::error::GpuError;
use super::kernel::Kernel;
use super::kv::{self, Kv, check_len};
use super::prepared::{Cascade, Prepared};
use super::work::{AttentionIo, Sizes};
use radixkv::BlockId;
use radixkv_attention::plan::{Rule, Sharing};
use radixkv_attention::{Backend, Batch, Layout, Output, Qkv, ShapeError};

/// Microseconds of reading that sharing a prefix must save: a cascade has one more launch, and
/// writes and reads partial rows.
const WORTHWHILE_US: usize = 10;

/// Paged attention on one device, on its stream.
///
/// Rows are the bits of `f16` or `bf16` in a `u16` ([`element`](radixkv_attention::element)
/// converts them): of the stored type, or `bf16` if stored elements have 8 bits.
/// [`Variant`](super::Variant) lists the element types and the sizes of heads; blocks may have any
/// number of tokens. All of [`Scoring`](radixkv_attention::Scoring) is supported, with soft-caps of
/// at most 1,024 ([`GpuError::SoftCap`]); blocks outside a window are not read. Every operation
/// returns as soon as its work is queued; [`Device::synchronize`] waits for it, and so does reading
/// a buffer. Preparing a batch copies its plan to the device; the operations on a prepared batch
/// only launch kernels, so they can be captured into a graph.
///
/// Over latent vectors ([`Order::Latent`](radixkv_attention::Order::Latent)) `extend` computes each
/// row as `decode` does, which suits few rows: a prompt is faster with the keys and values of its
/// heads. Cascades, trees that branch and rows that are not kept are refused.
///
/// # Examples
///
/// ```no_run
/// use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Scoring, Tables};
/// use radixkv_cuda::{Attention, Device};
///
/// let device = Device::open(0)?;
/// let attention = Attention::new(&device);
/// let layout =
///     Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype: Dtype::Bf16, order: Order::Nhd };
/// let kv = attention.allocate(layout)?;
/// let batch = Batch {
///     query_heads: 8,
///     scale: 0.125,
///     scoring: Scoring::default(),
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
    wgmma: bool,
}

impl Attention {
    /// Creates attention on `device`.
    ///
    /// ```no_run
    /// let attention = radixkv_cuda::Attention::new(&radixkv_cuda::Device::open(0)?);
    /// println!("on {}", attention.device());
    /// # Ok::<_, radixkv_cuda::OpenError>(())
    /// ```
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), wgmma: true }
    }

    /// Sets whether `extend` uses the warpgroup matrix products (`wgmma`) of compute capability
    /// 9.0, where these are available: for `bf16` and `f16` with heads of 128 elements in blocks of
    /// a multiple of 16 tokens. The default is yes; results without them differ by rounding, so
    /// this is for comparing. Batches that are already prepared do not change.
    ///
    /// ```no_run
    /// # let device = radixkv_cuda::Device::open(0)?;
    /// let attention = radixkv_cuda::Attention::new(&device).with_wgmma(false);
    /// # Ok::<_, radixkv_cuda::OpenError>(())
    /// ```
    #[must_use]
    pub fn with_wgmma(self, wgmma: bool) -> Self {
        Self { wgmma, ..self }
    }

    /// The device that it computes on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn check_device(&self, device: &Device) -> Result<(), GpuError> {
        if self.device.identity() == device.identity() { Ok(()) } else { Err(GpuError::WrongDevice) }
    }

    /// The buffers of an operation, if they belong to this device and have the required lengths.
    fn io(
        &self,
        sizes: &Sizes,
        queries: View<'_, u16>,
        out: Output<ViewMut<'_, u16>, ViewMut<'_, f32>>,
    ) -> Result<AttentionIo, GpuError> {
        let io = AttentionIo {
            queries: self.device.resolve(queries.raw())?,
            out: self.device.resolve(out.rows.raw())?,
            lse: out.lse.map(|lse| self.device.resolve(lse.raw())).transpose()?,
        };
        sizes.check_io(&io)?;
        Ok(io)
    }

    /// The layer of `kv`, if storage and batch belong together and to this device.
    fn layer_kv(&self, kv: &Kv, layer: usize, device: &Device, sizes: &Sizes) -> Result<LayerKv, GpuError> {
        self.check_device(kv.device())?;
        self.check_device(device)?;
        sizes.check_layout(kv.layout())?;
        kv.layer_kv(layer)
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
        let is_loaded = || self.device.kernels().has(Kernel::ExtendWgmma(variant));
        let wgmma = self.wgmma && variant.has_wgmma(layout.block_size) && is_loaded();
        Prepared::new(&self.device, Sizes { wgmma, ..Sizes::of(layout, variant, batch)? }, batch)
    }

    fn append(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        keys: View<'_, u16>,
        values: View<'_, u16>,
    ) -> Result<(), GpuError> {
        let layer_kv = self.layer_kv(kv, layer, &batch.device, &batch.sizes)?;
        let (keys, values) = batch.rows(keys, values)?;
        if !batch.save_kv {
            return Err(ShapeError::NotKept.into());
        }
        batch.write(layer_kv, keys, values)
    }

    fn decode(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        queries: View<'_, u16>,
        out: Output<ViewMut<'_, u16>, ViewMut<'_, f32>>,
    ) -> Result<(), GpuError> {
        let layer_kv = self.layer_kv(kv, layer, &batch.device, &batch.sizes)?;
        let io = self.io(&batch.sizes, queries, out)?;
        batch.decodes?;
        let _together = self.device.queue_together();
        batch.attend(layer_kv, layer, &io)
    }

    fn extend(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        new: Qkv<View<'_, u16>>,
        out: Output<ViewMut<'_, u16>, ViewMut<'_, f32>>,
    ) -> Result<(), GpuError> {
        let layer_kv = self.layer_kv(kv, layer, &batch.device, &batch.sizes)?;
        let io = self.io(&batch.sizes, new.queries, out)?;
        let (keys, values) = batch.rows(new.keys, new.values)?;
        let _together = self.device.queue_together();
        batch.write(batch.kept_in(layer_kv), keys, values)?;
        batch.attend(layer_kv, layer, &io)
    }

    fn rule(&self, layout: &Layout) -> Rule {
        let elements: usize = layout.halves().iter().map(|half| layout.of(*half).row_elements()).sum();
        let bytes_per_token = elements * layout.dtype.bytes();
        let bytes_per_us = self.device.properties().bytes_per_us;
        let group_cost_tokens = (WORTHWHILE_US * bytes_per_us).div_ceil(bytes_per_token.max(1));
        Rule { grain_tokens: layout.block_size, group_cost_tokens }
    }

    fn prepare_cascade(&self, layout: &Layout, batch: &Batch<'_>, sharing: &Sharing) -> Result<Cascade, GpuError> {
        let variant = kv::check(layout)?;
        batch.check(layout)?;
        batch.check_decode()?;
        if variant.is_latent() {
            return Err(GpuError::Latent { what: "shared prefixes", instead: "decode" });
        }
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
        let layer_kv = self.layer_kv(kv, layer, &cascade.device, &cascade.sizes)?;
        self.layer_kv(kv, layer, &batch.device, &batch.sizes)?;
        check_len("the cascade's rows", cascade.sizes.rows, batch.sizes.rows)?;
        if cascade.fingerprint != batch.fingerprint {
            return Err(ShapeError::Foreign.into());
        }
        let io = self.io(&cascade.sizes, queries, out)?;
        let work = cascade.work(layer);
        let _together = self.device.queue_together();
        work.tiles(layer_kv, &io, cascade.tiles, cascade.owners())?;
        work.merge(&io)
    }

    fn copy_blocks(&self, kv: &Kv, pairs: &[(BlockId, BlockId)]) -> Result<(), GpuError> {
        self.check_device(kv.device())?;
        self.launch_copies(kv, &self.prepare_copies(kv.layout(), pairs)?)
    }
}
