//! Implements [`Backend`] for the CPU backends, [`Cpu`] and [`Processor`].

use super::call::AttentionCall;
use super::error::CpuError;
use super::number::Number;
use super::prepared::{CpuCascade, Plan, Prepared};
use super::processor::Processor;
use super::read::RowSource;
use super::storage::CpuKv;
use super::{Cpu, RANGE_TOKENS};
use crate::backend::{Backend, Output, Qkv};
use crate::batch::Batch;
use crate::layout::Layout;
use crate::plan::{Rule, Sharing};
use crate::shape::ShapeError;
use radixkv::BlockId;

mod sealed {
    use super::{Number, Processor};

    /// A CPU backend: its processor, and the element type of its rows.
    pub trait Computes {
        type Number: Number;
        fn processor(&self) -> &Processor<Self::Number>;
    }
}

use sealed::Computes;

impl Computes for Cpu {
    type Number = f32;

    fn processor(&self) -> &Processor {
        &Processor::CALLER
    }
}

impl<E: Number> Computes for Processor<E> {
    type Number = E;

    fn processor(&self) -> &Self {
        self
    }
}

impl<E: Number> Processor<E> {
    fn attend(
        &self,
        source: RowSource<'_, E>,
        batch: &Prepared,
        plan: &Plan,
        queries: &[E],
        out: Output<&mut [E], &mut [f32]>,
    ) {
        let (level, threads) = (self.level(), &self.threads);
        AttentionCall { level, threads, source, batch: batch.batch(), queries }.run(plan, out);
    }
}

impl<C: Computes> Backend for C {
    type Kv = CpuKv;
    type Prepared = Prepared;
    type Cascade = CpuCascade;
    type Rows<'a> = &'a [C::Number];
    type RowsMut<'a> = &'a mut [C::Number];
    type LseMut<'a> = &'a mut [f32];
    type Error = CpuError;

    fn allocate(&self, layout: Layout) -> Result<CpuKv, CpuError> {
        CpuKv::new(layout)
    }

    fn prepare(&self, layout: &Layout, batch: &Batch<'_>) -> Result<Prepared, CpuError> {
        Ok(Prepared::new(layout, batch)?)
    }

    fn append(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        keys: &[C::Number],
        values: &[C::Number],
    ) -> Result<(), CpuError> {
        if !batch.save_kv {
            return Err(ShapeError::NotKept.into());
        }
        batch.check_new(kv, layer, keys, values)?;
        for (half, rows) in batch.layout.halves().iter().zip([keys, values]) {
            let row = batch.layout.appended_elements(*half);
            batch.slots.iter().zip(rows.chunks_exact(row)).for_each(|(slot, row)| kv.write(layer, *half, *slot, row));
        }
        Ok(())
    }

    fn decode(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        queries: &[C::Number],
        out: Output<&mut [C::Number], &mut [f32]>,
    ) -> Result<(), CpuError> {
        batch.batch().check_decode()?;
        batch.check_attention(kv, layer, queries, &out)?;
        self.processor().attend(RowSource { kv, layer, new: None }, batch, &batch.alone, queries, out);
        Ok(())
    }

    fn extend(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        new: Qkv<&[C::Number]>,
        out: Output<&mut [C::Number], &mut [f32]>,
    ) -> Result<(), CpuError> {
        batch.check_attention(kv, layer, new.queries, &out)?;
        batch.check_new(kv, layer, new.keys, new.values)?;
        if batch.save_kv {
            self.append(kv, layer, batch, new.keys, new.values)?;
        }
        let unkept = (!batch.save_kv).then_some([new.keys, new.values]);
        self.processor().attend(RowSource { kv, layer, new: unkept }, batch, &batch.alone, new.queries, out);
        Ok(())
    }

    /// A prefix is shared in whole ranges, and a group has no additional cost.
    fn rule(&self, _layout: &Layout) -> Rule {
        Rule { grain_tokens: RANGE_TOKENS, group_cost_tokens: 0 }
    }

    fn prepare_cascade(&self, layout: &Layout, batch: &Batch<'_>, sharing: &Sharing) -> Result<CpuCascade, CpuError> {
        Ok(CpuCascade::new(layout, batch, sharing)?)
    }

    fn cascade(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        cascade: &CpuCascade,
        queries: &[C::Number],
        out: Output<&mut [C::Number], &mut [f32]>,
    ) -> Result<(), CpuError> {
        cascade.check(batch)?;
        batch.batch().check_decode()?;
        batch.check_attention(kv, layer, queries, &out)?;
        self.processor().attend(RowSource { kv, layer, new: None }, batch, &cascade.plan, queries, out);
        Ok(())
    }

    fn copy_blocks(&self, kv: &CpuKv, pairs: &[(BlockId, BlockId)]) -> Result<(), CpuError> {
        Ok(kv.copy(pairs)?)
    }
}
