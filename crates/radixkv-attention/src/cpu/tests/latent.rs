//! Latent vectors: compares the sizes of DeepSeek and Kimi with the definition, and with keys and
//! values that are stored separately.

use super::*;
use crate::MAX_GQA_GROUP;

/// Sequences of these lengths, whose last rows are decoded; the rows before them are appended.
fn decode(bed: &Bed, on: &Processor, lengths: &[usize], texts: &[Text]) -> (Vec<f32>, Vec<f32>) {
    let before: Vec<usize> = lengths.iter().map(|tokens| tokens - 1).collect();
    bed.append_all(&before, texts);
    let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
    bed.step(on, &last, texts, How::Decode)
}

// Holds: AT2.
#[test]
fn the_sizes_of_models_are_computed_as_defined() {
    for (seed, query_heads) in (1..).zip([16, 64, 128]) {
        let dice = &mut Rng::with_seed(seed);
        let dtype = dice.choice([Dtype::Bf16, Dtype::F16, Dtype::E4m3]).expect("one of them");
        let model = Model::latent(query_heads, 576, 512, dtype);
        let lengths = [1, 63, dice.usize(65..200)];
        let texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let block_size = dice.choice([1, 16, 64]).expect("one of them");
        let bed = Bed::new(model.clone(), block_size, Order::Latent, &lengths, dice);
        let (rows, lse) = decode(&bed, any(dice), &lengths, &texts);
        for (sequence, tokens) in lengths.iter().enumerate() {
            for head in [0, dice.usize(..query_heads), query_heads - 1] {
                let (out, defined_lse) = model.defined(&texts[sequence], bed.layer, tokens - 1, head);
                let place = sequence * query_heads + head;
                let context = format!("seed {seed}, {dtype}, {query_heads} heads, {tokens} tokens, head {head}");
                assert_eq!(out.len(), 512);
                for (defined, computed) in out.iter().zip(&rows[place * 512..]) {
                    assert!(close(*defined, *computed, 1e-5), "{defined} {computed}: {context}");
                }
                assert!(close(defined_lse, lse[place], 1e-5 * defined_lse.abs().max(1.0)), "{context}");
            }
        }
    }
}

/// Contexts that the threads divide among them, for up to the most query heads of latent vectors.
// Holds: AT10.
#[test]
fn threads_that_divide_a_context_take_any_number_of_heads() {
    for query_heads in [48, 49, 64, 128] {
        let dice = &mut Rng::with_seed(query_heads as u64);
        let model = Model::latent(query_heads, 32, 16, dice.choice([Dtype::F32, Dtype::Bf16]).expect("one of them"));
        let tokens = 8 * RANGE_TOKENS + 5;
        let texts = [model.text(tokens, dice)];
        let bed = Bed::new(model, 16, Order::Latent, &[tokens], dice);
        let (rows, lse) = decode(&bed, plain(), &[tokens], &texts);
        for processor in PROCESSORS.iter() {
            let again = decode(&bed, processor, &[tokens], &texts);
            let threads = processor.threads();
            assert!(
                bits(&rows) == bits(&again.0) && bits(&lse) == bits(&again.1),
                "{query_heads} heads, {threads} threads"
            );
        }
    }
}

/// Compares latent vectors with keys whose first elements are also stored as values: the bits are
/// the same if both have the same scale.
// Holds: AT2.
#[test]
fn values_stored_apart_give_the_same_bits() {
    for seed in 1..=12 {
        let dice = &mut Rng::with_seed(seed);
        let dtypes = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8Static, Dtype::E4m3Static];
        let dtype = dice.choice(dtypes).expect("one of them");
        let (head_dim, value_dim) = dice.choice([(576, 512), (64, 48), (40, 8)]).expect("one of them");
        let latent = Model::latent(dice.usize(1..=MAX_GQA_GROUP), head_dim, value_dim, dtype);
        let scale = if dtype.has_scales() { 0.02 } else { 1.0 };
        let latent = Model { kv_scales: [vec![scale], vec![scale]], window: dice.bool().then_some(70), ..latent };
        let lengths = [dice.usize(1..=150), dice.usize(1..=150)];
        let texts: Vec<Text> = lengths.iter().map(|tokens| latent.text(*tokens, dice)).collect();
        let values = |text: &Text| {
            let rows = text.keys.chunks_exact(head_dim);
            rows.flat_map(|row| row[..value_dim].to_vec()).collect()
        };
        let apart: Vec<Text> = texts
            .iter()
            .map(|text| Text { queries: text.queries.clone(), keys: text.keys.clone(), values: values(text) })
            .collect();
        let other = Model { latent: false, ..latent.clone() };
        let prompts: Chunks = lengths.iter().map(|tokens| 0..*tokens).enumerate().collect();
        let how = dice.choice([How::Extend, How::Discard]).expect("one of them");
        let (of_latent, of_other) = (
            Bed { layer: 0, ..Bed::new(latent.clone(), 16, Order::Latent, &lengths, dice) },
            Bed { layer: 0, ..Bed::new(other, 5, Order::Hnd, &lengths, dice) },
        );
        let (on, off) = (any(dice), any(dice));
        let (ours, theirs) = (of_latent.step(on, &prompts, &texts, how), of_other.step(off, &prompts, &apart, how));
        assert_eq!((bits(&ours.0), bits(&ours.1)), (bits(&theirs.0), bits(&theirs.1)), "seed {seed}, {latent:?}");
    }
}

/// Compares attention with the keys and values of each head, computed from the latent vectors, with
/// the absorbed form: the weights of keys are multiplied into the queries, and those of values into
/// the outputs.
// Holds: AT2.
#[test]
fn the_absorbed_form_is_attention_with_the_keys_and_values_of_every_head() {
    let dice = &mut Rng::with_seed(1);
    let (heads, latent, rotary, per_head, tokens) = (3, 16, 4, 8, 40);
    let model = Model { scale: 0.3, ..Model::latent(heads, latent + rotary, latent, Dtype::F32) };
    let numbers = |count: usize, dice: &mut Rng| -> Vec<f64> { (0..count).map(|_| dice.f64() - 0.5).collect() };
    // [head][element of the head][element of the latent vector]
    let [key_weights, value_weights] = [(); 2].map(|()| numbers(heads * per_head * latent, dice));
    let mut text = model.text(tokens, dice);
    let query: Vec<f64> = numbers(heads * (per_head + rotary), dice);
    let last = &mut text.queries[(tokens - 1) * heads * (latent + rotary)..];
    let weights =
        |of: &[f64], head: usize, element: usize| of[(head * per_head + element) * latent..][..latent].to_vec();
    for head in 0..heads {
        let query = &query[head * (per_head + rotary)..][..per_head + rotary];
        let absorbed = &mut last[head * (latent + rotary)..][..latent + rotary];
        for (at, to) in absorbed[..latent].iter_mut().enumerate() {
            *to = (0..per_head).map(|e| query[e] * weights(&key_weights, head, e)[at]).sum::<f64>() as f32;
        }
        absorbed[latent..].iter_mut().zip(&query[per_head..]).for_each(|(to, from)| *to = *from as f32);
    }
    let bed = Bed::new(model, 16, Order::Latent, &[tokens], dice);
    let (rows, _) = decode(&bed, plain(), &[tokens], std::slice::from_ref(&text));
    for head in 0..heads {
        let query = &query[head * (per_head + rotary)..][..per_head + rotary];
        let vector =
            |token: usize| text.keys[token * (latent + rotary)..][..latent + rotary].iter().map(|x| f64::from(*x));
        let up = |of: &[f64], token: usize, element: usize| -> f64 {
            weights(of, head, element).iter().zip(vector(token)).map(|(w, x)| w * x).sum()
        };
        let score = |token: usize| {
            let of_keys: f64 = (0..per_head).map(|e| query[e] * up(&key_weights, token, e)).sum();
            let of_positions: f64 = query[per_head..].iter().zip(vector(token).skip(latent)).map(|(q, x)| q * x).sum();
            (0.3 * (of_keys + of_positions)).exp()
        };
        let sum: f64 = (0..tokens).map(score).sum();
        for element in 0..per_head {
            let expected: f64 =
                (0..tokens).map(|token| score(token) * up(&value_weights, token, element)).sum::<f64>() / sum;
            let out = &rows[head * latent..][..latent];
            let computed: f64 =
                weights(&value_weights, head, element).iter().zip(out).map(|(w, x)| w * f64::from(*x)).sum();
            assert!((expected - computed).abs() < 1e-5, "head {head}, element {element}: {expected} {computed}");
        }
    }
}
