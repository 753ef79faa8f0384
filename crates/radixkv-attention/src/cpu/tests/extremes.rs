//! Steps of nothing, contexts over four decades, factors at the ends of their range.

use super::*;

#[test]
fn a_step_of_nothing_is_computed() {
    let dice = &mut Rng::with_seed(1);
    let bed = Bed::new(Model::small(4, 2, 8, Dtype::I8), 16, Order::Nhd, &[], dice);
    for threads in [0, 1, 64] {
        let on = Processor::with_threads(threads).expect("threads");
        assert!(on.threads() > 0 && (threads == 0 || on.threads() == threads));
        for how in [How::Extend, How::Discard, How::Decode, How::Cascade] {
            assert_eq!(bed.step(&on, &Chunks::new(), &[], how), (vec![], vec![]), "{how:?}");
        }
        on.multiply(&Weights::from_f32(3, 2, &[1.0; 6]), &[], &mut []);
        on.multiply(&Weights::from_f32(3, 0, &[]), &[1.0; 9], &mut []);
    }
}

/// Sequences of one token to ten thousand in one step, in blocks of few tokens and of many.
#[test]
fn contexts_over_four_decades_are_computed_as_defined() {
    let dice = &mut Rng::with_seed(2);
    let lengths = [1, 9, 99, 1001, 10_007];
    for (block_size, window) in [(3, None), (1000, None), (16, Some(1)), (16, Some(5000))] {
        let model = Model { window, ..Model::small(4, 2, 8, Dtype::Bf16) };
        let texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let bed = Bed::new(model.clone(), block_size, Order::Hnd, &lengths, dice);
        bed.append_all(&lengths, &texts);
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        let (out, lse) = bed.step(any(dice), &last, &texts, How::Decode);
        for (sequence, tokens) in lengths.iter().enumerate() {
            let head = dice.usize(..4);
            let (defined, defined_lse) = model.defined(&texts[sequence], bed.layer, tokens - 1, head);
            let computed = &out[(sequence * 4 + head) * 8..][..8];
            let same = defined.iter().zip(computed).all(|(defined, computed)| close(*defined, *computed, 1e-5));
            assert!(same, "{tokens} tokens in blocks of {block_size}: {defined:?} {computed:?}");
            assert!(close(defined_lse, lse[sequence * 4 + head], 1e-5 * defined_lse.abs().max(1.0)));
        }
    }
}

/// Any finite factor of the scores: each level against the first.
#[test]
fn factors_at_the_ends_of_their_range_have_the_same_bits_everywhere() {
    let dice = &mut Rng::with_seed(3);
    for scale in [0.0, -0.0, -1.0, 1e-45, f32::MAX, f32::MIN] {
        for soft_cap in [None, Some(1e-45), Some(f32::MAX)] {
            let model = Model { soft_cap, ..Model::small(32, 2, 8, Dtype::I8) };
            let text = model.text(80, dice);
            let bed = Bed::new(model, 16, Order::Nhd, &[80], dice);
            let flat = bed.flat(&vec![(0, 0..80)]);
            let batch = Batch { scale, ..bed.batch(&flat, true) };
            let compute = |on: &Processor| {
                let prepared = on.prepare(bed.kv.layout(), &batch).expect("a good batch");
                let (mut rows, mut lse) = (vec![7.0; 80 * 32 * 8], vec![7.0; 80 * 32]);
                let new = Qkv { queries: &text.queries[..], keys: &text.keys, values: &text.values };
                let out = Output { rows: &mut rows[..], lse: Some(&mut lse[..]) };
                on.extend(&bed.kv, 0, &prepared, new, out).expect("a good step");
                (bits(&rows), bits(&lse))
            };
            let expected = compute(plain());
            for on in PROCESSORS.iter().skip(1).step_by(4) {
                assert!(compute(on) == expected, "scale {scale}, soft-cap {soft_cap:?}");
            }
        }
    }
}
