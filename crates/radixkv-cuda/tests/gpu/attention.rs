//! Append, decode, extend and cascade against the definition in `f64`.

use fastrand::Rng;
use radixkv_attention::plan::{Rule, Sharing, share};
use radixkv_attention::{Backend, Dtype, Half, Layout, Order, Output, Qkv};
use radixkv_cuda::{Attention, Device, Kv};

use super::bed::{Bed, LAYOUT, NAN, Sequence, Shape};
use super::driver::{Driver, driver};

const DTYPES: [Dtype; 2] = [Dtype::Bf16, Dtype::F16];
const ORDERS: [Order; 2] = [Order::Nhd, Order::Hnd];
const HEAD_DIMS: [usize; 2] = [64, 128];
const BLOCK_SIZES: [usize; 3] = [16, 32, 64];
const GROUPS: [usize; 5] = [1, 4, 7, 8, 16];

/// Every combination of element, head, block, group and order, each with a seed of its own.
fn shapes() -> impl Iterator<Item = (u64, Shape)> {
    let mut all = Vec::new();
    for dtype in DTYPES {
        for head_dim in HEAD_DIMS {
            for block_size in BLOCK_SIZES {
                for group in GROUPS {
                    for order in ORDERS {
                        let kv_heads = if group == 16 { 1 } else { 2 };
                        let value_dim = None;
                        all.push(Shape {
                            dtype,
                            head_dim,
                            value_dim,
                            kv_heads,
                            group,
                            block_size,
                            order,
                            layers: 2,
                            layer: 1,
                        });
                    }
                }
            }
        }
    }
    (1..).zip(all)
}

/// Outputs of one operation; NaN before it.
pub struct Outputs {
    pub rows: Vec<u16>,
    pub lse: Vec<f32>,
}

/// Attention on a device, with a storage.
pub struct Subject<'a> {
    device: &'a Device,
    pub attention: Attention,
    pub kv: Kv,
}

impl<'a> Subject<'a> {
    /// A storage on the device with these elements.
    pub fn new(device: &'a Device, layout: Layout, storage: &[u16]) -> Self {
        let attention = Attention::new(device);
        let mut kv = attention.allocate(layout).expect("memory");
        kv.write(storage).expect("a copy");
        Self { device, attention, kv }
    }

    fn outputs(
        &self,
        rows: usize,
        value_dim: usize,
        compute: impl FnOnce(Output<radixkv_cuda::ViewMut<'_, u16>, radixkv_cuda::ViewMut<'_, f32>>),
    ) -> Outputs {
        let mut out = self.device.upload(&vec![NAN; rows * value_dim]).expect("memory");
        let mut lse = self.device.upload(&vec![f32::NAN; rows]).expect("memory");
        compute(Output { rows: out.view_mut(), lse: Some(lse.view_mut()) });
        Outputs { rows: out.to_vec().expect("outputs"), lse: lse.to_vec().expect("log-sum-exps") }
    }

    /// A storage as the bed has it, with its scales.
    pub fn of(device: &'a Device, bed: &Bed) -> Self {
        let mut subject = Self::new(device, bed.layout, &bed.storage);
        if bed.layout.dtype.has_static_scales() {
            for (half, scales) in [Half::Keys, Half::Values].into_iter().zip(&bed.scales) {
                (0..2).for_each(|layer| subject.kv.set_scales(layer, half, scales).expect("scales"));
            }
        }
        subject
    }

    /// Appends and decodes.
    pub fn decode(&self, bed: &Bed) -> Outputs {
        let [queries, keys, values] = bed.upload(self.device);
        let batch = self.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        self.attention.append(&self.kv, 1, &batch, keys.view(), values.view()).expect("appended");
        self.outputs(bed.total_rows() * bed.query_heads, bed.layout.value_dim, |out| {
            self.attention.decode(&self.kv, 1, &batch, queries.view(), out).expect("decoded");
        })
    }

    pub fn extend(&self, bed: &Bed) -> Outputs {
        let [queries, keys, values] = bed.upload(self.device);
        let batch = self.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        self.outputs(bed.total_rows() * bed.query_heads, bed.layout.value_dim, |out| {
            let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
            self.attention.extend(&self.kv, 1, &batch, new, out).expect("extended");
        })
    }

    pub fn cascade(&self, bed: &Bed, sharing: &Sharing) -> Outputs {
        let [queries, keys, values] = bed.upload(self.device);
        let batch = self.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        let cascade = self.attention.prepare_cascade(&bed.layout, &bed.batch(), sharing).expect("a cascade");
        self.attention.append(&self.kv, 1, &batch, keys.view(), values.view()).expect("appended");
        self.outputs(bed.total_rows() * bed.query_heads, bed.layout.value_dim, |out| {
            self.attention.cascade(&self.kv, 1, &batch, &cascade, queries.view(), out).expect("cascaded");
        })
    }
}

/// Contexts whose lengths are at the borders of blocks and tiles, and one that is cut into parts.
fn ragged(random: &mut Rng) -> Vec<Sequence> {
    let mut lengths = vec![1, 15, 16, 17, random.usize(63..=65), random.usize(130..330)];
    random.shuffle(&mut lengths);
    lengths.truncate(4);
    lengths.push(lengths[0]);
    lengths.into_iter().map(|context| Sequence::one(context - 1)).collect()
}

fn decode_shapes(driver: &Driver, shapes: impl Iterator<Item = (u64, Shape)>) {
    let device = driver.open();
    for (seed, shape) in shapes {
        driver.schedule(seed as u32 % 5);
        driver.streams(seed as u32 % 3);
        let bed = Bed::new(seed, shape, &ragged(&mut Rng::with_seed(seed)), true);
        let run = Subject::new(&device, bed.layout, &bed.storage);
        let Outputs { rows, lse } = run.decode(&bed);
        bed.check(&format!("decode, seed {seed}, {shape:?}"), &rows, Some(&lse));
    }
}

// Holds: GP2.
#[test]
fn decode_of_every_shape() {
    let Some(driver) = driver() else { return };
    decode_shapes(&driver, shapes());
}

/// Heads x tokens of a block, and heads x elements, take more than 16 bits.
#[test]
fn many_heads() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, order) in (1..).zip(ORDERS) {
        let (kv_heads, group) = (36, 16);
        let shape = Shape { head_dim: 128, kv_heads, group, block_size: 32, order, ..Shape::SMALL };
        let bed = Bed::new(seed, shape, &[Sequence::one(40)], true);
        let Outputs { rows, lse } = Subject::new(&device, bed.layout, &bed.storage).decode(&bed);
        bed.check(&format!("decode, seed {seed}"), &rows, Some(&lse));
        let bed = Bed::new(seed, shape, &[Sequence { before: 31, rows: 2, shared: 0 }], true);
        let run = Subject::new(&device, bed.layout, &bed.storage);
        let Outputs { rows, lse } = run.extend(&bed);
        bed.check(&format!("extend, seed {seed}"), &rows, Some(&lse));
        assert_eq!(run.kv.to_vec().expect("the storage"), bed.appended(1), "seed {seed}");
    }
}

#[test]
fn decode_at_the_borders_of_blocks_and_tiles() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, (dtype, order)) in (1..).zip([(Dtype::Bf16, Order::Nhd), (Dtype::F16, Order::Hnd)]) {
        let shape = Shape { dtype, kv_heads: 1, order, ..Shape::SMALL };
        let contexts = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 500];
        let bed = Bed::new(seed, shape, &contexts.map(|context| Sequence::one(context - 1)), true);
        let Outputs { rows, lse } = Subject::new(&device, bed.layout, &bed.storage).decode(&bed);
        bed.check(&format!("decode, seed {seed}"), &rows, Some(&lse));
    }
}

#[test]
fn append_writes_its_slots_and_nothing_else() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, shape) in shapes().step_by(7) {
        let sequences = [Sequence { before: 13, rows: 20, shared: 0 }, Sequence { before: 0, rows: 3, shared: 0 }];
        let bed = Bed::new(seed, shape, &sequences, true);
        let run = Subject::new(&device, bed.layout, &bed.storage);
        let (keys, values) = (device.upload(&bed.keys).expect("memory"), device.upload(&bed.values).expect("memory"));
        let batch = run.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        run.attention.append(&run.kv, 1, &batch, keys.view(), values.view()).expect("appended");
        assert_eq!(run.kv.to_vec().expect("the storage"), bed.appended(1), "seed {seed}, {shape:?}");
    }
}

/// Chunks of prompts: one after a prefix, one from the start, one of a single row.
fn chunks(random: &mut Rng) -> Vec<Sequence> {
    let edges = [1, 15, 16, 17, 33];
    let any = |random: &mut Rng| Sequence {
        before: random.choice([0, 1, 15, 16, 17, 100, 200]).expect("one of them"),
        rows: random.choice(edges).expect("one of them"),
        shared: 0,
    };
    vec![any(random), Sequence { before: 0, rows: random.usize(1..=40), shared: 0 }, any(random)]
}

fn extend_shapes(driver: &Driver, shapes: impl Iterator<Item = (u64, Shape)>) {
    let device = driver.open();
    for (seed, shape) in shapes {
        driver.schedule(seed as u32 % 5);
        driver.streams(seed as u32 % 3);
        let bed = Bed::new(seed, shape, &chunks(&mut Rng::with_seed(seed)), true);
        let run = Subject::new(&device, bed.layout, &bed.storage);
        let Outputs { rows, lse } = run.extend(&bed);
        bed.check(&format!("extend, seed {seed}, {shape:?}"), &rows, Some(&lse));
        assert_eq!(run.kv.to_vec().expect("the storage"), bed.appended(1), "seed {seed}, {shape:?}");
    }
}

// Holds: GP2.
#[test]
fn extend_of_every_shape_keeping_rows() {
    let Some(driver) = driver() else { return };
    extend_shapes(&driver, shapes());
}

#[test]
fn extend_beside_the_blocks_writes_none() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, shape) in shapes().step_by(3) {
        driver.schedule(seed as u32 % 5);
        driver.streams(seed as u32 % 3);
        let bed = Bed::new(seed, shape, &chunks(&mut Rng::with_seed(seed)), false);
        let run = Subject::new(&device, bed.layout, &bed.storage);
        let Outputs { rows, lse } = run.extend(&bed);
        bed.check(&format!("extend beside, seed {seed}, {shape:?}"), &rows, Some(&lse));
        assert_eq!(run.kv.to_vec().expect("the storage"), bed.storage, "seed {seed}, {shape:?}");
    }
}

#[test]
fn a_long_chunk_is_many_tiles() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, group) in (1..).zip([1, 7, 16]) {
        let shape = Shape { kv_heads: 1, group, block_size: 32, ..Shape::SMALL };
        let bed = Bed::new(seed, shape, &[Sequence { before: 77, rows: 150, shared: 0 }], true);
        let Outputs { rows, lse } = Subject::new(&device, bed.layout, &bed.storage).extend(&bed);
        bed.check(&format!("extend, group {group}"), &rows, Some(&lse));
    }
}

#[test]
fn one_row_a_sequence_is_extended_as_it_is_decoded() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (seed, shape) = shapes().nth(43).expect("a shape");
    let bed = Bed::new(seed, shape, &ragged(&mut Rng::with_seed(seed)), true);
    let extended = Subject::new(&device, bed.layout, &bed.storage).extend(&bed);
    let decoded = Subject::new(&device, bed.layout, &bed.storage).decode(&bed);
    bed.check("extend", &extended.rows, Some(&extended.lse));
    assert_eq!(extended.rows, decoded.rows);
}

/// Shares every prefix that two sequences have in common.
pub const EAGER: Rule = Rule { grain_tokens: 1, group_cost_tokens: 0 };

fn cascade_shapes(driver: &Driver, shapes: impl Iterator<Item = (u64, Shape)>) {
    let device = driver.open();
    for (seed, shape) in shapes {
        driver.schedule(seed as u32 % 5);
        driver.streams(seed as u32 % 3);
        let mut random = Rng::with_seed(seed);
        let prefix = shape.block_size * random.usize(1..=4);
        let mut sequences = vec![Sequence::one(prefix + random.usize(..20)), Sequence::one(random.usize(..30))];
        let sharers = random.usize(1..=9);
        sequences
            .extend((0..sharers).map(|_| Sequence { shared: prefix, ..Sequence::one(prefix + random.usize(..40)) }));
        let bed = Bed::new(seed, shape, &sequences, true);
        let rule = Rule { grain_tokens: shape.block_size, ..EAGER };
        let sharing = share(bed.batch().tables, &bed.contexts, shape.block_size, rule);
        assert!(sharing.saved_tokens() > 0, "seed {seed}");
        let run = Subject::new(&device, bed.layout, &bed.storage);
        let Outputs { rows, lse } = run.cascade(&bed, &sharing);
        bed.check(&format!("cascade, seed {seed}, {shape:?}"), &rows, Some(&lse));
    }
}

// Holds: GP2.
#[test]
fn cascade_of_every_shape() {
    let Some(driver) = driver() else { return };
    cascade_shapes(&driver, shapes());
}

/// A device without prebuilt binaries gets the kernels as PTX. The stand-in runs it instruction by
/// instruction, and aborts if threads race.
#[test]
fn later_devices_run_the_ptx() {
    let Some(driver) = driver() else { return };
    driver.device(1, (12, 0), 1 << 33);
    decode_shapes(&driver, shapes().step_by(11));
    extend_shapes(&driver, shapes().skip(4).step_by(11));
    cascade_shapes(&driver, shapes().skip(8).step_by(11));
}

#[test]
fn many_sharers_fill_several_tiles() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, group) in (1..).zip([7, 8, 16]) {
        let (dtype, order) = (Dtype::F16, Order::Hnd);
        let shape = Shape { dtype, kv_heads: 1, group, order, ..Shape::SMALL };
        let mut sequences = vec![Sequence::one(300)];
        sequences.extend((0..20).map(|more| Sequence { shared: 288, ..Sequence::one(288 + more) }));
        let bed = Bed::new(seed, shape, &sequences, true);
        let sharing = share(bed.batch().tables, &bed.contexts, 16, Rule { grain_tokens: 16, ..EAGER });
        assert_eq!(sharing.groups[0].sequences.len(), 21);
        let Outputs { rows, lse } = Subject::new(&device, bed.layout, &bed.storage).cascade(&bed, &sharing);
        bed.check(&format!("cascade, group {group}"), &rows, Some(&lse));
    }
}

#[test]
fn an_empty_batch_is_nothing_to_do() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (seed, shape) = shapes().next().expect("a shape");
    let bed = Bed::new(seed, shape, &[], true);
    let run = Subject::new(&device, bed.layout, &bed.storage);
    let launched = driver.launches();
    assert!(run.decode(&bed).rows.is_empty() && run.extend(&bed).rows.is_empty());
    assert_eq!(driver.launches(), launched);
}

#[test]
fn the_rule_asks_for_more_saving_where_tokens_are_small() {
    let Some(driver) = driver() else { return };
    let attention = Attention::new(&driver.open());
    let layout = |kv_heads| Layout { block_size: 32, kv_heads, head_dim: 128, value_dim: 128, ..LAYOUT };
    let (one, eight) = (attention.rule(&layout(1)), attention.rule(&layout(8)));
    assert_eq!((one.grain_tokens, eight.grain_tokens), (32, 32));
    assert!(one.group_cost_tokens > 7 * eight.group_cost_tokens && eight.group_cost_tokens > 1000);
}

#[test]
fn long_contexts_are_cut_into_parts_and_merged() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let shape = Shape { head_dim: 128, block_size: 64, ..Shape::SMALL };
    let bed = Bed::new(5, shape, &[Sequence::one(2999), Sequence::one(40), Sequence::one(1023)], true);
    let run = Subject::new(&device, bed.layout, &bed.storage);
    let Outputs { rows, lse } = run.decode(&bed);
    bed.check("decode of 3,000 tokens", &rows, Some(&lse));
}

/// Calls `compute` for four users one after another, and then often from a thread of each: the
/// outputs are the same.
fn compare_threads(what: &str, compute: impl Fn(usize) -> Vec<u16> + Sync) {
    let expected: Vec<Vec<u16>> = (0..4).map(&compute).collect();
    std::thread::scope(|scope| {
        for (user, expected) in expected.iter().enumerate() {
            let compute = &compute;
            scope.spawn(move || (0..25).for_each(|_| assert!(compute(user) == *expected, "{what}, user {user}")));
        }
    });
}

/// The launches of one operation are not mixed with those of another thread that has the same
/// batch: they share the room for partial rows, and that for rows that are not kept.
#[test]
fn threads_may_share_a_prepared_batch() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let shape = Shape { kv_heads: 1, ..Shape::SMALL };
    let turned = |elements: &[u16], user: usize| {
        let mut turned = elements.to_vec();
        turned.rotate_left(64 * user);
        device.upload(&turned).expect("memory")
    };
    let bed = Bed::new(5, shape, &[Sequence::one(600), Sequence { shared: 512, ..Sequence::one(520) }], true);
    let run = Subject::new(&device, bed.layout, &bed.appended(1));
    let batch = run.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
    compare_threads("decode", |user| {
        let queries = turned(&bed.queries, user);
        let decoded = run.outputs(2 * bed.query_heads, 64, |out| {
            run.attention.decode(&run.kv, 1, &batch, queries.view(), out).expect("decoded");
        });
        decoded.rows
    });
    let sharing = share(bed.batch().tables, &bed.contexts, 16, Rule { grain_tokens: 16, ..EAGER });
    let cascade = run.attention.prepare_cascade(&bed.layout, &bed.batch(), &sharing).expect("a cascade");
    compare_threads("cascade", |user| {
        let queries = turned(&bed.queries, user);
        let cascaded = run.outputs(2 * bed.query_heads, 64, |out| {
            run.attention.cascade(&run.kv, 1, &batch, &cascade, queries.view(), out).expect("cascaded");
        });
        cascaded.rows
    });
    let bed = Bed::new(6, shape, &[Sequence { before: 300, rows: 9, shared: 0 }], false);
    let run = Subject::new(&device, bed.layout, &bed.storage);
    let batch = run.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
    compare_threads("rows that are not kept", |user| {
        let [queries, keys, values] = [&bed.queries, &bed.keys, &bed.values].map(|elements| turned(elements, user));
        let extended = run.outputs(bed.total_rows() * bed.query_heads, 64, |out| {
            let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
            run.attention.extend(&run.kv, 1, &batch, new, out).expect("extended");
        });
        extended.rows
    });
}
