//! Sequences that decode in one step read shared prefixes once: a backend counts.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use engine::serve::{Engine, Options};
use radixkv::{BlockId, Token};
use radixkv_attention::cpu::{Cpu, CpuCascade, CpuError, CpuKv, Prepared};
use radixkv_attention::plan::{Rule, Sharing};
use radixkv_attention::{Backend, Batch, Dtype, Layout, Output, Qkv};

use crate::naive::{bits, continuation};
use crate::{assert_at_rest, random, tiny};

/// The processor; it counts decoding calls, and the sequences that a cascade had in groups.
#[derive(Default)]
struct Counting {
    decodes: AtomicUsize,
    grouped: AtomicUsize,
}

type Out<'a> = Output<&'a mut [f32], &'a mut [f32]>;

impl Backend for &Counting {
    type Kv = CpuKv;
    type Prepared = Prepared;
    /// With the sequences that are in groups.
    type Cascade = (CpuCascade, usize);
    type Rows<'a> = &'a [f32];
    type RowsMut<'a> = &'a mut [f32];
    type LseMut<'a> = &'a mut [f32];
    type Error = CpuError;

    fn allocate(&self, layout: Layout) -> Result<CpuKv, CpuError> {
        Cpu.allocate(layout)
    }

    fn prepare(&self, layout: &Layout, batch: &Batch<'_>) -> Result<Prepared, CpuError> {
        Cpu.prepare(layout, batch)
    }

    fn append(&self, kv: &CpuKv, layer: usize, batch: &Prepared, k: &[f32], v: &[f32]) -> Result<(), CpuError> {
        Cpu.append(kv, layer, batch, k, v)
    }

    fn decode(&self, kv: &CpuKv, layer: usize, batch: &Prepared, q: &[f32], out: Out<'_>) -> Result<(), CpuError> {
        self.decodes.fetch_add(1, Relaxed);
        Cpu.decode(kv, layer, batch, q, out)
    }

    fn extend(&self, kv: &CpuKv, at: usize, batch: &Prepared, new: Qkv<&[f32]>, out: Out<'_>) -> Result<(), CpuError> {
        Cpu.extend(kv, at, batch, new, out)
    }

    fn rule(&self, layout: &Layout) -> Rule {
        Cpu.rule(layout)
    }

    fn prepare_cascade(
        &self,
        layout: &Layout,
        batch: &Batch<'_>,
        sharing: &Sharing,
    ) -> Result<(CpuCascade, usize), CpuError> {
        let grouped = sharing.groups.iter().filter(|group| group.shared_tokens > 0).map(|group| group.sequences.len());
        Ok((Cpu.prepare_cascade(layout, batch, sharing)?, grouped.sum()))
    }

    fn cascade(
        &self,
        kv: &CpuKv,
        layer: usize,
        batch: &Prepared,
        (cascade, grouped): &(CpuCascade, usize),
        queries: &[f32],
        out: Out<'_>,
    ) -> Result<(), CpuError> {
        self.grouped.fetch_add(*grouped, Relaxed);
        Cpu.cascade(kv, layer, batch, cascade, queries, out)
    }

    fn copy_blocks(&self, kv: &CpuKv, pairs: &[(BlockId, BlockId)]) -> Result<(), CpuError> {
        Cpu.copy_blocks(kv, pairs)
    }
}

#[test]
fn what_is_shared_is_read_once_and_no_bit_changes() {
    let model = random(tiny(), 6);
    let prompts: Vec<Vec<Token>> =
        (0..6).map(|own| (0..150).map(|i| i * 7 % 64).chain([own, 9 * own]).collect()).collect();
    let expected: Vec<_> = prompts.iter().map(|prompt| continuation(&model, Dtype::F32, prompt, 8)).collect();
    for cascade in [true, false] {
        let counting = Counting::default();
        let engine = Engine::new(&model, &counting, Options { cascade, ..Options::default() }).expect("good options");
        let ids: Vec<_> =
            prompts.iter().map(|prompt| engine.submit(1, prompt.clone(), 8).expect("a good prompt")).collect();
        let finished = engine
            .serve(&|seen| {
                let which = ids.iter().position(|id| *id == seen.id).expect("one of ours");
                let at = seen.position - prompts[which].len();
                assert!(bits(seen.logits) == expected[which].logits[at], "cascade {cascade}: token {at} of {which}");
            })
            .expect("served");
        assert!(finished.iter().zip(&expected).all(|(finished, c)| finished.tokens[152..] == c.output));
        // Seven decoding steps of two layers with six sequences, all of which share 128 tokens: two
        // ranges of 64.
        let counted = (counting.decodes.load(Relaxed), counting.grouped.load(Relaxed));
        match cascade {
            true => assert!(counted.1 >= 2 * 6 * 5, "{counted:?}"),
            false => assert!(counted.0 >= 2 * 7 && counted.1 == 0, "{counted:?}"),
        }
        assert_at_rest(engine.cache(), "cascade");
    }
}
