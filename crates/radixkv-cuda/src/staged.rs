//! Attention on a device for an engine that computes everything else on the CPU.

use super::attention::Attention;
use super::buffer::{Buffer, ViewMut};
use super::device::Device;
use super::error::GpuError;
use super::kv::Kv;
use super::prepared::{Cascade, Prepared};
use radixkv::BlockId;
use radixkv_attention::element;
use radixkv_attention::plan::{Rule, Sharing};
use radixkv_attention::{Backend, Batch, Dtype, Layout, Output, Qkv};

/// [`Attention`] over rows in host memory: rounds them, copies them to the device, and copies the
/// outputs back.
///
/// The storage is in device memory. Each operation waits for its results, so this is for trying a
/// device and for comparing backends. An engine whose matrix products also run on the device passes
/// its buffers to [`Attention`].
///
/// # Examples
///
/// ```no_run
/// use radixkv_attention::{Backend, Dtype, Layout, Order};
/// use radixkv_cuda::{Device, Staged};
///
/// fn bytes<B: for<'a> Backend<Rows<'a> = &'a [f32]>>(backend: &B, layout: Layout) -> Result<usize, B::Error> {
///     let _kv = backend.allocate(layout)?; // rows are slices of `f32`, as those of the CPU backend are
///     Ok(layout.bytes())
/// }
/// let layout =
///     Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype: Dtype::Bf16, order: Order::Nhd };
/// bytes(&Staged::new(&Device::open(0)?), layout)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Staged {
    inner: Attention,
}

impl Staged {
    /// Creates attention on `device`.
    ///
    /// ```no_run
    /// let staged = radixkv_cuda::Staged::new(&radixkv_cuda::Device::open(0)?);
    /// # Ok::<_, radixkv_cuda::OpenError>(())
    /// ```
    pub fn new(device: &Device) -> Self {
        Self { inner: Attention::new(device) }
    }

    fn upload(&self, dtype: Dtype, rows: &[f32]) -> Result<Buffer<u16>, GpuError> {
        let elements: Vec<u16> = rows.iter().map(|value| element::to_bits(dtype, *value) as u16).collect();
        self.inner.device().upload(&elements)
    }

    /// Runs an operation with buffers of the device, and copies them to `out`.
    fn fetch(
        &self,
        dtype: Dtype,
        out: Output<&mut [f32], &mut [f32]>,
        run: impl FnOnce(Output<ViewMut<'_, u16>, ViewMut<'_, f32>>) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let device = self.inner.device();
        let mut rows = device.unset::<u16>(out.rows.len())?;
        let mut lse = out.lse.as_ref().map(|lse| device.unset::<f32>(lse.len())).transpose()?;
        run(Output { rows: rows.view_mut(), lse: lse.as_mut().map(Buffer::view_mut) })?;
        for (value, bits) in out.rows.iter_mut().zip(rows.to_vec()?) {
            *value = element::from_bits(dtype, u32::from(bits));
        }
        if let (Some(to), Some(from)) = (out.lse, lse) {
            to.copy_from_slice(&from.to_vec()?);
        }
        Ok(())
    }
}

/// The type of rows for stored elements of this type.
fn rows_of(stored: Dtype) -> Dtype {
    if stored.has_scales() { Dtype::Bf16 } else { stored }
}

impl Backend for Staged {
    type Kv = Kv;
    type Prepared = Prepared;
    type Cascade = Cascade;
    type Rows<'a> = &'a [f32];
    type RowsMut<'a> = &'a mut [f32];
    type LseMut<'a> = &'a mut [f32];
    type Error = GpuError;

    fn allocate(&self, layout: Layout) -> Result<Kv, GpuError> {
        self.inner.allocate(layout)
    }

    fn prepare(&self, layout: &Layout, batch: &Batch<'_>) -> Result<Prepared, GpuError> {
        self.inner.prepare(layout, batch)
    }

    fn append(&self, kv: &Kv, layer: usize, batch: &Prepared, keys: &[f32], values: &[f32]) -> Result<(), GpuError> {
        let dtype = rows_of(kv.layout().dtype);
        let (keys, values) = (self.upload(dtype, keys)?, self.upload(dtype, values)?);
        self.inner.append(kv, layer, batch, keys.view(), values.view())
    }

    fn decode(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        queries: &[f32],
        out: Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), GpuError> {
        let dtype = rows_of(kv.layout().dtype);
        let queries = self.upload(dtype, queries)?;
        self.fetch(dtype, out, |out| self.inner.decode(kv, layer, batch, queries.view(), out))
    }

    fn extend(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        new: Qkv<&[f32]>,
        out: Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), GpuError> {
        let dtype = rows_of(kv.layout().dtype);
        let upload = |rows| self.upload(dtype, rows);
        let (queries, keys, values) = (upload(new.queries)?, upload(new.keys)?, upload(new.values)?);
        let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
        self.fetch(dtype, out, |out| self.inner.extend(kv, layer, batch, new, out))
    }

    fn rule(&self, layout: &Layout) -> Rule {
        self.inner.rule(layout)
    }

    fn prepare_cascade(&self, layout: &Layout, batch: &Batch<'_>, sharing: &Sharing) -> Result<Cascade, GpuError> {
        self.inner.prepare_cascade(layout, batch, sharing)
    }

    fn cascade(
        &self,
        kv: &Kv,
        layer: usize,
        batch: &Prepared,
        cascade: &Cascade,
        queries: &[f32],
        out: Output<&mut [f32], &mut [f32]>,
    ) -> Result<(), GpuError> {
        let dtype = rows_of(kv.layout().dtype);
        let queries = self.upload(dtype, queries)?;
        self.fetch(dtype, out, |out| self.inner.cascade(kv, layer, batch, cascade, queries.view(), out))
    }

    fn copy_blocks(&self, kv: &Kv, pairs: &[(BlockId, BlockId)]) -> Result<(), GpuError> {
        self.inner.copy_blocks(kv, pairs)
    }
}
