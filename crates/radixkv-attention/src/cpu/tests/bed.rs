//! Models, their sequences, and storage that is filled with them step by step.

use fastrand::Rng;

use super::{Cpu, CpuKv, Number, Processor, rows};
use crate::element::{from_bits, quantize, quantize_e4m3, round};
use crate::{Backend, Batch, Dtype, Half, Layout, MAX_GQA_GROUP, Order, Output, Qkv, Scoring, Tables, plan};
use radixkv::BlockId;

/// The heads of a model, its element type and its scoring.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) query_heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) value_dim: usize,
    /// Whether values are the first elements of keys.
    pub(super) latent: bool,
    pub(super) dtype: Dtype,
    /// Static scales of keys and of values, one for each of their heads.
    pub(super) kv_scales: [Vec<f32>; 2],
    pub(super) scale: f32,
    pub(super) window: Option<u32>,
    pub(super) soft_cap: Option<f32>,
    /// The sinks of two layers, or none.
    pub(super) sinks: Vec<f32>,
    /// The slope of each query head, or none.
    pub(super) slopes: Vec<f32>,
}

/// A sequence's queries, keys and values for each of its tokens.
pub(super) struct Text {
    pub(super) queries: Vec<f32>,
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
}

/// Types of elements.
pub(super) const DTYPES: [Dtype; 7] =
    [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::E4m3, Dtype::I8Static, Dtype::E4m3Static];

/// A static scale with which most rows fit, and some elements are too large.
fn static_scale(dtype: Dtype, dice: &mut Rng) -> f32 {
    let most = if dtype == Dtype::I8Static { 127.0 } else { 448.0 };
    (1.5 + dice.f32()) / most
}

/// The softmax scale of these tests; a larger one would multiply every error.
fn usual_scale(head_dim: usize) -> f32 {
    (head_dim as f32).sqrt().recip()
}

impl Model {
    pub(super) fn draw(dice: &mut Rng) -> Self {
        let kv_heads = dice.usize(1..=3);
        let latent = kv_heads == 1 && dice.bool();
        let query_heads = if latent { dice.usize(1..=24) } else { kv_heads * dice.usize(1..=MAX_GQA_GROUP) };
        let dtype = dice.choice(DTYPES).expect("one of them");
        let sizes = if dtype.has_scales() { [8, 16, 64, 128] } else { [4, 20, 64, 128] };
        let head_dim = dice.choice(sizes).expect("one of them");
        let other = dice.choice(sizes).expect("one of them");
        let value_dim = if latent { other.min(head_dim) } else { head_dim };
        let rarely = |dice: &mut Rng| dice.u8(..3) == 0;
        Self {
            query_heads,
            kv_heads,
            head_dim,
            scale: usual_scale(head_dim),
            value_dim: if !latent && rarely(dice) { other } else { value_dim },
            latent,
            dtype,
            kv_scales: [(); 2].map(|()| (0..kv_heads).map(|_| static_scale(dtype, dice)).collect()),
            window: rarely(dice).then(|| dice.u32(1..=200)),
            soft_cap: (dice.u8(..3) == 0).then(|| dice.f32() * 20.0 + 0.5),
            sinks: if dice.u8(..3) == 0 { rows(2, query_heads, dice) } else { Vec::new() },
            slopes: if dice.u8(..4) == 0 { (0..query_heads).map(|_| dice.f32() / 8.0).collect() } else { Vec::new() },
        }
    }

    /// A model with the default scoring.
    pub(super) fn small(query_heads: usize, kv_heads: usize, head_dim: usize, dtype: Dtype) -> Self {
        let (window, soft_cap, sinks, slopes) = (None, None, Vec::new(), Vec::new());
        let scale = usual_scale(head_dim);
        let kv_scales = [(); 2].map(|()| vec![1.0; kv_heads]);
        let (value_dim, latent) = (head_dim, false);
        Self {
            query_heads,
            kv_heads,
            head_dim,
            value_dim,
            latent,
            dtype,
            kv_scales,
            scale,
            window,
            soft_cap,
            sinks,
            slopes,
        }
    }

    /// A model over latent vectors, which always has the order `Latent`.
    pub(super) fn latent(query_heads: usize, head_dim: usize, value_dim: usize, dtype: Dtype) -> Self {
        Self { query_heads, value_dim, latent: true, ..Self::small(1, 1, head_dim, dtype) }
    }

    /// Elements of a token's values that are appended.
    pub(super) fn value_row(&self) -> usize {
        if self.latent { 0 } else { self.kv_heads * self.value_dim }
    }

    pub(super) fn layout(&self, block_size: usize, tokens: usize, order: Order) -> Layout {
        let Self { kv_heads, head_dim, value_dim, dtype, .. } = *self;
        let blocks = tokens.div_ceil(block_size) + 3;
        let order = if self.latent { Order::Latent } else { order };
        Layout { layers: 2, blocks, block_size, kv_heads, head_dim, value_dim, dtype, order }
    }

    pub(super) fn text(&self, tokens: usize, dice: &mut Rng) -> Text {
        Text {
            queries: rows(tokens, self.query_heads * self.head_dim, dice),
            keys: rows(tokens, self.kv_heads * self.head_dim, dice),
            values: rows(tokens, self.value_row(), dice),
        }
    }

    /// One head's row as it is read from the storage.
    pub(super) fn stored(&self, half: Half, head: usize, row: &[f32]) -> Vec<f64> {
        let (mut integers, mut bits) = (vec![0; row.len()], vec![0; row.len()]);
        match self.dtype {
            Dtype::I8 => {
                let scale = quantize(row, &mut integers);
                integers.iter().map(|integer| f64::from(f32::from(*integer) * scale)).collect()
            }
            Dtype::E4m3 => {
                let scale = quantize_e4m3(row, &mut bits);
                bits.iter().map(|bits| f64::from(from_bits(Dtype::E4m3, (*bits).into()) * scale)).collect()
            }
            Dtype::I8Static | Dtype::E4m3Static => {
                let scale = self.kv_scales[half as usize][head];
                row.iter().map(|element| f64::from(round(self.dtype, *element / scale) * scale)).collect()
            }
            dtype => row.iter().map(|element| f64::from(round(dtype, *element))).collect(),
        }
    }

    /// Computes the definition for the token at `position` and one query head: the output and the
    /// log-sum-exp.
    pub(super) fn defined(&self, text: &Text, layer: usize, position: usize, head: usize) -> (Vec<f64>, f64) {
        let (d, v, kv_head) = (self.head_dim, self.value_dim, head / (self.query_heads / self.kv_heads));
        let query = &text.queries[(position * self.query_heads + head) * d..][..d];
        let row = |half: Half, rows: &[f32], token: usize, dim: usize| {
            self.stored(half, kv_head, &rows[(token * self.kv_heads + kv_head) * dim..][..dim])
        };
        let seen = self.window.map_or(0, |window| (position + 1).saturating_sub(window as usize))..=position;
        let score = |token: usize| {
            let products = row(Half::Keys, &text.keys, token, d)
                .into_iter()
                .zip(query)
                .map(|(key, query)| key * f64::from(*query));
            let scaled = f64::from(self.scale) * products.sum::<f64>();
            let capped = self.soft_cap.map_or(scaled, |cap| f64::from(cap) * (scaled / f64::from(cap)).tanh());
            capped - self.slopes.get(head).map_or(0.0, |slope| f64::from(*slope) * (position - token) as f64)
        };
        let scores: Vec<f64> = seen.clone().map(score).collect();
        let sink = self.sinks.get(layer * self.query_heads + head).map(|sink| f64::from(*sink));
        let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let base = if max == f64::NEG_INFINITY { 0.0 } else { max };
        let weights: Vec<f64> = scores.iter().map(|score| (score - base).exp()).collect();
        let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - base).exp());
        let mut out = vec![0.0; v];
        for (token, weight) in seen.zip(&weights) {
            let value = match self.latent {
                true => row(Half::Keys, &text.keys, token, d),
                false => row(Half::Values, &text.values, token, v),
            };
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
        }
        (out.into_iter().map(|out| out / sum).collect(), max + sum.ln())
    }
}

/// Storage with the block tables of some sequences, filled step by step.
pub(super) struct Bed {
    pub(super) model: Model,
    pub(super) kv: CpuKv,
    pub(super) tables: Vec<Vec<BlockId>>,
    pub(super) layer: usize,
}

/// The sequences of a step, each with the tokens whose rows are computed.
pub(super) type Chunks = Vec<(usize, std::ops::Range<usize>)>;

/// Flat arrays of a batch.
pub(super) struct Flat {
    pub(super) blocks: Vec<BlockId>,
    pub(super) offsets: Vec<u32>,
    pub(super) contexts: Vec<u32>,
    pub(super) rows: Vec<u32>,
    pub(super) slots: Vec<u64>,
    pub(super) trees: Vec<u32>,
}

impl Bed {
    /// Storage whose elements are all NaN, and tables of shuffled blocks.
    pub(super) fn new(model: Model, block_size: usize, order: Order, lengths: &[usize], dice: &mut Rng) -> Self {
        let blocks_of = |tokens: &usize| tokens.div_ceil(block_size);
        let total: usize = lengths.iter().map(blocks_of).sum();
        let kv = Cpu.allocate(model.layout(block_size, total * block_size, order)).expect("a small layout");
        let layout = *kv.layout();
        if layout.dtype.has_static_scales() {
            for (layer, half) in (0..2).flat_map(|layer| layout.halves().iter().map(move |half| (layer, *half))) {
                kv.set_scales(layer, half, &model.kv_scales[half as usize]).expect("scales");
            }
        }
        for (half, slot) in layout.halves().iter().flat_map(|h| (0..kv.layout().slots()).map(move |s| (*h, s))) {
            let nothing = vec![f32::NAN; layout.of(half).row_elements()];
            (0..2).for_each(|layer| kv.write(layer, half, slot, &nothing));
        }
        let mut ids: Vec<BlockId> = (0..kv.layout().blocks as BlockId).collect();
        dice.shuffle(&mut ids);
        let tables = lengths.iter().map(|tokens| ids.split_off(ids.len() - blocks_of(tokens))).collect();
        Self { model, kv, tables, layer: dice.usize(..2) }
    }

    /// Makes all sequences begin with the first tokens of the first one, in its blocks.
    pub(super) fn share(&mut self, texts: &mut [Text], shared: usize) {
        let Model { kv_heads, head_dim, .. } = self.model;
        let value_row = self.model.value_row();
        let blocks = shared / self.kv.layout().block_size;
        let ((first, rest), (prefix, tables)) = (texts.split_at_mut(1), self.tables.split_at_mut(1));
        for (text, table) in rest.iter_mut().zip(tables) {
            let (keys, values) = (shared * kv_heads * head_dim, shared * value_row);
            text.keys[..keys].copy_from_slice(&first[0].keys[..keys]);
            text.values[..values].copy_from_slice(&first[0].values[..values]);
            table[..blocks].copy_from_slice(&prefix[0][..blocks]);
        }
    }

    pub(super) fn flat(&self, chunks: &Chunks) -> Flat {
        let block_size = self.kv.layout().block_size;
        let mut flat =
            Flat { blocks: vec![], offsets: vec![0], contexts: vec![], rows: vec![0], slots: vec![], trees: vec![] };
        for (sequence, tokens) in chunks {
            let table = &self.tables[*sequence];
            flat.blocks.extend_from_slice(table);
            flat.offsets.push(flat.blocks.len() as u32);
            flat.contexts.push(tokens.end as u32);
            let slot = |token: usize| (table[token / block_size] as usize * block_size + token % block_size) as u64;
            flat.slots.extend(tokens.clone().map(slot));
            flat.rows.push(flat.slots.len() as u32);
        }
        flat
    }

    pub(super) fn batch<'a>(&'a self, flat: &'a Flat, save_kv: bool) -> Batch<'a> {
        Batch {
            query_heads: self.model.query_heads,
            scale: self.model.scale,
            scoring: Scoring {
                window: self.model.window,
                soft_cap: self.model.soft_cap,
                sinks: &self.model.sinks,
                alibi_slopes: &self.model.slopes,
                trees: &flat.trees,
            },
            tables: Tables { blocks: &flat.blocks, offsets: &flat.offsets },
            contexts: &flat.contexts,
            rows: &flat.rows,
            save_kv,
            slots: if save_kv { &flat.slots } else { &[] },
        }
    }

    /// The rows of a step, taken from those of whole sequences.
    pub(super) fn gather<E: Number>(chunks: &Chunks, texts: &[Text], of: fn(&Text) -> &Vec<f32>, row: usize) -> Vec<E> {
        let piece = |(sequence, tokens): &(usize, std::ops::Range<usize>)| {
            of(&texts[*sequence])[tokens.start * row..tokens.end * row].to_vec()
        };
        chunks.iter().flat_map(piece).map(E::narrow).collect()
    }

    /// Appends all tokens of all sequences, and computes nothing.
    pub(super) fn append_all(&self, lengths: &[usize], texts: &[Text]) {
        let prompts: Chunks = lengths.iter().map(|tokens| 0..*tokens).enumerate().collect();
        let (flat, layout) = (self.flat(&prompts), *self.kv.layout());
        let prepared = Cpu.prepare(&layout, &self.batch(&flat, true)).expect("a good batch");
        let keys = Self::gather(&prompts, texts, |text| &text.keys, layout.row_elements());
        let values = Self::gather(&prompts, texts, |text| &text.values, self.model.value_row());
        Cpu.append(&self.kv, self.layer, &prepared, &keys, &values).expect("rows");
    }

    /// Computes a step: its outputs and log-sum-exps.
    pub(super) fn step<E: Number>(
        &self,
        on: &Processor<E>,
        chunks: &Chunks,
        texts: &[Text],
        how: How,
    ) -> (Vec<E>, Vec<f32>) {
        self.step_of_tree(on, chunks, &[], texts, how)
    }

    /// As `step`, with a tree mask for each row, or none.
    pub(super) fn step_of_tree<E: Number>(
        &self,
        on: &Processor<E>,
        chunks: &Chunks,
        trees: &[u32],
        texts: &[Text],
        how: How,
    ) -> (Vec<E>, Vec<f32>) {
        let flat = Flat { trees: trees.to_vec(), ..self.flat(chunks) };
        let batch = self.batch(&flat, how != How::Discard);
        let layout = *self.kv.layout();
        let prepared = on.prepare(&layout, &batch).expect("a good batch");
        let query_row = self.model.query_heads * self.model.head_dim;
        let queries: Vec<E> = Self::gather(chunks, texts, |text| &text.queries, query_row);
        let keys: Vec<E> = Self::gather(chunks, texts, |text| &text.keys, layout.row_elements());
        let values: Vec<E> = Self::gather(chunks, texts, |text| &text.values, self.model.value_row());
        let heads = batch.total_rows() * self.model.query_heads;
        let (mut rows, mut lse) = (vec![E::narrow(7.0); heads * self.model.value_dim], vec![7.0; heads]);
        let out = Output { rows: rows.as_mut_slice(), lse: Some(lse.as_mut_slice()) };
        let done = match how {
            How::Extend | How::Discard => {
                let new = Qkv { queries: queries.as_slice(), keys: &keys, values: &values };
                on.extend(&self.kv, self.layer, &prepared, new, out)
            }
            How::Decode => on
                .append(&self.kv, self.layer, &prepared, &keys, &values)
                .and_then(|()| on.decode(&self.kv, self.layer, &prepared, &queries, out)),
            How::Cascade => {
                let sharing = plan::share(batch.tables, batch.contexts, layout.block_size, on.rule(&layout));
                let cascade = on.prepare_cascade(&layout, &batch, &sharing).expect("a plan of this batch");
                on.append(&self.kv, self.layer, &prepared, &keys, &values)
                    .and_then(|()| on.cascade(&self.kv, self.layer, &prepared, &cascade, &queries, out))
            }
        };
        done.expect("a good step");
        (rows, lse)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum How {
    Extend,
    Discard,
    Decode,
    Cascade,
}

pub(super) fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// Puts NaNs, infinities and large numbers at some places.
pub(super) fn spoil(text: &mut Text, dice: &mut Rng) {
    for rows in [&mut text.queries, &mut text.keys, &mut text.values] {
        if !rows.is_empty() && dice.u8(..3) == 0 {
            let at = dice.usize(..rows.len());
            rows[at] = dice.choice([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 70_000.0]).expect("one of them");
        }
    }
}

/// As `spoil`, for the sinks of a model that has some.
pub(super) fn spoil_sinks(model: &mut Model, dice: &mut Rng) {
    for sink in &mut model.sinks {
        if dice.u8(..4) == 0 {
            *sink = dice.choice([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -70_000.0]).expect("one of them");
        }
    }
}

/// Whether both are equal, both NaN, or less than `by` apart.
pub(super) fn close(defined: f64, computed: f32, by: f64) -> bool {
    let computed = f64::from(computed);
    defined == computed || (defined.is_nan() && computed.is_nan()) || (defined - computed).abs() < by
}
