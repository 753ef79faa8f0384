//! The CPU backend and the device on the same rows, through the same calls.

use fastrand::Rng;
use radixkv_attention::cpu::Cpu;
use radixkv_attention::plan::{Rule, share};
use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Qkv, Scoring, Tables};
use radixkv_cuda::Staged;

use super::bed::{LAYOUT, bound, normal};
use super::driver::driver;

/// Steps of an engine over either backend.
struct Steps<'a, B> {
    backend: &'a B,
    layout: Layout,
    query_heads: usize,
    random: Rng,
}

const LAYER: usize = 1;

impl<B> Steps<'_, B>
where
    B: for<'a> Backend<Rows<'a> = &'a [f32], RowsMut<'a> = &'a mut [f32], LseMut<'a> = &'a mut [f32]>,
{
    fn rows(&mut self, rows: usize, heads: usize) -> Vec<f32> {
        (0..rows * heads * self.layout.head_dim).map(|_| normal(&mut self.random)).collect()
    }

    /// Computes a prompt of 70 tokens, rows that are not kept, a fork of the prompt that copies its
    /// last block, and a decode step of both; returns all outputs and log-sum-exps.
    fn run(&mut self) -> Vec<f32> {
        let (layout, heads, mut all) = (self.layout, self.query_heads, Vec::new());
        let kv = self.backend.allocate(layout).expect("memory");
        let batch =
            |blocks: &'static [u32], offsets: &'static [u32], contexts: &'static [u32], rows: &'static [u32]| Batch {
                query_heads: heads,
                scale: 0.1,
                scoring: Scoring::default(),
                tables: Tables { blocks, offsets },
                contexts,
                rows,
                save_kv: false,
                slots: &[],
            };
        // The prompt.
        let slots: Vec<u64> = (0..70).map(|token| [3, 0, 6, 2, 7][token / 16] * 16 + token as u64 % 16).collect();
        let prompt = Batch { save_kv: true, slots: &slots, ..batch(&[3, 0, 6, 2, 7], &[0, 5], &[70], &[0, 70]) };
        all.extend(self.extend(&kv, &prompt, 70));
        // Rows that are not kept: after the first 50 tokens of the prompt, and after none.
        all.extend(self.extend(&kv, &batch(&[3, 0, 6, 2], &[0, 4, 4], &[60, 5], &[0, 10, 15]), 15));
        // Two sequences go on, one in the prompt's last block and one in a copy of it.
        self.backend.copy_blocks(&kv, &[(7, 4)]).expect("copied");
        let slots = [7 * 16 + 6, 4 * 16 + 6];
        let tables: (&[u32], &[u32]) = (&[3, 0, 6, 2, 7, 3, 0, 6, 2, 4], &[0, 5, 10]);
        let both = Batch { save_kv: true, slots: &slots, ..batch(tables.0, tables.1, &[71, 71], &[0, 1, 2]) };
        let (keys, values) = (self.rows(2, layout.kv_heads), self.rows(2, layout.kv_heads));
        let queries = self.rows(2, heads);
        let prepared = self.backend.prepare(&layout, &both).expect("a batch");
        self.backend.append(&kv, LAYER, &prepared, &keys, &values).expect("appended");
        let (mut out, mut lse) = (vec![0.0; queries.len()], vec![0.0; 2 * heads]);
        let into = Output { rows: &mut out[..], lse: Some(&mut lse[..]) };
        self.backend.decode(&kv, LAYER, &prepared, &queries, into).expect("decoded");
        all.extend(out.iter().chain(&lse));
        let grain_tokens = self.backend.rule(&layout).grain_tokens;
        let rule = Rule { grain_tokens, group_cost_tokens: 0 };
        let sharing = share(both.tables, both.contexts, layout.block_size, rule);
        assert_eq!(sharing.groups.len(), 1);
        let cascade = self.backend.prepare_cascade(&layout, &both, &sharing).expect("a cascade");
        let into = Output { rows: &mut out[..], lse: Some(&mut lse[..]) };
        self.backend.cascade(&kv, LAYER, &prepared, &cascade, &queries, into).expect("cascaded");
        all.extend(out.iter().chain(&lse));
        all
    }

    fn extend(&mut self, kv: &B::Kv, batch: &Batch<'_>, rows: usize) -> Vec<f32> {
        let (keys, values) = (self.rows(rows, self.layout.kv_heads), self.rows(rows, self.layout.kv_heads));
        let queries = self.rows(rows, self.query_heads);
        let prepared = self.backend.prepare(&self.layout, batch).expect("a batch");
        let mut out = vec![0.0; queries.len()];
        let new = Qkv { queries: &queries[..], keys: &keys[..], values: &values[..] };
        let into = Output { rows: &mut out[..], lse: None };
        self.backend.extend(kv, LAYER, &prepared, new, into).expect("extended");
        out
    }
}

// Holds: GP2.
#[test]
fn both_backends_give_the_same() {
    let Some(driver) = driver() else { return };
    let staged = Staged::new(&driver.open());
    for (seed, (dtype, order)) in (1..).zip([(Dtype::Bf16, Order::Nhd), (Dtype::F16, Order::Hnd)]) {
        let layout = Layout { dtype, order, ..LAYOUT };
        let (query_heads, random) = (8, Rng::with_seed(seed));
        let expected = Steps { backend: &Cpu, layout, query_heads, random: random.clone() }.run();
        let got = Steps { backend: &staged, layout, query_heads, random }.run();
        assert_eq!(got.len(), expected.len());
        let wrong: f64 = got.iter().zip(&expected).map(|(got, expected)| f64::from(got - expected).powi(2)).sum();
        let size: f64 = expected.iter().map(|value| f64::from(*value).powi(2)).sum();
        // The device rounds queries too, the processor does not.
        let error = (wrong / size).sqrt();
        assert!(error < 2.0 * bound(dtype), "{dtype}: relative error {error:.2e}");
    }
}
