//! Whole steps of the engine beside the products of them alone, by the crate `gemm`: a seeded model
//! of 100 M parameters on one thread, with all that stands between the products.
//!
//! `cargo bench -p radixkv-engine --bench step [-- NAME...]`. Both are measured in turn, round by
//! round, in the time that their thread computes.

#[allow(dead_code)] // Here no row is one of several threads.
#[path = "../../../crates/radixkv-attention/benches/attention/clock.rs"]
mod clock;
#[path = "../../../crates/radixkv-attention/benches/attention/gemm.rs"]
mod gemm;
#[path = "../../../crates/radixkv-attention/benches/attention/products.rs"]
mod products;
#[allow(dead_code)]
#[path = "../../../crates/radixkv-attention/benches/attention/row.rs"]
mod row;

use engine::config::{Architecture, Config, Rope};
use engine::model::{Model, RandomWeights};
use products::{HEAD_DIM, HIDDEN, INNER, KV_HEADS, LAYERS, QUERY_HEADS, StepProducts, VOCABULARY};
use radixkv::Token;
use radixkv_attention::cpu::{Cpu, CpuKv};
use radixkv_attention::{Backend, Dtype, Layout};
use radixkv_scheduler::{Batch, SequenceId};
use row::Row;

const BLOCK_SIZE: usize = 16;

/// The last `rows` tokens of one sequence.
struct Step<'a> {
    model: &'a Model,
    layout: Layout,
    kv: CpuKv,
    batch: Batch,
}

impl<'a> Step<'a> {
    fn new(model: &'a Model, tokens: usize, rows: usize) -> Self {
        let layout = model.layout(BLOCK_SIZE, tokens / BLOCK_SIZE, Dtype::F32);
        let table: Vec<u32> = (0..layout.blocks as u32).rev().collect();
        let ids: Vec<Token> = (0..rows as Token).collect();
        let mut batch = Batch::new(BLOCK_SIZE);
        batch.push(SequenceId::from(0), 0, tokens - rows, &ids, &table, true);
        Self { model, layout, kv: Cpu.allocate(layout).expect("memory"), batch }
    }

    fn run(&self) {
        let logits = self.model.forward(&Cpu, &self.kv, &self.layout, &self.batch, false).expect("a good batch");
        std::hint::black_box(logits);
    }
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|name| name != "--bench").collect();
    let Ok(model) = Model::load(
        Config {
            architecture: Architecture::Llama,
            vocab_size: VOCABULARY[1],
            hidden_size: HIDDEN,
            intermediate_size: INNER,
            layers: LAYERS,
            query_heads: QUERY_HEADS,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            norm_eps: 1e-6,
            rope: Rope { theta: 10_000.0, scaling: None },
            tied: true,
            max_positions: 8_192,
            end_tokens: Vec::new(),
        },
        &RandomWeights::new(1),
        |_| {},
    );
    Row::header();
    for (name, tokens, rows) in [("prefill of 512", 512, 512), ("decode at 4,096", 4096, 1)] {
        let name = format!("engine of 100 M parameters, {name}, one thread: over `gemm` alone");
        if named.is_empty() || named.iter().any(|wanted| name.contains(wanted.as_str())) {
            let (step, mut products) = (Step::new(&model, tokens, rows), StepProducts::new(tokens, rows));
            Row::of_one(name, |ours, gemm| ours / gemm, "x its time").measure(|| step.run(), || products.run());
        }
    }
}
