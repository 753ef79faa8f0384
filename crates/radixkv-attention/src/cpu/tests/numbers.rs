//! Rows of sixteen bits: the outputs are the same numbers, rounded once.

use half::{bf16, f16};

use super::*;

/// Rows of two sequences, computed from rows of `E`: their prompts, or their last tokens over the
/// prompts.
fn outputs<E: Number>(threads: usize, how: How) -> (Vec<E>, Vec<f32>) {
    let dice = &mut Rng::with_seed(11);
    let processor = Processor::<E>::with_threads(threads).expect("threads");
    let model = Model { value_dim: 20, ..Model::small(6, 2, 12, Dtype::Bf16) };
    let bed = Bed::new(model.clone(), 16, Order::Hnd, &[100, 170], dice);
    let mut run = |chunks: &Chunks, how: How| {
        let flat = bed.flat(chunks);
        let batch = bed.batch(&flat, how != How::Discard);
        let prepared = processor.prepare(bed.kv.layout(), &batch).expect("a good batch");
        // Numbers that all three types represent.
        let mut numbers = |row: usize| -> Vec<E> {
            (0..batch.total_rows() * row).map(|_| E::narrow(dice.i8(-8..=8).into())).collect()
        };
        let (queries, keys, values) = (numbers(6 * 12), numbers(2 * 12), numbers(2 * 20));
        let mut rows = vec![E::narrow(0.0); batch.total_rows() * 6 * 20];
        let mut lse = vec![0.0; batch.total_rows() * 6];
        let out = Output { rows: rows.as_mut_slice(), lse: Some(lse.as_mut_slice()) };
        let new = Qkv { queries: queries.as_slice(), keys: &keys, values: &values };
        match how {
            How::Decode => processor
                .append(&bed.kv, 0, &prepared, &keys, &values)
                .and_then(|()| processor.decode(&bed.kv, 0, &prepared, &queries, out)),
            _ => processor.extend(&bed.kv, 0, &prepared, new, out),
        }
        .expect("a good step");
        assert!(lse.iter().all(|lse| lse.is_finite()), "{how:?}");
        (rows, lse)
    };
    match how {
        How::Decode => {
            run(&vec![(0, 0..99), (1, 0..169)], How::Extend);
            run(&vec![(0, 99..100), (1, 169..170)], how)
        }
        _ => run(&vec![(0, 0..100), (1, 0..170)], how),
    }
}

// Holds: AT5.
#[test]
fn rows_of_sixteen_bits_give_the_same_numbers_rounded_once() {
    for how in [How::Extend, How::Discard, How::Decode] {
        let (wide, lse) = outputs::<f32>(1, how);
        let (half, half_lse) = outputs::<f16>(2, how);
        let (brain, brain_lse) = outputs::<bf16>(3, how);
        assert_eq!((bits(&lse), bits(&lse)), (bits(&half_lse), bits(&brain_lse)), "{how:?}");
        for ((wide, half), brain) in wide.iter().zip(half).zip(brain) {
            assert_eq!(
                (f16::narrow(*wide).to_bits(), bf16::narrow(*wide).to_bits()),
                (half.to_bits(), brain.to_bits())
            );
        }
    }
}
