//! Batches of random numbers, and their attention in `f64`.

use fastrand::Rng;
use radixkv_attention::{Batch, Dtype, Half, Layout, Order, Scoring, Tables};
use radixkv_cuda::{Buffer, Device};

/// Nearly normal, of variance 1: a sum of twelve uniform numbers.
pub fn normal(random: &mut Rng) -> f32 {
    (0..12).map(|_| random.f32()).sum::<f32>() - 6.0
}

/// The bits of the nearest element, ties to even; not by the crate's own rounding, which is under test.
pub fn encode(dtype: Dtype, value: f32) -> u16 {
    match dtype {
        Dtype::Bf16 => {
            let bits = value.to_bits();
            ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
        }
        _ => encode_f16(value),
    }
}

/// For |value| below 65504; values below 2^-14 become zero.
fn encode_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude < 0x3880_0000 {
        return sign;
    }
    let rounded = magnitude + 0xfff + ((magnitude >> 13) & 1) - (112 << 23);
    sign | (rounded >> 13) as u16
}

pub fn decode(dtype: Dtype, element: u16) -> f64 {
    if dtype == Dtype::Bf16 {
        return f64::from(f32::from_bits(u32::from(element) << 16));
    }
    let (sign, exponent, fraction) = (element >> 15, (element >> 10) & 31, f64::from(element & 0x3ff));
    let magnitude = match exponent {
        0 => fraction / 1024.0 / 16384.0,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// The bits of a NaN, in either element type.
pub const NAN: u16 = 0x7fff;

/// A block id at places of a table that are never read.
pub const NO_BLOCK: u32 = 0x7fff_ffff;

/// The largest error of outputs: root of the mean square, relative to that of the reference.
pub fn bound(dtype: Dtype) -> f64 {
    if dtype == Dtype::Bf16 { 6e-3 } else { 1.5e-3 }
}

/// A batch of sequences with random keys and values, its storage, and the arrays that a backend takes.
pub struct Bed {
    pub layout: Layout,
    pub query_heads: usize,
    pub scale: f32,
    pub blocks: Vec<u32>,
    pub offsets: Vec<u32>,
    pub contexts: Vec<u32>,
    pub rows: Vec<u32>,
    pub save_kv: bool,
    pub slots: Vec<u64>,
    /// Queries, keys and values of the rows.
    pub queries: Vec<u16>,
    pub keys: Vec<u16>,
    pub values: Vec<u16>,
    /// The storage: the context that precedes the rows, and NaN elsewhere.
    pub storage: Vec<u16>,
    /// Keys and values of the whole context of each sequence: `[token][kv head][element]`.
    whole: Vec<(Vec<u16>, Vec<u16>)>,
}

/// The model and the storage of a bed.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub dtype: Dtype,
    pub head_dim: usize,
    pub kv_heads: usize,
    pub group: usize,
    pub block_size: usize,
    pub order: Order,
    pub layers: usize,
    /// The layer that holds keys and values.
    pub layer: usize,
}

impl Shape {
    /// Others are like it but for what a test is about.
    pub const SMALL: Self = Self {
        dtype: Dtype::Bf16,
        head_dim: 64,
        kv_heads: 2,
        group: 4,
        block_size: 16,
        order: Order::Nhd,
        layers: 2,
        layer: 1,
    };
}

/// The layout of a small storage; others are like it but for what a test is about.
pub const LAYOUT: Layout = Layout {
    layers: 2,
    blocks: 8,
    block_size: 16,
    kv_heads: 2,
    head_dim: 64,
    value_dim: 64,
    dtype: Dtype::Bf16,
    order: Order::Nhd,
};

/// One sequence: the tokens that precede its rows, the number of its rows, and the length of the prefix that it shares
/// with sequence 0.
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    pub before: usize,
    pub rows: usize,
    pub shared: usize,
}

impl Sequence {
    /// A sequence that decodes one row after so many tokens.
    pub fn one(before: usize) -> Self {
        Self { before, rows: 1, shared: 0 }
    }
}

impl Bed {
    pub fn new(seed: u64, shape: Shape, sequences: &[Sequence], save_kv: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let Shape { dtype, head_dim, kv_heads, group, block_size, order, layers, layer } = shape;
        let needed = |sequence: &Sequence| (sequence.before + sequence.rows).div_ceil(block_size);
        let blocks = sequences.iter().map(needed).sum::<usize>() + 3;
        let layout = Layout { layers, blocks, block_size, kv_heads, head_dim, value_dim: head_dim, dtype, order };
        let mut free: Vec<u32> = (0..blocks as u32).collect();
        random.shuffle(&mut free);
        let mut bed = Self {
            layout,
            query_heads: kv_heads * group,
            scale: 1.0 / (head_dim as f32).sqrt(),
            blocks: Vec::new(),
            offsets: vec![0],
            contexts: Vec::new(),
            rows: vec![0],
            save_kv,
            slots: Vec::new(),
            queries: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            storage: vec![NAN; layout.elements()],
            whole: Vec::new(),
        };
        sequences.iter().for_each(|sequence| bed.add(&mut random, &mut free, layer, *sequence));
        bed
    }

    fn add(&mut self, random: &mut Rng, free: &mut Vec<u32>, layer: usize, sequence: Sequence) {
        let Sequence { before, rows, shared } = sequence;
        let layout = self.layout;
        let (context, row) = (before + rows, layout.row_elements());
        let draw = |random: &mut Rng, elements: usize, by: f32| -> Vec<u16> {
            (0..elements).map(|_| encode(layout.dtype, normal(random) * by)).collect()
        };
        let (mut keys, mut values) = (draw(random, context * row, 1.0), draw(random, context * row, 1.0));
        let mut table: Vec<u32> = Vec::new();
        if shared > 0 {
            assert_eq!(shared % layout.block_size, 0);
            keys[..shared * row].copy_from_slice(&self.whole[0].0[..shared * row]);
            values[..shared * row].copy_from_slice(&self.whole[0].1[..shared * row]);
            table.extend(&self.blocks[..shared / layout.block_size]);
        }
        let stored = if self.save_kv { context } else { before };
        while table.len() < stored.div_ceil(layout.block_size) {
            table.push(free.pop().expect("a block"));
        }
        for token in 0..before {
            for head in 0..layout.kv_heads {
                let from = token * row + head * layout.head_dim;
                for (half, source) in [(Half::Keys, &keys), (Half::Values, &values)] {
                    let (block, at) = (table[token / layout.block_size], token % layout.block_size);
                    let to = layout.index(layer, half, block, at, head);
                    self.storage[to..to + layout.head_dim].copy_from_slice(&source[from..from + layout.head_dim]);
                }
            }
        }
        if self.save_kv {
            let slot = |token: usize| {
                u64::from(table[token / layout.block_size]) * layout.block_size as u64
                    + (token % layout.block_size) as u64
            };
            self.slots.extend((before..context).map(slot));
        }
        for _ in 0..rows * self.query_heads {
            // Half of the rows give scores whose powers of two leave the range of a float.
            let size = if random.bool() { 2.0 } else { 60.0 };
            self.queries.extend(draw(random, layout.head_dim, size));
        }
        self.keys.extend(&keys[before * row..]);
        self.values.extend(&values[before * row..]);
        self.blocks.extend(&table);
        self.blocks.extend([NO_BLOCK; 2]);
        self.offsets.push(self.blocks.len() as u32);
        self.contexts.push(context as u32);
        self.rows.push(self.rows.last().expect("a first offset") + rows as u32);
        self.whole.push((keys, values));
    }

    pub fn batch(&self) -> Batch<'_> {
        Batch {
            query_heads: self.query_heads,
            scale: self.scale,
            scoring: Scoring::default(),
            tables: Tables { blocks: &self.blocks, offsets: &self.offsets },
            contexts: &self.contexts,
            rows: &self.rows,
            save_kv: self.save_kv,
            slots: &self.slots,
        }
    }

    /// Queries, keys and values of the rows, on a device.
    pub fn upload(&self, device: &Device) -> [Buffer<u16>; 3] {
        [&self.queries, &self.keys, &self.values].map(|elements| device.upload(elements).expect("memory"))
    }

    pub fn total_rows(&self) -> usize {
        *self.rows.last().expect("a first offset") as usize
    }

    /// The storage after the rows are appended in `layer`.
    pub fn appended(&self, layer: usize) -> Vec<u16> {
        let (layout, mut storage) = (self.layout, self.storage.clone());
        for (row, slot) in self.slots.iter().enumerate() {
            let (block, token) = ((slot / layout.block_size as u64) as u32, (slot % layout.block_size as u64) as usize);
            for head in 0..layout.kv_heads {
                let from = (row * layout.kv_heads + head) * layout.head_dim;
                for (half, source) in [(Half::Keys, &self.keys), (Half::Values, &self.values)] {
                    let to = layout.index(layer, half, block, token, head);
                    storage[to..to + layout.head_dim].copy_from_slice(&source[from..from + layout.head_dim]);
                }
            }
        }
        storage
    }

    /// Compares outputs and log-sum-exps with causal attention in `f64`.
    pub fn check(&self, what: &str, out: &[u16], lse: Option<&[f32]>) {
        let (layout, heads) = (self.layout, self.query_heads);
        let (dim, group) = (layout.head_dim, heads / layout.kv_heads);
        let (mut wrong, mut size) = (0.0, 0.0);
        let decode = |element: &u16| decode(layout.dtype, *element);
        for (sequence, (keys, values)) in self.whole.iter().enumerate() {
            let keys: Vec<f64> = keys.iter().map(decode).collect();
            let values: Vec<f64> = values.iter().map(decode).collect();
            let rows = self.rows[sequence] as usize..self.rows[sequence + 1] as usize;
            for row in rows.clone() {
                let seen = self.contexts[sequence] as usize + row + 1 - rows.end;
                for head in 0..heads {
                    let at = (row * heads + head) * dim;
                    let query: Vec<f64> = self.queries[at..at + dim].iter().map(decode).collect();
                    let place = |token: usize| (token * layout.kv_heads + head / group) * dim;
                    let score = |token: usize| {
                        let key = &keys[place(token)..place(token) + dim];
                        query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * f64::from(self.scale)
                    };
                    let scores: Vec<f64> = (0..seen).map(score).collect();
                    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
                    let mut expected = vec![0.0; dim];
                    for (token, score) in scores.iter().enumerate() {
                        let weight = (score - most).exp() / sum;
                        let value = &values[place(token)..place(token) + dim];
                        expected.iter_mut().zip(value).for_each(|(sum, v)| *sum += weight * v);
                    }
                    for (got, expected) in out[at..at + dim].iter().zip(expected) {
                        let got = decode(got);
                        assert!(got.is_finite(), "{what}: row {row}, head {head} is not finite");
                        wrong += (got - expected).powi(2);
                        size += expected.powi(2);
                    }
                    if let Some(lse) = lse {
                        let (got, expected) = (f64::from(lse[row * heads + head]), most + sum.ln());
                        assert!(
                            (got - expected).abs() < 2e-3,
                            "{what}: lse of row {row}, head {head}: {got}, {expected}"
                        );
                    }
                }
            }
        }
        let error = (wrong / size).sqrt();
        assert!(error <= bound(layout.dtype), "{what}: relative error {error:.2e}");
    }
}
