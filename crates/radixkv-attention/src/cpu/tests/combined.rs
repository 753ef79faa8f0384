//! Every combination of the features of a model and of a step.

use half::{bf16, f16};

use super::bed::DTYPES;
use super::*;

/// A model with those of window, soft-cap, sinks and values of another size whose bits are set in
/// `features`.
fn model(features: usize, dtype: Dtype, dice: &mut Rng) -> Model {
    let has = |feature: usize| features >> feature & 1 == 1;
    let kv_heads = dice.usize(1..=3);
    let head_dim = dice.choice([8, 24, 64]).expect("one of them");
    let small = Model::small(kv_heads * dice.usize(1..=5), kv_heads, head_dim, dtype);
    Model {
        window: has(0).then(|| dice.choice([1, 30, 70, 150]).expect("one of them")),
        soft_cap: has(1).then(|| dice.f32() * 5.0 + 0.5),
        sinks: if has(2) { rows(2, small.query_heads, dice) } else { Vec::new() },
        value_dim: if has(3) { head_dim + 16 } else { head_dim },
        ..small
    }
}

/// Rounds to numbers that `f32`, `f16` and `bf16` represent.
fn round(text: &mut Text) {
    for number in [&mut text.queries, &mut text.keys, &mut text.values].into_iter().flatten() {
        *number = bf16::narrow(f16::narrow(*number).widen()).widen();
    }
}

/// Sequences that begin with the same blocks, and the outputs of each of them alone.
struct Family {
    bed: Bed,
    texts: Vec<Text>,
    shared: usize,
    lengths: Vec<usize>,
    /// Rows and log-sum-exps of each sequence alone.
    alone: Vec<[Vec<f32>; 2]>,
}

impl Family {
    fn new(model: &Model, dice: &mut Rng) -> Self {
        let block_size = dice.choice([5, 16, 64]).expect("one of them");
        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let shared = dice.usize(64..=140) / block_size * block_size;
        let lengths: Vec<usize> = (0..dice.usize(2..=3)).map(|_| shared + dice.usize(1..=90)).collect();
        let mut texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        if dice.u8(..3) == 0 {
            texts.iter_mut().for_each(|text| spoil(text, dice));
        }
        texts.iter_mut().for_each(round);
        let mut bed = Bed::new(model.clone(), block_size, order, &lengths, dice);
        bed.share(&mut texts, shared);
        let on = any(dice);
        let alone = |(sequence, tokens): (usize, &usize)| {
            let (rows, lse) = bed.step(on, &vec![(sequence, 0..*tokens)], &texts, How::Extend);
            [rows, lse]
        };
        let alone = lengths.iter().enumerate().map(alone).collect();
        Self { bed, texts, shared, lengths, alone }
    }

    /// Computes the last tokens by each operation, from rows of `E`: the outputs are the rounded
    /// rows that each sequence has alone.
    fn check<E: Number>(&self, processors: &[Processor<E>], dice: &mut Rng) {
        for how in [How::Extend, How::Discard, How::Decode, How::Cascade] {
            let first = |tokens: usize, dice: &mut Rng| match how {
                How::Extend | How::Discard => dice.usize(self.shared..tokens),
                How::Decode | How::Cascade => tokens - 1,
            };
            let chunks: Chunks = self.lengths.iter().map(|tokens| first(*tokens, dice)..*tokens).enumerate().collect();
            let on = &processors[dice.usize(..processors.len())];
            let (rows, lse) = self.bed.step(on, &chunks, &self.texts, how);
            let model = &self.bed.model;
            let alone = |which: usize, row: usize| -> Vec<f32> {
                let some = |(sequence, tokens): &(usize, std::ops::Range<usize>)| {
                    self.alone[*sequence][which][tokens.start * row..tokens.end * row].to_vec()
                };
                chunks.iter().flat_map(some).collect()
            };
            let expected = alone(0, model.query_heads * model.value_dim).into_iter().map(E::narrow);
            let (threads, level) = (on.threads(), on.level());
            let context = || format!("{how:?} of {chunks:?}, {threads} threads, {level:?}: {model:?}");
            let wide = |numbers: Vec<E>| bits(&numbers.into_iter().map(E::widen).collect::<Vec<_>>());
            assert!(wide(rows) == wide(expected.collect()), "{}", context());
            assert!(bits(&lse) == bits(&alone(1, model.query_heads)), "{}", context());
        }
    }
}

/// Computes each type of stored elements and of rows, with each set of features, by each operation,
/// on any processor; and compares the sequences alone, which are the reference, with the
/// definition.
#[test]
fn every_combination_has_the_bits_of_a_sequence_alone() {
    let (whole, half, brain) = (processors::<f32>(), processors::<f16>(), processors::<bf16>());
    for dtype in DTYPES {
        for features in 0..16 {
            let dice = &mut Rng::with_seed(features as u64 + 1);
            let model = model(features, dtype, dice);
            let family = Family::new(&model, dice);
            family.check(&whole, dice);
            family.check(&half, dice);
            family.check(&brain, dice);
            for (sequence, tokens) in family.lengths.iter().enumerate() {
                let (token, head) = (dice.usize(..*tokens), dice.usize(..model.query_heads));
                let (defined, _) = model.defined(&family.texts[sequence], family.bed.layer, token, head);
                let place = (token * model.query_heads + head) * model.value_dim;
                for (defined, computed) in defined.iter().zip(&family.alone[sequence][0][place..]) {
                    assert!(close(*defined, *computed, 2e-5), "{defined} {computed}, token {token}: {model:?}");
                }
            }
        }
    }
}
