//! Empty steps, contexts over four decades, factors at the ends of their range.

use super::bed::DTYPES;
use super::*;

#[test]
fn a_step_of_nothing_is_computed() {
    let dice = &mut Rng::with_seed(1);
    let bed = Bed::new(Model::small(4, 2, 8, Dtype::I8), 16, Order::Nhd, &[], dice);
    for threads in [0, 1, 64] {
        let on = Processor::<f32>::with_threads(threads).expect("threads");
        assert!(on.threads() > 0 && (threads == 0 || on.threads() == threads));
        for how in [How::Extend, How::Discard, How::Decode, How::Cascade] {
            assert_eq!(bed.step(&on, &Chunks::new(), &[], how), (vec![], vec![]), "{how:?}");
        }
        on.multiply(&Weights::from_f32(3, 2, &[1.0; 6]), &[], &mut []);
        on.multiply(&Weights::from_f32(3, 0, &[]), &[1.0; 9], &mut []);
    }
}

/// Sequences without tokens between others, and a table that continues after its context with
/// blocks that do not exist.
#[test]
fn what_no_row_sees_is_not_looked_at() {
    let dice = &mut Rng::with_seed(4);
    let model = Model::small(4, 2, 8, Dtype::F16);
    let text = [model.text(20, dice)];
    let bed = Bed::new(model.clone(), 16, Order::Nhd, &[20], dice);
    let (expected, _) = bed.step(plain(), &vec![(0, 0..20)], &text, How::Extend);
    let mut flat = bed.flat(&vec![(0, 0..0), (0, 0..20), (0, 0..0)]);
    flat.blocks = [&bed.tables[0][..], &[BlockId::MAX; 3]].concat();
    flat.offsets = vec![0, 0, 5, 5];
    let queries: Vec<f32> = Bed::gather(&vec![(0, 0..20)], &text, |text| &text.queries, 4 * 8);
    for on in PROCESSORS.iter() {
        let prepared = on.prepare(bed.kv.layout(), &bed.batch(&flat, true)).expect("a good batch");
        let mut rows = vec![7.0; expected.len()];
        let new = Qkv { queries: &queries[..], keys: &text[0].keys, values: &text[0].values };
        on.extend(&bed.kv, bed.layer, &prepared, new, Output { rows: &mut rows, lse: None }).expect("a good step");
        assert_eq!(bits(&rows), bits(&expected));
    }
}

#[test]
fn heads_of_any_size_and_number_are_computed_as_defined_or_refused() {
    let dice = &mut Rng::with_seed(5);
    let (sizes, groups) = ([1, 3, 8, 64, 65, 576], [1, 6, 16, 17, 64]);
    let pairs = sizes.into_iter().flat_map(|head_dim| sizes.map(|value_dim| (head_dim, value_dim)));
    for ((head_dim, value_dim), group) in pairs.flat_map(|pair| groups.map(|group| (pair, group))) {
        let dtype = dice.choice(DTYPES).expect("one of them");
        let model = Model { value_dim, ..Model::small(2 * group, 2, head_dim, dtype) };
        let layout = model.layout(5, 70, Order::Nhd);
        let multiple = if dtype.has_scales() { 8 } else { 4 };
        if let Some(odd) = [head_dim, value_dim].into_iter().find(|dim| dim % multiple != 0) {
            let refused = ShapeError::HeadDim { head_dim: odd, multiple };
            assert_eq!(Cpu.allocate(layout).err(), Some(refused.into()), "{model:?}");
            continue;
        }
        let texts = [model.text(70, dice)];
        let bed = Bed::new(model.clone(), 5, Order::Nhd, &[70], dice);
        let chunk: Chunks = vec![(0, 60..70)];
        if group > crate::MAX_GQA_GROUP {
            let refused = Cpu.prepare(bed.kv.layout(), &bed.batch(&bed.flat(&chunk), true)).err();
            assert_eq!(refused, Some(ShapeError::Heads { query_heads: 2 * group, kv_heads: 2 }.into()));
            continue;
        }
        bed.append_all(&[70], &texts);
        let (rows, _) = bed.step(any(dice), &chunk, &texts, How::Extend);
        for token in [60, 69] {
            let head = dice.usize(..2 * group);
            let (defined, _) = model.defined(&texts[0], bed.layer, token, head);
            let computed = &rows[((token - 60) * 2 * group + head) * value_dim..][..value_dim];
            let same = defined.iter().zip(computed).all(|(defined, computed)| close(*defined, *computed, 4e-6));
            assert!(same, "{model:?}");
        }
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

/// Any finite factor of the scores: compares each level with the first.
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

/// A soft-cap that is far above all scores leaves them as they are.
// Holds: AT1.
#[test]
fn large_soft_caps_are_computed_as_defined() {
    let dice = &mut Rng::with_seed(6);
    for soft_cap in [1e3, 1e6, 1e20, 1e30, f32::MAX] {
        let model = Model { soft_cap: Some(soft_cap), ..Model::small(4, 2, 16, Dtype::F32) };
        let texts = [model.text(90, dice)];
        let bed = Bed::new(model.clone(), 16, Order::Nhd, &[90], dice);
        let (rows, lse) = bed.step(any(dice), &vec![(0, 0..90)], &texts, How::Extend);
        for token in [0, 50, 89] {
            let head = dice.usize(..4);
            let (defined, defined_lse) = model.defined(&texts[0], bed.layer, token, head);
            let place = token * 4 + head;
            let same = defined.iter().zip(&rows[place * 16..]).all(|(defined, out)| close(*defined, *out, 1e-5));
            assert!(same && close(defined_lse, lse[place], 1e-5 * defined_lse.abs().max(1.0)), "soft-cap {soft_cap}");
        }
    }
}
