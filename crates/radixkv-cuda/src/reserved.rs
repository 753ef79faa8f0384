//! Decode batches with fixed room. They are replaced in place by one copy, so that launches that
//! were captured once serve every later step.

use super::abi::{DIRECT, DecodeItem, IDLE, MergeItem, SKIP};
use super::attention::Attention;
use super::capacity::Capacity;
use super::error::GpuError;
use super::kernel::{Kernel, WIDE_HEADS};
use super::kv;
use super::plan::PlanParams;
use super::plan::decode::{self, DecodePlan};
use super::prepared::{Prepared, Step};
use super::scoring::DeviceScoring;
use super::upload::{ArraySpan, Arrays, Upload};
use super::work::{Parts, Sizes, check_contexts, fingerprint};
use radixkv_attention::{Batch, Layout, MAX_LATENT_HEADS, ShapeError};

impl Attention {
    /// The number of items of a [`Capacity`] with which contexts are cut as
    /// [`prepare`](radixkv_attention::Backend::prepare) cuts them, for nearly any batch of up to
    /// `sequences` sequences.
    ///
    /// Over latent vectors it counts a group for each 32 of at most 128 query heads. Groups are
    /// equal, so a number of heads with few divisors, such as 37, has more of them:
    /// [`reserve`](Self::reserve) then refuses the number and says how many it needs.
    ///
    /// ```no_run
    /// # use radixkv_cuda::*;
    /// # fn show(attention: &Attention, kv: &Kv) -> Result<(), GpuError> {
    /// let capacity = Capacity { sequences: 64, blocks: 64 * 512, items: attention.items(kv.layout(), 64)? };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`GpuError::Shape`] or [`GpuError::Layout`] if there are no kernels for the layout;
    /// [`GpuError::TooMuch`] if the number is too large for a `usize`.
    pub fn items(&self, layout: &Layout, sequences: usize) -> Result<usize, GpuError> {
        let kernel = Kernel::Decode(kv::check(layout)?);
        let slots = self.device().slots(kernel);
        let groups = if layout.has_values() { layout.kv_heads } else { MAX_LATENT_HEADS / WIDE_HEADS };
        let heads = sequences.checked_mul(groups).and_then(|heads| heads.checked_next_multiple_of(slots));
        heads.and_then(|items| items.checked_add(slots)).ok_or(GpuError::TooMuch { kernel })
    }

    /// Plans a decode batch and copies the plan to the device, with room for later batches: see
    /// [`Prepared::update`].
    ///
    /// # Errors
    ///
    /// As [`prepare`](radixkv_attention::Backend::prepare) and [`Prepared::update`]; and
    /// [`GpuError::OutOfMemory`] if there is too little memory for all the room.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use radixkv_attention::*;
    /// # use radixkv_cuda::*;
    /// # fn show<'a>(device: &Device, attention: &Attention, kv: &Kv, steps: impl Iterator<Item = Batch<'a>>, first: &Batch<'_>,
    /// #     [queries, keys, values]: [&Buffer<u16>; 3], out: &mut Buffer<u16>) -> Result<(), GpuError> {
    /// let capacity = Capacity { sequences: 64, blocks: 64 * 512, items: attention.items(kv.layout(), 64)? };
    /// let mut batch = attention.reserve(kv.layout(), first, capacity)?;
    /// let step = device.capture(|| {
    ///     (0..kv.layout().layers).try_for_each(|layer| {
    ///         attention.append(kv, layer, &batch, keys.view(), values.view())?;
    ///         attention.decode(kv, layer, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })
    ///     })
    /// })?;
    /// for next in steps {
    ///     batch.update(&next)?; // one copy
    ///     // SAFETY: storage, batch and buffers stay where they are until the wait.
    ///     unsafe { step.launch() }?;
    /// }
    /// device.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(&self, layout: &Layout, batch: &Batch<'_>, capacity: Capacity) -> Result<Prepared, GpuError> {
        let variant = kv::check(layout)?;
        batch.check(layout)?;
        batch.check_decode()?;
        let sizes = Sizes::of(layout, variant, batch)?;
        let sizes = Sizes { rows: capacity.sequences, ..sizes };
        // Numbers of rows, of partial rows and of table entries are `u32` in the kernels.
        let Capacity { sequences, blocks, items } = capacity;
        let [rows, partial_rows] = [sequences, items].map(|count| count.saturating_mul(batch.query_heads));
        if [rows, partial_rows, blocks].iter().any(|count| u32::try_from(*count).is_err()) {
            return Err(GpuError::TooMuch { kernel: Kernel::Decode(variant) });
        }
        let needed = capacity.sequences * sizes.head_groups();
        if capacity.items < needed {
            return Err(GpuError::Capacity { what: "heads of sequences", given: needed, room: capacity.items });
        }
        let mut prepared = Prepared {
            device: self.device().clone(),
            sizes,
            arrays: Arrays::of_room(self.device(), capacity.words(sizes.head_groups()))?,
            table: ArraySpan::default(),
            slots: ArraySpan::default(),
            save_kv: true,
            decodes: Ok(()),
            parts: Parts::of_room(self.device(), &sizes, capacity.items)?,
            scoring: DeviceScoring::new(self.device(), &batch.scoring, batch.query_heads)?,
            step: Step::Decode { items: ArraySpan::default() },
            fingerprint: 0,
            capacity: Some(capacity),
        };
        prepared.update(batch)?;
        Ok(prepared)
    }
}

impl Prepared {
    /// Replaces the batch by another one, in the order of the device's stream: launches that were
    /// queued before still see the old batch, and launches of a graph that was captured with it see
    /// the new one. It costs one copy, and allocates no device memory.
    ///
    /// # Errors
    ///
    /// [`GpuError::NotReserved`] if `self` is not from [`Attention::reserve`];
    /// [`GpuError::Capacity`] if the batch is larger than the reserved room; [`GpuError::Shape`] if
    /// it does not fit the layout, is not a decode batch, or has another number of query heads;
    /// [`GpuError::OtherScale`] or [`GpuError::OtherScoring`]; or if the driver fails.
    ///
    /// ```no_run
    /// # use radixkv_attention::*;
    /// # use radixkv_cuda::*;
    /// # fn show(step: &Graph, batch: &mut Prepared, next: &Batch<'_>) -> Result<(), GpuError> {
    /// batch.update(next)?;
    /// // SAFETY: what the graph uses stays until its work is done.
    /// unsafe { step.launch() }?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&mut self, batch: &Batch<'_>) -> Result<(), GpuError> {
        let capacity = self.capacity.ok_or(GpuError::NotReserved)?;
        let sizes = self.sizes;
        batch.check(&sizes.layout)?;
        batch.check_decode()?;
        if batch.query_heads != sizes.query_heads {
            let (what, given, needed) = ("query heads", batch.query_heads, sizes.query_heads);
            return Err(ShapeError::Length { what, given, needed }.into());
        }
        if !self.scoring.is(&batch.scoring) {
            return Err(GpuError::OtherScoring);
        }
        if batch.scale.to_bits() != sizes.scale.to_bits() {
            return Err(GpuError::OtherScale { given: batch.scale, reserved: sizes.scale });
        }
        capacity.check(batch)?;
        check_contexts(batch)?;
        let params = PlanParams { window: batch.scoring.window, ..sizes.decode_params(&self.device) };
        let mut plan = decode::plan_within(&params, batch.contexts, batch.tables.offsets, capacity.items);
        fill(&mut plan, capacity, sizes.head_groups());
        let mut slots = batch.slots.to_vec();
        slots.resize(capacity.sequences, SKIP);

        // The table is last, so that only the part of it that the batch uses is copied.
        let mut upload = Upload::default();
        self.slots = upload.push(&slots);
        self.step = Step::Decode { items: upload.push(&plan.items) };
        self.parts.items = upload.push(&plan.merges.items);
        self.parts.list = upload.push(&plan.merges.list);
        self.table = upload.push(batch.tables.blocks);
        upload.replace(&mut self.arrays)?;
        self.fingerprint = fingerprint(batch);
        Ok(())
    }
}

/// Pads a plan to its room with items that do nothing, so that every step has its arrays at the
/// same addresses and launches the same grids.
fn fill(plan: &mut DecodePlan, capacity: Capacity, head_groups: usize) {
    debug_assert!(plan.items.len() <= capacity.items && plan.merges.list.len() <= capacity.items);
    plan.items.resize(capacity.items, DecodeItem { kv_head: IDLE, part: DIRECT, ..DecodeItem::default() });
    plan.merges.items.resize(capacity.sequences * head_groups, MergeItem::default());
    plan.merges.list.resize(capacity.items, 0);
}
