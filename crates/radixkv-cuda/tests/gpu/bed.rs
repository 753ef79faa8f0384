//! Batches of random numbers, and their attention in `f64`.

use fastrand::Rng;
use radixkv_attention::{Batch, Dtype, Half, Layout, Order, Scoring, Tables, element};
use radixkv_cuda::{Buffer, Device};

/// Nearly normal, of variance 1: a sum of twelve uniform numbers.
pub fn normal(random: &mut Rng) -> f32 {
    (0..12).map(|_| random.f32()).sum::<f32>() - 6.0
}

/// The bits of the nearest element, ties to even; not by the crate's own rounding, which is under
/// test.
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

/// A batch of sequences with random keys and values, its storage, and the arrays that a backend
/// takes.
#[derive(Clone)]
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
    pub scoring: Scores,
    /// A mask of each row, or none.
    pub trees: Vec<u32>,
    /// Static scales of keys and of values, one for each head.
    pub scales: [Vec<f32>; 2],
    /// Queries, keys and values of the rows.
    pub queries: Vec<u16>,
    pub keys: Vec<u16>,
    pub values: Vec<u16>,
    /// The storage's memory, in words of 16 bits: the context that precedes the rows, and NaN
    /// elsewhere.
    pub storage: Vec<u16>,
    /// Keys and values of the whole context of each sequence: `[token][kv head][element]`.
    pub whole: Vec<(Vec<u16>, Vec<u16>)>,
}

/// What a model does with scores.
#[derive(Debug, Clone, Default)]
pub struct Scores {
    pub window: Option<u32>,
    pub soft_cap: Option<f32>,
    /// Of two layers, or none.
    pub sinks: Vec<f32>,
    pub slopes: Vec<f32>,
}

/// The model and the storage of a bed.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub dtype: Dtype,
    pub head_dim: usize,
    /// Of values, if it is another one.
    pub value_dim: Option<usize>,
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
        value_dim: None,
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

/// One sequence: the tokens that precede its rows, the number of its rows, and the length of the
/// prefix that it shares with sequence 0.
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
        let Shape { dtype, head_dim, kv_heads, group, block_size, order, layers, layer, .. } = shape;
        let value_dim = shape.value_dim.unwrap_or(head_dim);
        let needed = |sequence: &Sequence| (sequence.before + sequence.rows).div_ceil(block_size);
        let blocks = sequences.iter().map(needed).sum::<usize>() + 3;
        let layout = Layout { layers, blocks, block_size, kv_heads, head_dim, value_dim, dtype, order };
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
            scoring: Scores::default(),
            trees: Vec::new(),
            scales: [0.5, 1.5].map(|by| (0..kv_heads).map(|head| (by + head as f32) / 100.0).collect()),
            queries: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            storage: vec![NAN; layout.halves().len() * layers * blocks * block_bytes(&layout) / 2],
            whole: Vec::new(),
        };
        sequences.iter().for_each(|sequence| bed.add(&mut random, &mut free, layer, *sequence));
        bed
    }

    /// The storage of a bed made anew from the same seed, with the scales that this one has by now.
    pub fn refilled(bed: &Self, seed: u64, shape: Shape) -> Vec<u16> {
        let mut again = Self { storage: vec![NAN; bed.storage.len()], ..Self::new(seed, shape, &[], true) };
        again.layout = bed.layout;
        again.scales.clone_from(&bed.scales);
        let mut storage = std::mem::take(&mut again.storage);
        for (sequence, (keys, values)) in bed.whole.iter().enumerate() {
            let before = bed.contexts[sequence] as usize - (bed.rows[sequence + 1] - bed.rows[sequence]) as usize;
            let table = &bed.blocks[bed.offsets[sequence] as usize..];
            for token in 0..before {
                let place = (table[token / bed.layout.block_size], token % bed.layout.block_size);
                let [key, value] = [Half::Keys, Half::Values].map(|half| token * bed.layout.appended_elements(half));
                again.store(&mut storage, shape.layer, place, [&keys[key..], &values[value..]]);
            }
        }
        storage
    }

    fn add(&mut self, random: &mut Rng, free: &mut Vec<u32>, layer: usize, sequence: Sequence) {
        let Sequence { before, rows, shared } = sequence;
        let layout = self.layout;
        let (context, row_dtype) = (before + rows, rows_of(layout.dtype));
        let [key_row, value_row] = [Half::Keys, Half::Values].map(|half| layout.appended_elements(half));
        let draw = |random: &mut Rng, elements: usize, by: f32| -> Vec<u16> {
            (0..elements).map(|_| encode(row_dtype, normal(random) * by)).collect()
        };
        let (mut keys, mut values) = (draw(random, context * key_row, 1.0), draw(random, context * value_row, 1.0));
        let mut table: Vec<u32> = Vec::new();
        if shared > 0 {
            assert_eq!(shared % layout.block_size, 0);
            keys[..shared * key_row].copy_from_slice(&self.whole[0].0[..shared * key_row]);
            values[..shared * value_row].copy_from_slice(&self.whole[0].1[..shared * value_row]);
            table.extend(&self.blocks[..shared / layout.block_size]);
        }
        let stored = if self.save_kv { context } else { before };
        while table.len() < stored.div_ceil(layout.block_size) {
            table.push(free.pop().expect("a block"));
        }
        for token in 0..before {
            let place = (table[token / layout.block_size], token % layout.block_size);
            let mut storage = std::mem::take(&mut self.storage);
            self.store(&mut storage, layer, place, [&keys[token * key_row..], &values[token * value_row..]]);
            self.storage = storage;
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
        self.keys.extend(&keys[before * key_row..]);
        self.values.extend(&values[before * value_row..]);
        self.blocks.extend(&table);
        self.blocks.extend([NO_BLOCK; 2]);
        self.offsets.push(self.blocks.len() as u32);
        self.contexts.push(context as u32);
        self.rows.push(self.rows.last().expect("a first offset") + rows as u32);
        self.whole.push((keys, values));
    }

    /// The same sequences in blocks of another size.
    pub fn in_blocks_of(&self, block_size: usize, layer: usize) -> Self {
        let blocks_of = |context: u32| (context as usize).div_ceil(block_size);
        let blocks = self.contexts.iter().map(|context| blocks_of(*context)).sum::<usize>();
        let layout = Layout { block_size, blocks, ..self.layout };
        let storage = vec![NAN; layout.halves().len() * layout.layers * blocks * block_bytes(&layout) / 2];
        let mut again = Self { layout, blocks: Vec::new(), offsets: vec![0], slots: Vec::new(), ..self.clone() };
        again.storage = storage;
        for (sequence, (keys, values)) in self.whole.iter().enumerate() {
            let (context, first) = (self.contexts[sequence], again.blocks.len());
            let before = context as usize - (self.rows[sequence + 1] - self.rows[sequence]) as usize;
            again.blocks.extend((first..first + blocks_of(context)).map(|block| (blocks - 1 - block) as u32));
            again.offsets.push(again.blocks.len() as u32);
            for token in 0..context as usize {
                let (block, at) = (again.blocks[first + token / block_size], token % block_size);
                let [key, value] = [Half::Keys, Half::Values].map(|half| token * layout.appended_elements(half));
                if token < before {
                    let mut storage = std::mem::take(&mut again.storage);
                    again.store(&mut storage, layer, (block, at), [&keys[key..], &values[value..]]);
                    again.storage = storage;
                } else {
                    again.slots.push(u64::from(block) * block_size as u64 + at as u64);
                }
            }
        }
        again
    }

    pub fn batch(&self) -> Batch<'_> {
        Batch {
            query_heads: self.query_heads,
            scale: self.scale,
            scoring: Scoring {
                window: self.scoring.window,
                soft_cap: self.scoring.soft_cap,
                sinks: &self.scoring.sinks,
                alibi_slopes: &self.scoring.slopes,
                trees: &self.trees,
            },
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
            let [keys, values] = [Half::Keys, Half::Values].map(|half| row * layout.appended_elements(half));
            self.store(&mut storage, layer, (block, token), [&self.keys[keys..], &self.values[values..]]);
        }
        storage
    }

    /// Puts the rows of a token, of all heads, into its place.
    fn store(&self, storage: &mut [u16], layer: usize, (block, token): (u32, usize), rows: [&[u16]; 2]) {
        let layout = self.layout;
        let piece = block_bytes(&layout);
        for (&half, rows) in layout.halves().iter().zip(rows) {
            let of = layout.of(half);
            let plane = layout.halves().len() * layer + half as usize;
            let block_at = (plane * layout.blocks + block as usize) * piece;
            for head in 0..layout.kv_heads {
                let (bytes, scale) = self.stored(half, head, &rows[head * of.head_dim..][..of.head_dim]);
                let element = token * of.token_stride() + head * of.head_stride();
                let at = block_at + element * layout.dtype.bytes();
                words(&bytes).zip(&mut storage[at / 2..]).for_each(|(word, to)| *to = word);
                if layout.dtype.has_scales() && !layout.dtype.has_static_scales() {
                    let at = block_at + of.block_elements() + (head * layout.block_size + token) * 4;
                    words(&scale.to_le_bytes()).zip(&mut storage[at / 2..]).for_each(|(word, to)| *to = word);
                }
            }
        }
    }

    /// A head's row as it is stored, and its scale.
    fn stored(&self, half: Half, head: usize, row: &[u16]) -> (Vec<u8>, f32) {
        let dtype = self.layout.dtype;
        if !dtype.has_scales() {
            return (row.iter().flat_map(|element| element.to_le_bytes()).collect(), 1.0);
        }
        let row: Vec<f32> = row.iter().map(|element| decode(Dtype::Bf16, *element) as f32).collect();
        let (mut integers, mut bits) = (vec![0; row.len()], vec![0; row.len()]);
        match dtype {
            Dtype::I8 => {
                let scale = element::quantize(&row, &mut integers);
                (integers.iter().map(|integer| *integer as u8).collect(), scale)
            }
            Dtype::E4m3 => {
                let scale = element::quantize_e4m3(&row, &mut bits);
                (bits, scale)
            }
            _ => {
                let scale = self.scales[half as usize][head];
                (row.iter().map(|value| element::to_bits(dtype, value / scale) as u8).collect(), scale)
            }
        }
    }

    /// A head's row as it is read.
    fn read(&self, half: Half, head: usize, row: &[u16]) -> Vec<f64> {
        let dtype = self.layout.dtype;
        if !dtype.has_scales() {
            return row.iter().map(|element| decode(dtype, *element)).collect();
        }
        let (bytes, scale) = self.stored(half, head, row);
        bytes.iter().map(|byte| f64::from(element::from_bits(dtype, (*byte).into())) * f64::from(scale)).collect()
    }

    /// Whether a row of a sequence sees a token, and from which position its slopes count.
    fn sees(&self, sequence: usize, row: usize, token: usize) -> (bool, usize) {
        let rows = self.rows[sequence] as usize..self.rows[sequence + 1] as usize;
        let before = self.contexts[sequence] as usize - rows.len();
        let window = self.scoring.window.map_or(usize::MAX, |window| window as usize);
        match self.trees.get(row) {
            Some(mask) if token >= before => (mask >> (token - before) & 1 == 1, before),
            Some(mask) => (before + mask.count_ones() as usize - token <= window, before),
            None => {
                let position = before + row - rows.start;
                (token <= position && position - token < window, position)
            }
        }
    }

    /// Compares outputs and log-sum-exps with the definition in `f64`, over what is stored.
    pub fn check(&self, what: &str, out: &[u16], lse: Option<&[f32]>) {
        let error = self.error(what, out, lse, |half, head, row: &[u16]| self.read(half, head, row));
        assert!(error <= bound(rows_of(self.layout.dtype)), "{what}: relative error {error:.2e}");
    }

    /// The error of outputs relative to attention over the rows as they were before they were
    /// stored.
    pub fn error_of_storing(&self, what: &str, out: &[u16]) -> f64 {
        self.error(what, out, None, |_, _, row: &[u16]| row.iter().map(|x| decode(Dtype::Bf16, *x)).collect())
    }

    fn error(
        &self,
        what: &str,
        out: &[u16],
        lse: Option<&[f32]>,
        read: impl Fn(Half, usize, &[u16]) -> Vec<f64>,
    ) -> f64 {
        let (layout, heads) = (self.layout, self.query_heads);
        let (dim, value_dim, group) = (layout.head_dim, layout.value_dim, heads / layout.kv_heads);
        let row_dtype = rows_of(layout.dtype);
        let (mut wrong, mut size) = (0.0, 0.0);
        for (sequence, (keys, values)) in self.whole.iter().enumerate() {
            let context = self.contexts[sequence] as usize;
            let all = |half: Half, rows: &[u16], dim: usize| -> Vec<Vec<f64>> {
                rows.chunks(dim).enumerate().map(|(at, row)| read(half, at % layout.kv_heads, row)).collect()
            };
            let keys = all(Half::Keys, keys, dim);
            let values = if layout.has_values() { all(Half::Values, values, value_dim) } else { keys.clone() };
            for row in self.rows[sequence] as usize..self.rows[sequence + 1] as usize {
                for head in 0..heads {
                    let at = (row * heads + head) * dim;
                    let query: Vec<f64> = self.queries[at..at + dim].iter().map(|x| decode(row_dtype, *x)).collect();
                    let place = |token: usize| token * layout.kv_heads + head / group;
                    let score = |token: usize| {
                        let (sees, position) = self.sees(sequence, row, token);
                        if !sees {
                            return f64::NEG_INFINITY;
                        }
                        let product: f64 = query.iter().zip(&keys[place(token)]).map(|(q, k)| q * k).sum();
                        let scaled = product * f64::from(self.scale);
                        let capped = self.scoring.soft_cap.map_or(scaled, |cap| {
                            let cap = f64::from(cap);
                            cap * (scaled / cap).tanh()
                        });
                        let slope = self.scoring.slopes.get(head).map_or(0.0, |slope| f64::from(*slope));
                        capped - slope * (position as f64 - token as f64)
                    };
                    let scores: Vec<f64> = (0..context).map(score).collect();
                    let sink = self.scoring.sinks.get(heads + head).map_or(f64::NEG_INFINITY, |sink| f64::from(*sink));
                    let most = scores.iter().copied().fold(sink, f64::max);
                    let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum::<f64>() + (sink - most).exp();
                    let mut expected = vec![0.0; value_dim];
                    for (token, score) in scores.iter().enumerate() {
                        let weight = (score - most).exp() / sum;
                        expected.iter_mut().zip(&values[place(token)]).for_each(|(sum, v)| *sum += weight * v);
                    }
                    let got = &out[(row * heads + head) * value_dim..][..value_dim];
                    for (got, expected) in got.iter().zip(expected) {
                        let got = decode(row_dtype, *got);
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
        (wrong / size).sqrt()
    }
}

/// Type of queries, new keys and values, and outputs.
pub fn rows_of(stored: Dtype) -> Dtype {
    if stored.has_scales() { Dtype::Bf16 } else { stored }
}

/// Bytes of a block in a plane: of the larger of keys and values, and its own scales.
pub fn block_bytes(layout: &Layout) -> usize {
    let elements = layout.block_elements().max(layout.of(Half::Values).block_elements()) * layout.dtype.bytes();
    let own = layout.dtype.has_scales() && !layout.dtype.has_static_scales();
    elements + if own { (layout.kv_heads * layout.block_size * 4).next_multiple_of(16) } else { 0 }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}
