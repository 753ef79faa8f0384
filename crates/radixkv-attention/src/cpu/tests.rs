//! The CPU backend against the definition in `f64`, and against itself: the same bits however a step is cut.

use fastrand::Rng;

use super::*;
use crate::element::round;
use crate::{Dtype, Half, MAX_GQA_GROUP, Order, Scoring, ShapeError, Tables, plan};

fn rows(rows: usize, row: usize, dice: &mut Rng) -> Vec<f32> {
    (0..rows * row).map(|_| dice.f32() * 4.0 - 2.0).collect()
}

/// Heads of a model with one layer.
#[derive(Debug, Clone, Copy)]
struct Model {
    query_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    dtype: Dtype,
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
        Self {
            query_heads: kv_heads * dice.usize(1..=MAX_GQA_GROUP),
            kv_heads,
            head_dim: dice.choice([4, 16, 64, 128]).expect("one of them"),
            dtype: dice.choice([Dtype::F32, Dtype::F16, Dtype::Bf16]).expect("one of them"),
        }
    }

    fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }

    fn layout(&self, block_size: usize, tokens: usize, order: Order) -> Layout {
        let Self { kv_heads, head_dim, dtype, .. } = *self;
        let blocks = tokens.div_ceil(block_size) + 3;
        Layout { layers: 2, blocks, block_size, kv_heads, head_dim, value_dim: head_dim, dtype, order }
    }

    fn text(&self, tokens: usize, dice: &mut Rng) -> Text {
        let row = self.kv_heads * self.head_dim;
        Text {
            queries: rows(tokens, self.query_heads * self.head_dim, dice),
            keys: rows(tokens, row, dice),
            values: rows(tokens, row, dice),
        }
    }

    /// The definition, for the token at `position` and one query head: the output and the log-sum-exp.
    fn defined(&self, text: &Text, position: usize, head: usize) -> (Vec<f64>, f64) {
        let (d, row) = (self.head_dim, self.kv_heads * self.head_dim);
        let kv_head = head / (self.query_heads / self.kv_heads);
        let query = &text.queries[(position * self.query_heads + head) * d..][..d];
        let stored =
            |rows: &[f32], token: usize, i: usize| f64::from(round(self.dtype, rows[token * row + kv_head * d + i]));
        let score = |token| {
            let product = |i: usize| f64::from(query[i]) * stored(&text.keys, token, i);
            f64::from(self.scale()) * (0..d).map(product).sum::<f64>()
        };
        let weights: Vec<f64> = (0..=position).map(|token| f64::exp(score(token))).collect();
        let sum: f64 = weights.iter().sum();
        let out = |i| (0..=position).map(|token| weights[token] * stored(&text.values, token, i)).sum::<f64>() / sum;
        ((0..d).map(out).collect(), sum.ln())
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
        let nothing = vec![f32::NAN; kv.layout().row_elements()];
        for (half, slot) in
            [Half::Keys, Half::Values].into_iter().flat_map(|h| (0..kv.layout().slots()).map(move |s| (h, s)))
        {
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

    fn batch<'a>(&self, flat: &'a Flat, save_kv: bool) -> Batch<'a> {
        Batch {
            query_heads: self.model.query_heads,
            scale: self.model.scale(),
            scoring: Scoring::default(),
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
    fn step(&self, chunks: &Chunks, texts: &[Text], how: How) -> (Vec<f32>, Vec<f32>) {
        let flat = self.flat(chunks);
        let batch = self.batch(&flat, how != How::Discard);
        let layout = *self.kv.layout();
        let prepared = Cpu.prepare(&layout, &batch).expect("a good batch");
        let query_row = self.model.query_heads * self.model.head_dim;
        let queries = Self::gather(chunks, texts, |text| &text.queries, query_row);
        let keys = Self::gather(chunks, texts, |text| &text.keys, layout.row_elements());
        let values = Self::gather(chunks, texts, |text| &text.values, layout.row_elements());
        let mut rows = vec![f32::NAN; queries.len()];
        let mut lse = vec![f32::NAN; queries.len() / self.model.head_dim];
        let out = Output { rows: rows.as_mut_slice(), lse: Some(lse.as_mut_slice()) };
        let done = match how {
            How::Extend | How::Discard => {
                let new = Qkv { queries: queries.as_slice(), keys: &keys, values: &values };
                Cpu.extend(&self.kv, self.layer, &prepared, new, out)
            }
            How::Decode => Cpu
                .append(&self.kv, self.layer, &prepared, &keys, &values)
                .and_then(|()| Cpu.decode(&self.kv, self.layer, &prepared, &queries, out)),
            How::Cascade => {
                let sharing = plan::share(batch.tables, batch.contexts, layout.block_size, Cpu.rule(&layout));
                let cascade = Cpu.prepare_cascade(&layout, &batch, &sharing).expect("a plan of this batch");
                Cpu.append(&self.kv, self.layer, &prepared, &keys, &values)
                    .and_then(|()| Cpu.cascade(&self.kv, self.layer, &prepared, &cascade, &queries, out))
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

#[test]
fn every_operation_is_close_to_the_definition() {
    for seed in 1..=24 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model::draw(dice);
        let lengths: Vec<usize> = (0..dice.usize(1..=3)).map(|_| dice.usize(1..=150)).collect();
        let texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let block_size = dice.choice([1, 5, 16, 64]).expect("one of them");
        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let bed = Bed::new(model, block_size, order, &lengths, dice);
        let prompts: Chunks = lengths.iter().map(|tokens| 0..*tokens).enumerate().collect();
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        for (chunks, how) in
            [(&prompts, How::Discard), (&prompts, How::Extend), (&last, How::Decode), (&last, How::Cascade)]
        {
            let (rows, lse) = bed.step(chunks, &texts, how);
            let tokens =
                chunks.iter().flat_map(|(sequence, tokens)| tokens.clone().map(move |token| (*sequence, token)));
            for (row, (sequence, token)) in tokens.enumerate() {
                let head = dice.usize(..model.query_heads);
                let (out, defined_lse) = model.defined(&texts[sequence], token, head);
                let place = row * model.query_heads + head;
                let worst = out
                    .iter()
                    .zip(&rows[place * model.head_dim..])
                    .map(|(defined, computed)| (defined - f64::from(*computed)).abs())
                    .fold(0.0, f64::max);
                let context = format!("seed {seed}, {model:?}, block size {block_size}, {how:?}, token {token}");
                assert!(worst < 2e-6, "off by {worst:e}: {context}");
                assert!((defined_lse - f64::from(lse[place])).abs() < 4e-6, "{defined_lse} {}: {context}", lse[place]);
            }
        }
    }
}

/// Each sequence alone in one step, with blocks of one token, against random steps of mixed chunks.
#[test]
fn bits_do_not_depend_on_how_a_step_is_cut() {
    for seed in 1..=30 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model { head_dim: dice.choice([4, 32]).expect("one of them"), ..Model::draw(dice) };
        let lengths: Vec<usize> = (0..dice.usize(1..=4)).map(|_| dice.usize(1..=300)).collect();
        let texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let plain = Bed::new(model, 1, Order::Nhd, &lengths, dice);
        let whole: Vec<(Vec<f32>, Vec<f32>)> = (0..lengths.len())
            .map(|sequence| plain.step(&vec![(sequence, 0..lengths[sequence])], &texts, How::Extend))
            .collect();

        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let block_size = dice.choice([1, 7, 8, 16, 64, 100]).expect("one of them");
        let bed = Bed::new(model, block_size, order, &lengths, dice);
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
                    let discarded = bed.step(&chunks, &texts, How::Discard);
                    let kept = bed.step(&chunks, &texts, How::Extend);
                    assert_eq!(bits(&discarded.0), bits(&kept.0), "seed {seed}: kept or not");
                    How::Extend
                }
                (false, _) => How::Extend,
            };
            let (rows, lse) = bed.step(&chunks, &texts, how);
            let mut at = 0;
            for (sequence, tokens) in chunks {
                let row = model.query_heads * model.head_dim;
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
        let model = Model { head_dim: 16, ..Model::draw(dice) };
        let block_size = dice.choice([1, 8, 16, 64]).expect("one of them");
        let shared = dice.usize(..300) / block_size * block_size;
        let lengths: Vec<usize> = (0..dice.usize(2..6)).map(|_| shared + dice.usize(1..=100)).collect();
        let mut texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let mut bed = Bed::new(model, block_size, Order::Nhd, &lengths, dice);
        let (first, rest) = texts.split_at_mut(1);
        for (text, table) in rest.iter_mut().zip(1..) {
            let row = model.kv_heads * model.head_dim;
            text.keys[..shared * row].copy_from_slice(&first[0].keys[..shared * row]);
            text.values[..shared * row].copy_from_slice(&first[0].values[..shared * row]);
            let prefix = bed.tables[0][..shared / block_size].to_vec();
            bed.tables[table][..prefix.len()].copy_from_slice(&prefix);
        }
        for (sequence, tokens) in lengths.iter().enumerate() {
            bed.step(&vec![(sequence, 0..*tokens)], &texts, How::Extend);
        }
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        let flat = bed.flat(&last);
        let batch = bed.batch(&flat, true);
        let sharing = plan::share(batch.tables, batch.contexts, block_size, Cpu.rule(bed.kv.layout()));
        assert_eq!(sharing.saved_tokens(), (lengths.len() - 1) * (shared / RANGE_TOKENS * RANGE_TOKENS), "seed {seed}");
        let (plain, grouped) = (bed.step(&last, &texts, How::Decode), bed.step(&last, &texts, How::Cascade));
        assert_eq!((bits(&plain.0), bits(&plain.1)), (bits(&grouped.0), bits(&grouped.1)), "seed {seed}");
    }
}

#[test]
fn copied_blocks_are_the_same_in_all_layers() {
    let dice = &mut Rng::with_seed(7);
    let model = Model { query_heads: 2, kv_heads: 2, head_dim: 8, dtype: Dtype::Bf16 };
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
    let model = Model { query_heads: 4, kv_heads: 2, head_dim: 4, dtype: Dtype::F32 };
    let bed = Bed::new(model, 4, Order::Nhd, &[6], dice);
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
