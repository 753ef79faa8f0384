//! Sequences of a model with 32 query heads, 8 heads of keys and values, and 128 elements a head,
//! in blocks of 16 tokens.

use fastrand::Rng;
use radixkv_attention::cpu::{CpuCascade, CpuKv, Prepared, Processor};
use radixkv_attention::plan::share;
use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Qkv, Scoring, Tables};

pub const QUERY_HEADS: usize = 32;
pub const KV_HEADS: usize = 8;
pub const HEAD_DIM: usize = 128;
const BLOCK_SIZE: usize = 16;

/// Storage that is filled with some sequences, and a step over their last rows.
pub struct Load {
    kv: CpuKv,
    prepared: Prepared,
    cascade: Option<CpuCascade>,
    queries: Vec<f32>,
    new: Vec<f32>,
    out: Vec<f32>,
    pub contexts: usize,
}

fn numbers(count: usize, random: &mut Rng) -> Vec<f32> {
    (0..count).map(|_| random.f32() - 0.5).collect()
}

impl Load {
    /// `sequences` of `tokens` each, the first `shared` of which all have in common, and `rows`
    /// rows of each.
    pub fn new(dtype: Dtype, sequences: usize, tokens: usize, shared: usize, rows: usize) -> Self {
        let random = &mut Rng::with_seed(1);
        let (own, common) = ((tokens - shared) / BLOCK_SIZE, shared / BLOCK_SIZE);
        let blocks = common + sequences * own;
        let (block_size, kv_heads, head_dim, value_dim) = (BLOCK_SIZE, KV_HEADS, HEAD_DIM, HEAD_DIM);
        let order = Order::Nhd;
        let layout = Layout { layers: 1, blocks, block_size, kv_heads, head_dim, value_dim, dtype, order };
        let mut ids: Vec<u32> = (0..blocks as u32).collect();
        random.shuffle(&mut ids);
        let tables: Vec<u32> = (0..sequences)
            .flat_map(|sequence| ids[..common].iter().chain(&ids[common + sequence * own..][..own]).copied())
            .collect();
        let processor = Processor::<f32>::new();
        let kv = processor.allocate(layout).expect("memory");
        let fill = Step::new(&ids, &[blocks * BLOCK_SIZE], blocks * BLOCK_SIZE);
        let row = KV_HEADS * HEAD_DIM;
        let new = numbers(fill.slots.len() * row, random);
        let filled = processor.prepare(&layout, &fill.batch()).expect("a batch");
        processor.append(&kv, 0, &filled, &new, &new).expect("rows");

        let step = Step::new(&tables, &vec![tokens; sequences], rows);
        let batch = step.batch();
        let prepared = processor.prepare(&layout, &batch).expect("a batch");
        let cascade = (shared > 0).then(|| {
            let sharing = share(batch.tables, batch.contexts, BLOCK_SIZE, processor.rule(&layout));
            processor.prepare_cascade(&layout, &batch, &sharing).expect("a plan")
        });
        let queries = numbers(step.slots.len() * QUERY_HEADS * HEAD_DIM, random);
        let out = vec![0.0; queries.len()];
        Self {
            kv,
            prepared,
            cascade,
            new: new[..step.slots.len() * row].to_vec(),
            queries,
            out,
            contexts: sequences * tokens,
        }
    }

    /// Bytes of keys and values that all contexts have.
    pub fn bytes(&self) -> usize {
        2 * self.contexts * KV_HEADS * HEAD_DIM * self.kv.layout().dtype.bytes()
    }

    /// Multiplications of one row of each sequence.
    pub fn multiplications(&self) -> f64 {
        (2 * self.contexts * QUERY_HEADS * HEAD_DIM) as f64
    }

    pub fn decode(&mut self, on: &Processor) {
        let out = Output { rows: &mut self.out[..], lse: None };
        on.decode(&self.kv, 0, &self.prepared, &self.queries, out).expect("a good step");
    }

    pub fn cascade(&mut self, on: &Processor) {
        let (out, plan) = (Output { rows: &mut self.out[..], lse: None }, self.cascade.as_ref().expect("a plan"));
        on.cascade(&self.kv, 0, &self.prepared, plan, &self.queries, out).expect("a good step");
    }

    pub fn extend(&mut self, on: &Processor) {
        let new = Qkv { queries: &self.queries[..], keys: &self.new[..], values: &self.new[..] };
        let out = Output { rows: &mut self.out[..], lse: None };
        on.extend(&self.kv, 0, &self.prepared, new, out).expect("a good step");
    }
}

/// The flat arrays of a batch: the last `rows` rows of each sequence.
struct Step {
    tables: Vec<u32>,
    offsets: Vec<u32>,
    contexts: Vec<u32>,
    rows: Vec<u32>,
    slots: Vec<u64>,
}

impl Step {
    fn new(tables: &[u32], contexts: &[usize], rows: usize) -> Self {
        let (mut offsets, mut ends, mut slots) = (vec![0], vec![0], Vec::new());
        for context in contexts {
            let first = *offsets.last().expect("the first") as usize;
            let table = &tables[first..first + context / BLOCK_SIZE];
            offsets.push((first + table.len()) as u32);
            let slot =
                |token: usize| table[token / BLOCK_SIZE] as u64 * BLOCK_SIZE as u64 + (token % BLOCK_SIZE) as u64;
            slots.extend((context - rows..*context).map(slot));
            ends.push(slots.len() as u32);
        }
        let contexts = contexts.iter().map(|context| *context as u32).collect();
        Self { tables: tables.to_vec(), offsets, contexts, rows: ends, slots }
    }

    fn batch(&self) -> Batch<'_> {
        Batch {
            query_heads: QUERY_HEADS,
            scale: (HEAD_DIM as f32).sqrt().recip(),
            scoring: Scoring::default(),
            tables: Tables { blocks: &self.tables, offsets: &self.offsets },
            contexts: &self.contexts,
            rows: &self.rows,
            save_kv: true,
            slots: &self.slots,
        }
    }
}
