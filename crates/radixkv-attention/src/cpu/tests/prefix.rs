//! Prefixes that many sequences share: the bits are those that each sequence has alone.

use super::*;
use crate::plan::{Group, Sharing};

/// The last level on the caller's thread.
fn best() -> &'static Processor {
    &PROCESSORS[kernels::Level::all().count() - 1]
}

/// Sequences of these lengths whose first `shared` tokens are the same, in the same blocks, all of
/// them appended.
fn family(model: &Model, block_size: usize, shared: usize, lengths: &[usize], dice: &mut Rng) -> (Bed, Vec<Text>) {
    let mut bed = Bed::new(model.clone(), block_size, Order::Nhd, lengths, dice);
    let mut texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
    if dice.u8(..3) == 0 {
        texts.iter_mut().for_each(|text| spoil(text, dice));
    }
    bed.share(&mut texts, shared);
    for (sequence, tokens) in lengths.iter().enumerate() {
        let own = if sequence == 0 { 0 } else { shared };
        bed.step(best(), &vec![(sequence, own..*tokens)], &texts, How::Extend);
    }
    (bed, texts)
}

/// From few sequences with long rests to many with short ones: prefixes with few queries and with
/// many.
// Holds: AT10.
#[test]
fn sharing_by_many_changes_no_bit() {
    for seed in 1..=9 {
        let dice = &mut Rng::with_seed(seed);
        let drawn = Model::draw(dice);
        let group = drawn.query_heads / drawn.kv_heads;
        let model = Model { window: drawn.window.filter(|_| seed % 3 == 0), ..drawn };
        let (count, longest) = ([24, 60, 100][seed as usize % 3] / group, [150, 100, 40][seed as usize % 3]);
        let (block_size, shared) = (16, dice.usize(4..=12) * 16);
        let lengths: Vec<usize> = (0..count.max(2)).map(|_| shared + dice.usize(1..=longest)).collect();
        let (bed, texts) = family(&model, block_size, shared, &lengths, dice);
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        let alone = bed.step(any(dice), &last, &texts, How::Decode);
        for processor in [best(), any(dice), any(dice)] {
            let grouped = bed.step(processor, &last, &texts, How::Cascade);
            let same = (bits(&alone.0), bits(&alone.1)) == (bits(&grouped.0), bits(&grouped.1));
            assert!(same, "seed {seed}, {count} sequences, {shared} shared: {model:?}");
        }
    }
}

/// Groups with a shorter prefix than their sequences share, in one step with sequences that share
/// nothing.
#[test]
fn a_prefix_may_end_anywhere_before_what_is_shared() {
    let dice = &mut Rng::with_seed(1);
    let model = Model::small(32, 2, 16, Dtype::Bf16);
    let lengths = [200, 330, 257, 256, 300, 290];
    let (bed, texts) = family(&model, 16, 192, &lengths, dice);
    let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
    let (alone, _) = bed.step(plain(), &last, &texts, How::Decode);
    let flat = bed.flat(&last);
    let (batch, layout) = (bed.batch(&flat, true), *bed.kv.layout());
    let queries: Vec<f32> = Bed::gather(&last, &texts, |text| &text.queries, 32 * 16);
    for shared_tokens in [0, 64, 128, 192] {
        let group = |sequences: &[u32], shared_tokens| Group { sequences: sequences.to_vec(), shared_tokens };
        let groups = vec![group(&[5, 0, 3, 1], shared_tokens), group(&[4], 0), group(&[2], 64)];
        for processor in PROCESSORS.iter() {
            let prepared = processor.prepare(&layout, &batch).expect("a good batch");
            let cascade = processor.prepare_cascade(&layout, &batch, &Sharing { groups: groups.clone() });
            let mut out = vec![0.0; alone.len()];
            let to = Output { rows: &mut out[..], lse: None };
            let cascade = cascade.expect("a plan of this batch");
            processor.cascade(&bed.kv, bed.layer, &prepared, &cascade, &queries, to).expect("a good step");
            assert_eq!(bits(&out), bits(&alone), "{shared_tokens} shared");
        }
    }
}

/// Sequences whose windows begin in different ranges of the prefix, or after it; the first sequence
/// is the longest, or the shortest.
#[test]
fn sequences_of_a_group_see_a_prefix_through_windows_of_their_own() {
    let dice = &mut Rng::with_seed(2);
    for lengths in [[400, 257, 330], [257, 400, 330]] {
        for window in [50, 130, 200, 390] {
            let model = Model { window: Some(window), ..Model::small(8, 2, 16, Dtype::F32) };
            let (bed, texts) = family(&model, 16, 256, &lengths, dice);
            let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
            let alone = bed.step(plain(), &last, &texts, How::Decode);
            for processor in PROCESSORS.iter() {
                let grouped = bed.step(processor, &last, &texts, How::Cascade);
                let same = (bits(&alone.0), bits(&alone.1)) == (bits(&grouped.0), bits(&grouped.1));
                assert!(same, "{lengths:?} tokens, a window of {window}");
            }
        }
    }
}
