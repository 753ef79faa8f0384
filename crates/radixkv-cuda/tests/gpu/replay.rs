//! A decode step that was captured once, launched for batches that change.

use fastrand::Rng;
use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Scoring, ShapeError, Tables};
use radixkv_cuda::{Attention, Buffer, Capacity, Device, GpuError, Graph, Kv, Prepared};

use super::bed::{NAN, encode, normal};
use super::driver::{Counted, driver};

const LAYOUT: Layout = Layout {
    layers: 1,
    blocks: 60,
    block_size: 16,
    kv_heads: 1,
    head_dim: 64,
    value_dim: 64,
    dtype: Dtype::Bf16,
    order: Order::Nhd,
};
const QUERY_HEADS: usize = 4;
const CAPACITY: Capacity = Capacity { sequences: 5, blocks: 60, items: 16 };

/// Sequences that are decoded together: a growing batch with some that come and some that go.
struct Sequences {
    random: Rng,
    free: Vec<u32>,
    /// The table and the length of each.
    running: Vec<(Vec<u32>, u32)>,
}

/// The arrays of a batch.
#[derive(Default)]
struct Arrays {
    blocks: Vec<u32>,
    offsets: Vec<u32>,
    contexts: Vec<u32>,
    rows: Vec<u32>,
    slots: Vec<u64>,
}

impl Sequences {
    fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), free: (0..LAYOUT.blocks as u32).collect(), running: Vec::new() }
    }

    /// The next step: every sequence has one more token.
    fn step(&mut self) -> Arrays {
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

    fn arrays(&self) -> Arrays {
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
    fn batch(&self) -> Batch<'_> {
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
struct Step {
    kv: Kv,
    queries: Buffer<u16>,
    keys: Buffer<u16>,
    values: Buffer<u16>,
    out: Buffer<u16>,
    lse: Buffer<f32>,
}

/// The rows of one step, and what becomes of them.
struct Rows {
    queries: Vec<u16>,
    keys: Vec<u16>,
    values: Vec<u16>,
}

const QUERY: usize = QUERY_HEADS * LAYOUT.head_dim;
const KEY: usize = LAYOUT.kv_heads * LAYOUT.head_dim;

impl Rows {
    fn new(random: &mut Rng, rows: usize) -> Self {
        let mut draw = |elements| (0..elements).map(|_| encode(LAYOUT.dtype, normal(random))).collect();
        Self { queries: draw(rows * QUERY), keys: draw(rows * KEY), values: draw(rows * KEY) }
    }
}

impl Step {
    fn new(device: &Device, attention: &Attention, storage: &[u16], rows: usize) -> Self {
        let mut kv = attention.allocate(LAYOUT).expect("memory");
        kv.write(storage).expect("a copy");
        let zeros = |elements| device.zeros::<u16>(elements).expect("memory");
        let (queries, keys, values, out) =
            (zeros(rows * QUERY), zeros(rows * KEY), zeros(rows * KEY), zeros(rows * QUERY));
        Self { kv, queries, keys, values, out, lse: device.zeros(rows * QUERY_HEADS).expect("memory") }
    }

    fn write(&mut self, rows: &Rows) {
        self.queries.write(&rows.queries).expect("a copy");
        self.keys.write(&rows.keys).expect("a copy");
        self.values.write(&rows.values).expect("a copy");
        self.out.write(&vec![NAN; self.out.len()]).expect("a copy");
        self.lse.write(&vec![7.5; self.lse.len()]).expect("a copy");
    }

    fn queue(&mut self, attention: &Attention, batch: &Prepared) -> Result<(), GpuError> {
        attention.append(&self.kv, 0, batch, self.keys.view(), self.values.view())?;
        let out = Output { rows: self.out.view_mut(), lse: Some(self.lse.view_mut()) };
        attention.decode(&self.kv, 0, batch, self.queries.view(), out)
    }

    fn outputs(&self) -> (Vec<u16>, Vec<u32>) {
        let lse = self.lse.to_vec().expect("log-sum-exps");
        (self.out.to_vec().expect("outputs"), lse.into_iter().map(f32::to_bits).collect())
    }
}

/// A captured step of a reserved batch.
struct Captured {
    batch: Prepared,
    step: Step,
    graph: Graph,
}

impl Captured {
    fn new(device: &Device, attention: &Attention, first: &Arrays, storage: &[u16], capacity: Capacity) -> Self {
        let batch = attention.reserve(&LAYOUT, &first.batch(), capacity).expect("a batch");
        let mut step = Step::new(device, attention, storage, capacity.sequences);
        let graph = device.capture(|| step.queue(attention, &batch)).expect("a graph");
        Self { batch, step, graph }
    }
}

fn storage(seed: u64) -> Vec<u16> {
    let mut random = Rng::with_seed(seed);
    (0..LAYOUT.elements()).map(|_| encode(LAYOUT.dtype, normal(&mut random))).collect()
}

/// Runs steps of a captured batch beside calls that are not captured, on storages of their own; every output and, at the
/// end, both storages are the same, bit for bit.
fn replay(device: &Device, seed: u64, steps: usize, capacity: Capacity, as_prepared: bool) -> usize {
    let attention = Attention::new(device);
    let (mut sequences, storage) = (Sequences::new(seed), storage(seed));
    let mut captured = Captured::new(device, &attention, &sequences.arrays(), &storage, capacity);
    let mut plain = Step::new(device, &attention, &storage, capacity.sequences);
    let (mut random, mut merged) = (Rng::with_seed(seed + 1), 0);
    for step in 0..steps {
        let arrays = sequences.step();
        let running = arrays.contexts.len();
        let rows = Rows::new(&mut random, capacity.sequences);
        captured.batch.update(&arrays.batch()).expect("updated");
        captured.step.write(&rows);
        // SAFETY: all that was captured stays until the outputs are read.
        unsafe { captured.graph.launch() }.expect("launched");
        let (out, lse) = captured.step.outputs();
        if as_prepared {
            let mut own = Step::new(device, &attention, &[], running);
            std::mem::swap(&mut own.kv, &mut plain.kv);
            own.write(&Rows {
                queries: rows.queries[..running * QUERY].to_vec(),
                keys: rows.keys[..running * KEY].to_vec(),
                values: rows.values[..running * KEY].to_vec(),
            });
            let batch = attention.prepare(&LAYOUT, &arrays.batch()).expect("a batch");
            own.queue(&attention, &batch).expect("queued");
            let expected = own.outputs();
            assert!(out[..running * QUERY] == expected.0, "seed {seed}, step {step}");
            assert!(lse[..running * QUERY_HEADS] == expected.1, "seed {seed}, step {step}");
            std::mem::swap(&mut own.kv, &mut plain.kv);
        } else {
            let batch = attention.reserve(&LAYOUT, &arrays.batch(), capacity).expect("a batch");
            plain.write(&rows);
            plain.queue(&attention, &batch).expect("queued");
            assert!((&out, &lse) == (&plain.outputs().0, &plain.outputs().1), "seed {seed}, step {step}");
        }
        assert!(out[running * QUERY..].iter().all(|element| *element == NAN), "rows without a sequence, step {step}");
        merged += usize::from(arrays.contexts.iter().any(|context| *context > 128));
    }
    assert!(captured.step.kv.to_vec() == plain.kv.to_vec(), "seed {seed}: the storages");
    merged
}

#[test]
fn a_thousand_steps_of_one_captured_step_give_the_bits_of_calls() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let merged = replay(&device, 1, 1000, CAPACITY, true);
    assert!(merged > 500, "{merged} steps with a context that is cut");
}

/// Work is done late, so that an update which overtakes a launch, or writes over one that was not read, is seen.
#[test]
fn updates_are_ordered_with_launches() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (attention, storage) = (Attention::new(&device), storage(3));
    for seed in 1..6 {
        driver.streams(seed);
        let mut sequences = Sequences::new(u64::from(seed));
        let mut captured = Captured::new(&device, &attention, &sequences.step(), &storage, CAPACITY);
        let mut expected = Step::new(&device, &attention, &storage, CAPACITY.sequences);
        let rows = Rows::new(&mut Rng::with_seed(9), CAPACITY.sequences);
        captured.step.write(&rows);
        expected.write(&rows);
        let steps: Vec<Arrays> = (0..20).map(|_| sequences.step()).collect();
        for arrays in &steps {
            captured.batch.update(&arrays.batch()).expect("updated");
            // SAFETY: all that was captured stays until the storage is read.
            unsafe { captured.graph.launch() }.expect("launched");
        }
        for arrays in &steps {
            let batch = attention.reserve(&LAYOUT, &arrays.batch(), CAPACITY).expect("a batch");
            expected.queue(&attention, &batch).expect("queued");
            device.synchronize().expect("done");
        }
        assert!(captured.step.outputs() == expected.outputs(), "seed {seed}");
        assert!(captured.step.kv.to_vec() == expected.kv.to_vec(), "seed {seed}: the storages");
    }
}

/// Where there are no more items than heads of sequences, contexts are not cut.
#[test]
fn contexts_are_cut_as_far_as_there_is_room() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for items in [5, 6, 9] {
        replay(&device, items as u64, 40, Capacity { items, ..CAPACITY }, false);
    }
}

#[test]
fn an_update_is_one_copy_and_no_allocation() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let mut sequences = Sequences::new(5);
    let mut batch = attention.reserve(&LAYOUT, &sequences.step().batch(), CAPACITY).expect("a batch");
    device.synchronize().expect("done");
    let counts = || (driver.live(), driver.count(Counted::PageableCopies), driver.launches());
    let (before, copies) = (counts(), driver.count(Counted::CopiesToDevice));
    for _ in 0..10 {
        batch.update(&sequences.step().batch()).expect("updated");
    }
    assert_eq!(counts(), before);
    assert!(!driver.is_stand_in() || driver.count(Counted::CopiesToDevice) == copies + 10);
}

#[test]
fn what_there_is_no_room_for_is_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let mut sequences = Sequences::new(6);
    let one = sequences.step();
    let two = Arrays {
        blocks: vec![1, 2, 3],
        offsets: vec![0, 1, 3],
        contexts: vec![16, 30],
        rows: vec![0, 1, 2],
        slots: vec![31, 61],
    };
    let capacity = Capacity { sequences: 1, blocks: 2, items: 1 };
    let mut batch = attention.reserve(&LAYOUT, &one.batch(), Capacity { blocks: 40, ..capacity }).expect("a batch");
    let full = |what, given, room| Err(GpuError::Capacity { what, given, room });
    assert_eq!(batch.update(&two.batch()), full("sequences", 2, 1));
    let short = Capacity { sequences: 2, items: 2, ..capacity };
    assert_eq!(attention.reserve(&LAYOUT, &two.batch(), short).map(drop), full("blocks", 3, 2));
    let few = Capacity { sequences: 2, blocks: 9, items: 1 };
    assert_eq!(attention.reserve(&LAYOUT, &two.batch(), few).map(drop), full("heads of sequences", 2, 1));
    for endless in [
        Capacity { items: usize::MAX, ..CAPACITY },
        Capacity { sequences: usize::MAX / 2, ..CAPACITY },
        Capacity { blocks: 1 << 32, ..CAPACITY },
    ] {
        let refused = attention.reserve(&LAYOUT, &one.batch(), endless).expect_err("too much");
        assert!(matches!(refused, GpuError::TooMuch { .. }), "{refused}");
    }
    let heads = GpuError::Shape(ShapeError::Length { what: "query heads", given: 16, needed: 4 });
    assert_eq!(batch.update(&Batch { query_heads: 16, ..one.batch() }), Err(heads));
    let other = GpuError::OtherScale { given: 0.25, reserved: 0.125 };
    assert_eq!(batch.update(&Batch { scale: 0.25, ..one.batch() }), Err(other));
    let chunk =
        Arrays { rows: vec![0, 2], slots: vec![14, 15], blocks: vec![0], offsets: vec![0, 1], contexts: vec![16] };
    assert!(matches!(batch.update(&chunk.batch()), Err(GpuError::Shape(ShapeError::DecodeRows { .. }))));
    let mut prepared = attention.prepare(&LAYOUT, &one.batch()).expect("a batch");
    assert_eq!(prepared.update(&one.batch()), Err(GpuError::NotReserved));
    let refused = device.capture(|| batch.update(&one.batch())).expect_err("an update");
    assert!(matches!(refused, GpuError::NotCaptured { .. }), "{refused}");
    assert_eq!(batch.update(&one.batch()), Ok(()));
}
