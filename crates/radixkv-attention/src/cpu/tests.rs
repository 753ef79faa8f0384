//! The CPU backend against the definition in `f64`, and against itself: the same bits however a step is cut, and whatever
//! computes it.

mod edges;
mod hostile;
mod numbers;

use std::sync::LazyLock;

use fastrand::Rng;

use super::*;
use crate::element::{quantize, round};
use crate::{
    Backend, Batch, Dtype, Half, Layout, MAX_GQA_GROUP, Order, Output, Qkv, Scoring, ShapeError, Tables, plan,
};
use radixkv::BlockId;

fn rows(rows: usize, row: usize, dice: &mut Rng) -> Vec<f32> {
    (0..rows * row).map(|_| dice.f32() * 4.0 - 2.0).collect()
}

/// Every level of instructions that this processor has, on one to four threads.
static PROCESSORS: LazyLock<Vec<Processor>> = LazyLock::new(|| {
    let on = |threads| Processor::with_threads(threads).expect("threads");
    let all = std::iter::once(Processor::new()).chain((2..=4).map(on));
    all.flat_map(|processor| kernels::Level::all().map(move |level| processor.clone().at(level))).collect()
});

/// The first level on the caller's thread.
fn plain() -> &'static Processor {
    &PROCESSORS[0]
}

fn any(dice: &mut Rng) -> &'static Processor {
    &PROCESSORS[dice.usize(..PROCESSORS.len())]
}

/// Heads of a model, and what it does with scores.
#[derive(Debug, Clone)]
struct Model {
    query_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    value_dim: usize,
    dtype: Dtype,
    window: Option<u32>,
    soft_cap: Option<f32>,
    /// Of two layers, or none.
    sinks: Vec<f32>,
}

/// A sequence's queries, keys and values for each of its tokens.
struct Text {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Model {
    fn draw(dice: &mut Rng) -> Self {
        let kv_heads = dice.usize(1..=3);
        let query_heads = kv_heads * dice.usize(1..=MAX_GQA_GROUP);
        let dtype = dice.choice([Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8]).expect("one of them");
        let sizes = if dtype == Dtype::I8 { [8, 16, 64, 128] } else { [4, 20, 64, 128] };
        let head_dim = dice.choice(sizes).expect("one of them");
        let other = dice.choice(sizes).expect("one of them");
        let mut rarely = |model: f32| (dice.u8(..3) == 0).then_some(model);
        Self {
            query_heads,
            kv_heads,
            head_dim,
            value_dim: rarely(0.0).map_or(head_dim, |_| other),
            dtype,
            window: rarely(0.0).map(|_| dice.u32(1..=200)),
            soft_cap: (dice.u8(..3) == 0).then(|| dice.f32() * 20.0 + 0.5),
            sinks: if dice.u8(..3) == 0 { rows(2, query_heads, dice) } else { Vec::new() },
        }
    }

    /// Without scoring of its own.
    fn small(query_heads: usize, kv_heads: usize, head_dim: usize, dtype: Dtype) -> Self {
        let (window, soft_cap, sinks) = (None, None, Vec::new());
        Self { query_heads, kv_heads, head_dim, value_dim: head_dim, dtype, window, soft_cap, sinks }
    }

    fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }

    fn layout(&self, block_size: usize, tokens: usize, order: Order) -> Layout {
        let Self { kv_heads, head_dim, value_dim, dtype, .. } = *self;
        let blocks = tokens.div_ceil(block_size) + 3;
        Layout { layers: 2, blocks, block_size, kv_heads, head_dim, value_dim, dtype, order }
    }

    fn text(&self, tokens: usize, dice: &mut Rng) -> Text {
        Text {
            queries: rows(tokens, self.query_heads * self.head_dim, dice),
            keys: rows(tokens, self.kv_heads * self.head_dim, dice),
            values: rows(tokens, self.kv_heads * self.value_dim, dice),
        }
    }

    /// One head's row as it is read from the storage.
    fn stored(&self, row: &[f32]) -> Vec<f64> {
        let mut integers = vec![0; row.len()];
        match self.dtype {
            Dtype::I8 => {
                let scale = quantize(row, &mut integers);
                integers.iter().map(|integer| f64::from(f32::from(*integer) * scale)).collect()
            }
            dtype => row.iter().map(|element| f64::from(round(dtype, *element))).collect(),
        }
    }

    /// The definition, for the token at `position` and one query head: the output and the log-sum-exp.
    fn defined(&self, text: &Text, layer: usize, position: usize, head: usize) -> (Vec<f64>, f64) {
        let (d, v, kv_head) = (self.head_dim, self.value_dim, head / (self.query_heads / self.kv_heads));
        let query = &text.queries[(position * self.query_heads + head) * d..][..d];
        let row = |rows: &[f32], token: usize, dim: usize| {
            self.stored(&rows[(token * self.kv_heads + kv_head) * dim..][..dim])
        };
        let seen = self.window.map_or(0, |window| (position + 1).saturating_sub(window as usize))..=position;
        let score = |token: usize| {
            let products = row(&text.keys, token, d).into_iter().zip(query).map(|(key, query)| key * f64::from(*query));
            let scaled = f64::from(self.scale()) * products.sum::<f64>();
            self.soft_cap.map_or(scaled, |cap| f64::from(cap) * (scaled / f64::from(cap)).tanh())
        };
        let scores: Vec<f64> = seen.clone().map(score).collect();
        let sink = self.sinks.get(layer * self.query_heads + head).map(|sink| f64::from(*sink));
        let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let base = if max == f64::NEG_INFINITY { 0.0 } else { max };
        let weights: Vec<f64> = scores.iter().map(|score| (score - base).exp()).collect();
        let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - base).exp());
        let mut out = vec![0.0; v];
        for (token, weight) in seen.zip(&weights) {
            out.iter_mut().zip(row(&text.values, token, v)).for_each(|(out, value)| *out += weight * value);
        }
        (out.into_iter().map(|out| out / sum).collect(), max + sum.ln())
    }
}

/// Storage with the block tables of some sequences, filled step by step.
struct Bed {
    model: Model,
    kv: CpuKv,
    tables: Vec<Vec<BlockId>>,
    layer: usize,
}

/// The sequences of a step, each with the tokens whose rows are computed.
type Chunks = Vec<(usize, std::ops::Range<usize>)>;

/// Flat arrays of a batch.
struct Flat {
    blocks: Vec<BlockId>,
    offsets: Vec<u32>,
    contexts: Vec<u32>,
    rows: Vec<u32>,
    slots: Vec<u64>,
}

impl Bed {
    /// Storage whose elements are all NaN, and tables of shuffled blocks.
    fn new(model: Model, block_size: usize, order: Order, lengths: &[usize], dice: &mut Rng) -> Self {
        let blocks_of = |tokens: &usize| tokens.div_ceil(block_size);
        let total: usize = lengths.iter().map(blocks_of).sum();
        let kv = Cpu.allocate(model.layout(block_size, total * block_size, order)).expect("a small layout");
        let layout = *kv.layout();
        for (half, slot) in
            [Half::Keys, Half::Values].into_iter().flat_map(|h| (0..kv.layout().slots()).map(move |s| (h, s)))
        {
            let nothing = vec![f32::NAN; layout.of(half).row_elements()];
            (0..2).for_each(|layer| kv.write(layer, half, slot, &nothing));
        }
        let mut ids: Vec<BlockId> = (0..kv.layout().blocks as BlockId).collect();
        dice.shuffle(&mut ids);
        let tables = lengths.iter().map(|tokens| ids.split_off(ids.len() - blocks_of(tokens))).collect();
        Self { model, kv, tables, layer: dice.usize(..2) }
    }

    fn flat(&self, chunks: &Chunks) -> Flat {
        let block_size = self.kv.layout().block_size;
        let mut flat = Flat { blocks: vec![], offsets: vec![0], contexts: vec![], rows: vec![0], slots: vec![] };
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

    fn batch<'a>(&'a self, flat: &'a Flat, save_kv: bool) -> Batch<'a> {
        Batch {
            query_heads: self.model.query_heads,
            scale: self.model.scale(),
            scoring: Scoring { window: self.model.window, soft_cap: self.model.soft_cap, sinks: &self.model.sinks },
            tables: Tables { blocks: &flat.blocks, offsets: &flat.offsets },
            contexts: &flat.contexts,
            rows: &flat.rows,
            save_kv,
            slots: if save_kv { &flat.slots } else { &[] },
        }
    }

    /// The rows of a step, taken from those of whole sequences.
    fn gather(chunks: &Chunks, texts: &[Text], of: fn(&Text) -> &Vec<f32>, row: usize) -> Vec<f32> {
        let piece = |(sequence, tokens): &(usize, std::ops::Range<usize>)| {
            of(&texts[*sequence])[tokens.start * row..tokens.end * row].to_vec()
        };
        chunks.iter().flat_map(piece).collect()
    }

    /// Computes a step: its outputs and log-sum-exps.
    fn step(&self, on: &Processor, chunks: &Chunks, texts: &[Text], how: How) -> (Vec<f32>, Vec<f32>) {
        let flat = self.flat(chunks);
        let batch = self.batch(&flat, how != How::Discard);
        let layout = *self.kv.layout();
        let prepared = on.prepare(&layout, &batch).expect("a good batch");
        let query_row = self.model.query_heads * self.model.head_dim;
        let queries = Self::gather(chunks, texts, |text| &text.queries, query_row);
        let keys = Self::gather(chunks, texts, |text| &text.keys, layout.row_elements());
        let values = Self::gather(chunks, texts, |text| &text.values, layout.of(Half::Values).row_elements());
        let heads = batch.total_rows() * self.model.query_heads;
        let (mut rows, mut lse) = (vec![7.0; heads * self.model.value_dim], vec![7.0; heads]);
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
enum How {
    Extend,
    Discard,
    Decode,
    Cascade,
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// Puts numbers that are none, and infinities, at some places.
fn spoil(text: &mut Text, dice: &mut Rng) {
    for rows in [&mut text.queries, &mut text.keys, &mut text.values] {
        if dice.u8(..3) == 0 {
            let at = dice.usize(..rows.len());
            rows[at] = dice.choice([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 70_000.0]).expect("one of them");
        }
    }
}

/// Whether they are the same infinity, both no number, or at most `by` apart.
fn close(defined: f64, computed: f32, by: f64) -> bool {
    let computed = f64::from(computed);
    defined == computed || (defined.is_nan() && computed.is_nan()) || (defined - computed).abs() < by
}

#[test]
fn every_operation_is_close_to_the_definition() {
    for seed in 1..=72 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model::draw(dice);
        let lengths: Vec<usize> = (0..dice.usize(1..=3)).map(|_| dice.usize(1..=150)).collect();
        let mut texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        if seed % 2 == 0 {
            texts.iter_mut().for_each(|text| spoil(text, dice));
        }
        let block_size = dice.choice([1, 5, 16, 64]).expect("one of them");
        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let bed = Bed::new(model.clone(), block_size, order, &lengths, dice);
        let prompts: Chunks = lengths.iter().map(|tokens| 0..*tokens).enumerate().collect();
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        for (chunks, how) in
            [(&prompts, How::Discard), (&prompts, How::Extend), (&last, How::Decode), (&last, How::Cascade)]
        {
            let (rows, lse) = bed.step(any(dice), chunks, &texts, how);
            let tokens =
                chunks.iter().flat_map(|(sequence, tokens)| tokens.clone().map(move |token| (*sequence, token)));
            // A soft-cap is a factor of the error of its `tanh`, and 70,000 one of everything that it meets.
            let by = 2e-6 + f64::from(model.soft_cap.unwrap_or(0.0)) * 5e-7;
            for (row, (sequence, token)) in tokens.enumerate() {
                let head = dice.usize(..model.query_heads);
                let (out, defined_lse) = model.defined(&texts[sequence], bed.layer, token, head);
                let place = row * model.query_heads + head;
                let largest = out.iter().filter(|out| out.is_finite()).fold(1.0, |most: f64, out| most.max(out.abs()));
                let context = format!("seed {seed}, {model:?}, block size {block_size}, {how:?}, token {token}");
                for (defined, computed) in out.iter().zip(&rows[place * model.value_dim..]) {
                    assert!(close(*defined, *computed, by * largest), "{defined} {computed}: {context}");
                }
                let by = 2.0 * by * defined_lse.abs().max(1.0);
                assert!(close(defined_lse, lse[place], by), "{defined_lse} {}: {context}", lse[place]);
            }
        }
    }
}

/// Each sequence alone in one step, with blocks of one token, on one thread without vector instructions, against random
/// steps of mixed chunks on any processor.
#[test]
fn bits_do_not_depend_on_how_a_step_is_cut() {
    for seed in 1..=30 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model::draw(dice);
        let mut model = Model { query_heads: model.kv_heads * dice.usize(1..=5), sinks: Vec::new(), ..model };
        if dice.bool() {
            model.sinks = rows(2, model.query_heads, dice);
        }
        let texts_of = |lengths: &[usize], dice: &mut Rng| -> Vec<Text> {
            lengths.iter().map(|tokens| model.text(*tokens, dice)).collect()
        };
        let lengths: Vec<usize> = (0..dice.usize(1..=4)).map(|_| dice.usize(1..=300)).collect();
        let mut texts = texts_of(&lengths, dice);
        if seed % 3 == 0 {
            texts.iter_mut().for_each(|text| spoil(text, dice));
        }
        let whole_bed = Bed { layer: 1, ..Bed::new(model.clone(), 1, Order::Nhd, &lengths, dice) };
        let whole: Vec<(Vec<f32>, Vec<f32>)> = (0..lengths.len())
            .map(|sequence| whole_bed.step(plain(), &vec![(sequence, 0..lengths[sequence])], &texts, How::Extend))
            .collect();

        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let block_size = dice.choice([1, 7, 8, 16, 64, 100]).expect("one of them");
        let bed = Bed { layer: 1, ..Bed::new(model.clone(), block_size, order, &lengths, dice) };
        let mut done = vec![0; lengths.len()];
        while done != lengths {
            let decode = dice.u8(..4) == 0;
            let mut chunks = Chunks::new();
            for sequence in 0..lengths.len() {
                let left = lengths[sequence] - done[sequence];
                if left > 0 && dice.u8(..3) > 0 {
                    let most = dice.choice([1, 7, 64, 512]).expect("one of them");
                    let tokens = if decode { 1 } else { left.min(dice.usize(1..=most)) };
                    chunks.push((sequence, done[sequence]..done[sequence] + tokens));
                }
            }
            let how = match (decode, dice.u8(..3)) {
                (true, 0) => How::Cascade,
                (true, _) => How::Decode,
                (false, 0) => {
                    let discarded = bed.step(any(dice), &chunks, &texts, How::Discard);
                    let kept = bed.step(any(dice), &chunks, &texts, How::Extend);
                    assert_eq!(bits(&discarded.0), bits(&kept.0), "seed {seed}: kept or not");
                    How::Extend
                }
                (false, _) => How::Extend,
            };
            let (rows, lse) = bed.step(any(dice), &chunks, &texts, how);
            let mut at = 0;
            for (sequence, tokens) in chunks {
                let row = model.query_heads * model.value_dim;
                let same = |ours: &[f32], theirs: &[f32], row: usize| {
                    let ours = &ours[at * row..(at + tokens.len()) * row];
                    bits(ours) == bits(&theirs[tokens.start * row..tokens.end * row])
                };
                let context = || format!("seed {seed}, {model:?}, block size {block_size}, {how:?}, {tokens:?}");
                assert!(same(&rows, &whole[sequence].0, row), "{}", context());
                assert!(same(&lse, &whole[sequence].1, model.query_heads), "{}", context());
                at += tokens.len();
                done[sequence] = tokens.end;
            }
        }
    }
}

/// Sequences whose tables begin with the same blocks, decoded one by one and as groups.
#[test]
fn sharing_changes_no_bit() {
    for seed in 1..=20 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model { window: None, ..Model::draw(dice) };
        let block_size = dice.choice([1, 8, 16, 64]).expect("one of them");
        let shared = dice.usize(..300) / block_size * block_size;
        let lengths: Vec<usize> = (0..dice.usize(2..6)).map(|_| shared + dice.usize(1..=100)).collect();
        let mut texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let mut bed = Bed::new(model.clone(), block_size, Order::Nhd, &lengths, dice);
        let (first, rest) = texts.split_at_mut(1);
        for (text, table) in rest.iter_mut().zip(1..) {
            let (row, value_row) = (model.kv_heads * model.head_dim, model.kv_heads * model.value_dim);
            text.keys[..shared * row].copy_from_slice(&first[0].keys[..shared * row]);
            text.values[..shared * value_row].copy_from_slice(&first[0].values[..shared * value_row]);
            let prefix = bed.tables[0][..shared / block_size].to_vec();
            bed.tables[table][..prefix.len()].copy_from_slice(&prefix);
        }
        for (sequence, tokens) in lengths.iter().enumerate() {
            bed.step(any(dice), &vec![(sequence, 0..*tokens)], &texts, How::Extend);
        }
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        let flat = bed.flat(&last);
        let batch = bed.batch(&flat, true);
        let sharing = plan::share(batch.tables, batch.contexts, block_size, Cpu.rule(bed.kv.layout()));
        assert_eq!(sharing.saved_tokens(), (lengths.len() - 1) * (shared / RANGE_TOKENS * RANGE_TOKENS), "seed {seed}");
        let (plain, grouped) =
            (bed.step(plain(), &last, &texts, How::Decode), bed.step(any(dice), &last, &texts, How::Cascade));
        assert_eq!((bits(&plain.0), bits(&plain.1)), (bits(&grouped.0), bits(&grouped.1)), "seed {seed}");
    }
}

#[test]
fn copied_blocks_are_the_same_in_all_layers() {
    let dice = &mut Rng::with_seed(7);
    let model = Model::small(2, 2, 8, Dtype::I8);
    let kv = Cpu.allocate(model.layout(4, 8, Order::Hnd)).expect("a small layout");
    for (layer, slot) in (0..2).flat_map(|layer| (0..kv.layout().slots()).map(move |slot| (layer, slot))) {
        kv.write(layer, Half::Keys, slot, &rows(1, 16, dice));
        kv.write(layer, Half::Values, slot, &rows(1, 16, dice));
    }
    let contents = |block| {
        let place = (0..2).flat_map(|layer| [Half::Keys, Half::Values].map(|half| (layer, half)));
        let mut all = Vec::new();
        for (layer, half, head) in place.flat_map(|(layer, half)| (0..2).map(move |head| (layer, half, head))) {
            let mut rows = vec![0.0; 4 * 8];
            kv.read(layer, half, block, 0, head, &mut rows);
            all.extend(rows);
        }
        all
    };
    let before: Vec<_> = (0..5).map(contents).collect();
    Cpu.copy_blocks(&kv, &[(0, 3), (0, 1)]).expect("no overlap");
    let after: Vec<_> = (0..5).map(contents).collect();
    assert_eq!(after, [0, 0, 2, 0, 4].map(|block: usize| before[block].clone()));

    let refused = |pairs: &[(BlockId, BlockId)], error: ShapeError| {
        assert_eq!(Cpu.copy_blocks(&kv, pairs), Err(error.into()));
    };
    refused(&[(0, 5)], ShapeError::CopyRange { block: 5, blocks: 5 });
    refused(&[(0, 1), (2, 1)], ShapeError::CopyOverlap { block: 1 });
    refused(&[(0, 1), (1, 2)], ShapeError::CopyOverlap { block: 1 });
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let dice = &mut Rng::with_seed(9);
    let model = Model::small(4, 2, 4, Dtype::F32);
    let bed = Bed::new(model.clone(), 4, Order::Nhd, &[6], dice);
    let text = model.text(6, dice);
    let flat = bed.flat(&vec![(0, 0..6)]);
    let (layout, batch) = (*bed.kv.layout(), bed.batch(&flat, true));
    let prepared = Cpu.prepare(&layout, &batch).expect("a good batch");
    let mut rows = vec![0.0; 6 * 16];
    let extend = |layer, queries: &[f32], keys: &[f32], rows: usize, lse: Option<usize>| {
        let mut out = vec![0.0; rows];
        let mut lse = lse.map(|lse| vec![0.0; lse]);
        let new = Qkv { queries, keys, values: &text.values };
        Cpu.extend(&bed.kv, layer, &prepared, new, Output { rows: &mut out, lse: lse.as_deref_mut() })
    };
    let short = |what, given, needed| Err(ShapeError::Length { what, given, needed }.into());
    let (queries, keys) = (&text.queries[..], &text.keys[..]);
    assert_eq!(extend(2, queries, keys, 96, None), Err(ShapeError::Layer { layer: 2, layers: 2 }.into()));
    assert_eq!(extend(0, &queries[1..], keys, 96, None), short("queries", 95, 96));
    assert_eq!(extend(0, queries, &keys[8..], 96, None), short("keys", 40, 48));
    assert_eq!(extend(0, queries, keys, 0, None), short("output", 0, 96));
    assert_eq!(extend(0, queries, keys, 96, Some(23)), short("lse", 23, 24));
    let out = Output { rows: rows.as_mut_slice(), lse: None };
    let decoded = Cpu.decode(&bed.kv, 0, &prepared, queries, out);
    assert_eq!(decoded, Err(ShapeError::DecodeRows { sequence: 0, rows: 6 }.into()));
    let unkept = Cpu.prepare(&layout, &bed.batch(&flat, false)).expect("a good batch");
    assert_eq!(Cpu.append(&bed.kv, 0, &unkept, keys, &text.values), Err(ShapeError::NotKept.into()));
    let other = Cpu.allocate(Layout { blocks: 9, ..layout }).expect("a small layout");
    assert_eq!(Cpu.append(&other, 0, &prepared, keys, &text.values), Err(ShapeError::Foreign.into()));
    let mut read = vec![0.0; 4];
    bed.kv.read(0, Half::Keys, bed.tables[0][0], 0, 0, &mut read);
    assert!(read.iter().all(|element| element.is_nan()));

    let huge = Layout { blocks: 1 << 31, block_size: 1 << 20, ..layout };
    assert_eq!(Cpu.allocate(huge).err(), Some(CpuError::Memory { bytes: huge.bytes() }));
}
