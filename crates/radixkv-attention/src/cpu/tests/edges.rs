//! NaNs, scores without weight, and plans that belong to another step.

use super::*;
use crate::plan::{Group, Sharing};

/// One sequence of one head, appended and decoded with queries of ones.
fn decode(dtype: Dtype, keys: &[f32], values: &[f32]) -> (f32, f32) {
    decode_with(&[], dtype, keys, values)
}

/// As `decode`, with the sinks of both layers.
fn decode_with(sinks: &[f32], dtype: Dtype, keys: &[f32], values: &[f32]) -> (f32, f32) {
    let (tokens, dice) = (keys.len(), &mut Rng::with_seed(1));
    let dim = if dtype.has_scales() { 8 } else { 4 };
    let model = Model { sinks: sinks.to_vec(), ..Model::small(1, 1, dim, dtype) };
    let bed = Bed::new(model, 16, Order::Nhd, &[tokens], dice);
    let wide = |numbers: &[f32]| numbers.iter().flat_map(|number| vec![*number; dim]).collect();
    let text = Text { queries: vec![1.0; tokens * dim], keys: wide(keys), values: wide(values) };
    bed.step(plain(), &vec![(0, 0..tokens)], std::slice::from_ref(&text), How::Extend);
    let (rows, lse) = bed.step(plain(), &vec![(0, tokens - 1..tokens)], &[text], How::Decode);
    (rows[0], lse[0])
}

// Holds: AT3.
#[test]
fn a_range_of_nothing_but_nan_shows() {
    for range in 0..3 {
        let mut keys = [0.5; 3 * RANGE_TOKENS];
        keys[range * RANGE_TOKENS..(range + 1) * RANGE_TOKENS].fill(f32::NAN);
        let (out, lse) = decode(Dtype::F32, &keys, &[1.0; 3 * RANGE_TOKENS]);
        assert!(out.is_nan() && lse.is_nan(), "range {range}: {out} {lse}");
    }
}

// Holds: AT3.
#[test]
fn a_range_without_weight_changes_nothing() {
    let values: Vec<f32> = (0..3 * RANGE_TOKENS).map(|token| token as f32).collect();
    for range in 0..3 {
        let tokens = range * RANGE_TOKENS..(range + 1) * RANGE_TOKENS;
        let mut keys = [0.5; 3 * RANGE_TOKENS];
        // Beyond the largest `f16`.
        keys[tokens.clone()].fill(-70_000.0);
        let (out, _) = decode(Dtype::F16, &keys, &values);
        let others: Vec<f32> = values.iter().copied().filter(|value| !tokens.contains(&(*value as usize))).collect();
        let mean = others.iter().sum::<f32>() / others.len() as f32;
        assert!((out - mean).abs() < 1e-3, "range {range}: {out} is not {mean}");
    }
    // One such key in a range of its own at the end.
    let mut keys = [0.5; 2 * RANGE_TOKENS + 1];
    keys[2 * RANGE_TOKENS] = -70_000.0;
    assert!(decode(Dtype::F16, &keys, &[3.0; 2 * RANGE_TOKENS + 1]).0 == 3.0);
    let (out, lse) = decode(Dtype::F16, &[-70_000.0; 70], &[3.0; 70]);
    assert!(out.is_nan() && lse == f32::NEG_INFINITY, "nothing weighs anything: {out} {lse}");
    let (out, lse) = decode_with(&[f32::NEG_INFINITY; 2], Dtype::F16, &[-70_000.0; 70], &[3.0; 70]);
    assert!(out.is_nan() && lse == f32::NEG_INFINITY, "nor does a sink: {out} {lse}");
    let (out, lse) = decode_with(&[0.5; 2], Dtype::F16, &[-70_000.0; 70], &[3.0; 70]);
    assert!(out == 0.0 && lse == 0.5, "a sink alone: {out} {lse}");
}

/// Two sequences that share a range.
struct Pair {
    bed: Bed,
    flat: Flat,
}

impl Pair {
    fn new() -> Self {
        let dice = &mut Rng::with_seed(3);
        let mut bed = Bed::new(Model::small(2, 1, 4, Dtype::F32), 64, Order::Nhd, &[65, 66], dice);
        bed.tables[1][0] = bed.tables[0][0];
        let flat = bed.flat(&vec![(0, 64..65), (1, 65..66)]);
        Self { bed, flat }
    }

    fn cascade(&self, groups: Vec<Group>) -> Result<CpuCascade, CpuError> {
        Cpu.prepare_cascade(self.bed.kv.layout(), &self.bed.batch(&self.flat, true), &Sharing { groups })
    }
}

// Holds: AT4.
#[test]
fn a_plan_of_another_step_is_refused() {
    let pair = Pair::new();
    let layout = *pair.bed.kv.layout();
    let cascade = pair.cascade(vec![Group { sequences: vec![0, 1], shared_tokens: 64 }]).expect("a plan of this step");
    let run = |batch: &Batch<'_>| {
        let prepared = Cpu.prepare(&layout, batch).expect("a good batch");
        let (queries, mut out) = (vec![0.5; batch.total_rows() * 8], vec![0.0; batch.total_rows() * 8]);
        Cpu.cascade(&pair.bed.kv, 0, &prepared, &cascade, &queries, Output { rows: &mut out, lse: None })
    };
    assert_eq!(run(&pair.bed.batch(&pair.flat, true)), Ok(()));
    // The same sequences one token later; in other blocks; only one of them.
    let later = pair.bed.flat(&vec![(0, 65..66), (1, 66..67)]);
    assert_eq!(run(&pair.bed.batch(&later, true)), Err(ShapeError::Foreign.into()));
    let other =
        Pair { bed: Bed { tables: pair.bed.tables.iter().rev().cloned().collect(), ..Pair::new().bed }, ..Pair::new() };
    let swapped = other.bed.flat(&vec![(0, 64..65), (1, 65..66)]);
    assert_eq!(run(&pair.bed.batch(&swapped, true)), Err(ShapeError::Foreign.into()));
    // The same concatenated blocks, divided into other tables: a context may be shorter than its
    // table.
    let mut cut = pair.bed.flat(&vec![(0, 64..65), (1, 65..66)]);
    cut.blocks.push(cut.blocks[3]);
    cut.offsets = vec![0, 2, 5];
    let batch = pair.bed.batch(&cut, true);
    let sharing = Sharing { groups: vec![Group { sequences: vec![0, 1], shared_tokens: 64 }] };
    let longer = Cpu.prepare_cascade(&layout, &batch, &sharing).expect("a plan of this step");
    let slots = [cut.slots[0], cut.slots[1]];
    let elsewhere = Batch { tables: Tables { offsets: &[0, 3, 5], ..batch.tables }, slots: &slots, ..batch };
    let prepared = Cpu.prepare(&layout, &elsewhere).expect("a good batch");
    assert_eq!(longer.check(&prepared), Err(ShapeError::Foreign));
    let alone = pair.bed.flat(&vec![(1, 65..66)]);
    assert_eq!(run(&pair.bed.batch(&alone, true)), Err(ShapeError::Foreign.into()));
}

// Holds: AT4.
#[test]
fn a_plan_that_is_none_is_refused_and_nothing_panics() {
    let pair = Pair::new();
    let group = |sequences: &[u32], shared_tokens| Group { sequences: sequences.to_vec(), shared_tokens };
    let refused = |groups, error: ShapeError| assert_eq!(pair.cascade(groups).err(), Some(error.into()));
    refused(vec![group(&[0, 0], 64)], ShapeError::Group { sequence: 0 });
    refused(vec![group(&[0, 1, 2], 64)], ShapeError::Group { sequence: 2 });
    refused(vec![group(&[0], 0)], ShapeError::Group { sequence: 1 });
    refused(vec![group(&[0, 1], 64), group(&[], 0)], ShapeError::Shared { group: 1, tokens: 0 });
    for tokens in [63, 32] {
        refused(vec![group(&[0, 1], tokens)], ShapeError::Shared { group: 0, tokens });
    }
    let batch = pair.bed.batch(&pair.flat, true);
    let sharing = Sharing { groups: vec![group(&[0, 1], 64)] };
    let layout = Layout { block_size: 0, ..*pair.bed.kv.layout() };
    let zero = Some(CpuError::from(ShapeError::Zero { what: "block_size" }));
    assert_eq!(Cpu.prepare_cascade(&layout, &batch, &sharing).err(), zero);
    assert_eq!(Cpu.prepare(&layout, &batch).err(), zero);
    let short = Batch { rows: &[0], ..batch };
    assert!(Cpu.prepare_cascade(pair.bed.kv.layout(), &short, &sharing).is_err());
}

#[test]
fn every_row_of_a_long_chunk_is_computed_once() {
    let dice = &mut Rng::with_seed(6);
    let lengths = [1000, 3, 256, 257];
    let bed = Bed::new(Model::small(5, 1, 4, Dtype::F32), 16, Order::Nhd, &lengths, dice);
    let flat = bed.flat(&lengths.iter().map(|tokens| 0..*tokens).enumerate().collect());
    let prepared = Cpu.prepare(bed.kv.layout(), &bed.batch(&flat, true)).expect("a good batch");
    let cut: Vec<_> = prepared.alone.cut().collect();
    assert_eq!(cut.len(), prepared.alone.cut_pieces());
    for (sequence, tokens) in lengths.iter().enumerate() {
        let rows = cut.iter().filter(|piece| piece.sequences.start == sequence).flat_map(|piece| piece.rows.clone());
        assert!(rows.eq(0..*tokens), "sequence {sequence}");
    }
}

#[test]
fn a_sequence_without_rows_is_not_read() {
    let dice = &mut Rng::with_seed(5);
    let bed = Bed::new(Model::small(2, 1, 4, Dtype::F32), 16, Order::Nhd, &[200, 200], dice);
    let flat = bed.flat(&vec![(0, 200..200), (1, 199..200)]);
    let prepared = Cpu.prepare(bed.kv.layout(), &bed.batch(&flat, true)).expect("a good batch");
    let read: Vec<usize> = prepared.alone.pieces.iter().map(|piece| piece.sequences.start).collect();
    assert_eq!(read, [1]);
}
