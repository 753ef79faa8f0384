//! Decode steps of sequences that come and go, and a captured one beside calls.

use fastrand::Rng;
use radixkv_attention::{Backend, Batch, Layout, Output, Scoring, Tables};
use radixkv_cuda::{Attention, Buffer, Capacity, Device, GpuError, Graph, Kv, Prepared};

use super::bed::{self, NAN, encode, normal};

pub const LAYOUT: Layout = Layout { layers: 1, blocks: 60, kv_heads: 1, ..bed::LAYOUT };
pub const QUERY_HEADS: usize = 4;
pub const CAPACITY: Capacity = Capacity { sequences: 5, blocks: 60, items: 16 };

/// Sequences that are decoded together: a growing batch with some that come and some that go.
pub struct Sequences {
    random: Rng,
    free: Vec<u32>,
    /// The table and the length of each.
    running: Vec<(Vec<u32>, u32)>,
}

/// The arrays of a batch.
#[derive(Default)]
pub struct Arrays {
    pub blocks: Vec<u32>,
    pub offsets: Vec<u32>,
    pub contexts: Vec<u32>,
    pub rows: Vec<u32>,
    pub slots: Vec<u64>,
}

impl Sequences {
    pub fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), free: (0..LAYOUT.blocks as u32).collect(), running: Vec::new() }
    }

    /// The next step: every sequence has one more token.
    pub fn step(&mut self) -> Arrays {
        let random = &mut self.random;
        if self.running.len() > 1 && random.usize(..25) == 0 {
            let (table, _) = self.running.swap_remove(random.usize(..self.running.len()));
            self.free.extend(table);
            random.shuffle(&mut self.free);
        }
        if self.running.len() < CAPACITY.sequences && (self.running.is_empty() || random.usize(..12) == 0) {
            self.running.push((Vec::new(), [0, 15, 100, 150][random.usize(..4)]));
        }
        for (table, length) in &mut self.running {
            *length += 1;
            while table.len() * LAYOUT.block_size < *length as usize {
                table.push(self.free.pop().expect("a block"));
            }
        }
        // The longest goes when the next step could want more blocks than there are.
        while self.free.len() < 15 {
            let longest = (0..self.running.len()).max_by_key(|at| self.running[*at].1).expect("a sequence");
            let (table, _) = self.running.swap_remove(longest);
            self.free.extend(table);
        }
        self.arrays()
    }

    pub fn arrays(&self) -> Arrays {
        let mut arrays = Arrays { offsets: vec![0], rows: vec![0], ..Arrays::default() };
        for (row, (table, length)) in (1..).zip(&self.running) {
            arrays.blocks.extend(table);
            arrays.offsets.push(arrays.blocks.len() as u32);
            arrays.contexts.push(*length);
            arrays.rows.push(row);
            let at = *length as usize - 1;
            arrays.slots.push(u64::from(table[at / LAYOUT.block_size]) * 16 + at as u64 % 16);
        }
        arrays
    }
}

impl Arrays {
    /// Sequences of these tables and lengths.
    pub fn of(running: &[(&[u32], u32)]) -> Self {
        let running = running.iter().map(|(table, length)| (table.to_vec(), *length)).collect();
        Sequences { running, ..Sequences::new(0) }.arrays()
    }

    pub fn batch(&self) -> Batch<'_> {
        Batch {
            query_heads: QUERY_HEADS,
            scale: 0.125,
            scoring: Scoring::default(),
            tables: Tables { blocks: &self.blocks, offsets: &self.offsets },
            contexts: &self.contexts,
            rows: &self.rows,
            save_kv: true,
            slots: &self.slots,
        }
    }
}

/// A storage, and the buffers of a step of so many rows.
pub struct Step {
    pub kv: Kv,
    pub queries: Buffer<u16>,
    pub keys: Buffer<u16>,
    pub values: Buffer<u16>,
    pub out: Buffer<u16>,
    pub lse: Buffer<f32>,
}

/// The rows of one step, and what becomes of them.
pub struct Rows {
    pub queries: Vec<u16>,
    pub keys: Vec<u16>,
    pub values: Vec<u16>,
}

pub const QUERY: usize = QUERY_HEADS * LAYOUT.head_dim;
pub const KEY: usize = LAYOUT.kv_heads * LAYOUT.head_dim;

impl Rows {
    pub fn new(random: &mut Rng, rows: usize) -> Self {
        let mut draw = |elements| (0..elements).map(|_| encode(LAYOUT.dtype, normal(random))).collect();
        Self { queries: draw(rows * QUERY), keys: draw(rows * KEY), values: draw(rows * KEY) }
    }
}

impl Step {
    pub fn new(device: &Device, attention: &Attention, storage: &[u16], rows: usize) -> Self {
        let mut kv = attention.allocate(LAYOUT).expect("memory");
        kv.write(storage).expect("a copy");
        let zeros = |elements| device.zeros::<u16>(elements).expect("memory");
        let (queries, keys, values, out) =
            (zeros(rows * QUERY), zeros(rows * KEY), zeros(rows * KEY), zeros(rows * QUERY));
        Self { kv, queries, keys, values, out, lse: device.zeros(rows * QUERY_HEADS).expect("memory") }
    }

    pub fn write(&mut self, rows: &Rows) {
        self.queries.write(&rows.queries).expect("a copy");
        self.keys.write(&rows.keys).expect("a copy");
        self.values.write(&rows.values).expect("a copy");
        self.out.write(&vec![NAN; self.out.len()]).expect("a copy");
        self.lse.write(&vec![7.5; self.lse.len()]).expect("a copy");
    }

    pub fn queue(&mut self, attention: &Attention, batch: &Prepared) -> Result<(), GpuError> {
        attention.append(&self.kv, 0, batch, self.keys.view(), self.values.view())?;
        let out = Output { rows: self.out.view_mut(), lse: Some(self.lse.view_mut()) };
        attention.decode(&self.kv, 0, batch, self.queries.view(), out)
    }

    /// Queues the step of a batch with room for others, by calls.
    pub fn queue_reserved(&mut self, attention: &Attention, arrays: &Arrays, capacity: Capacity) {
        let batch = attention.reserve(&LAYOUT, &arrays.batch(), capacity).expect("a batch");
        self.queue(attention, &batch).expect("queued");
    }

    pub fn outputs(&self) -> (Vec<u16>, Vec<u32>) {
        let lse = self.lse.to_vec().expect("log-sum-exps");
        (self.out.to_vec().expect("outputs"), lse.into_iter().map(f32::to_bits).collect())
    }
}

/// A captured step of a reserved batch.
pub struct Captured {
    pub batch: Prepared,
    pub step: Step,
    pub graph: Graph,
}

impl Captured {
    pub fn new(device: &Device, attention: &Attention, first: &Arrays, storage: &[u16], capacity: Capacity) -> Self {
        let batch = attention.reserve(&LAYOUT, &first.batch(), capacity).expect("a batch");
        let mut step = Step::new(device, attention, storage, capacity.sequences);
        let graph = device.capture(|| step.queue(attention, &batch)).expect("a graph");
        Self { batch, step, graph }
    }

    pub fn launch(&self) {
        // SAFETY: all that was captured stays: the test waits before it drops this.
        unsafe { self.graph.launch() }.expect("launched");
    }
}

pub fn storage(seed: u64) -> Vec<u16> {
    let mut random = Rng::with_seed(seed);
    (0..LAYOUT.elements()).map(|_| encode(LAYOUT.dtype, normal(&mut random))).collect()
}
