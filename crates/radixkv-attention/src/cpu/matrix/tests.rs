use fastrand::Rng;

use super::*;

fn numbers(count: usize, dice: &mut Rng) -> Vec<f32> {
    (0..count).map(|_| dice.f32() * 2.0 - 1.0).collect()
}

fn product(processor: &Processor, weights: &Weights, rows: &[f32]) -> Vec<u32> {
    let mut products = vec![f32::NAN; rows.len() / weights.inputs() * weights.outputs()];
    processor.multiply(weights, rows, &mut products);
    products.iter().map(|product| product.to_bits()).collect()
}

#[test]
fn rows_of_another_number_are_no_weights() {
    let made = |inputs, outputs, rows: &[f32]| {
        std::panic::catch_unwind(|| drop(Weights::from_f32(inputs, outputs, rows)))
            .err()
            .map(|panic| *panic.downcast::<String>().expect("a message of ours"))
    };
    assert_eq!(made(2, 0, &[]), None);
    for (inputs, outputs, rows) in [(0, 1, &[][..]), (2, 1, &[0.0]), (1 << (usize::BITS - 1), 2, &[])] {
        assert_eq!(made(inputs, outputs, rows), Some(format!("{outputs} rows of {inputs}")));
    }
}

// Holds: AT7.
#[test]
fn a_product_is_one_chain_whatever_computes_it() {
    let dice = &mut Rng::with_seed(1);
    for (inputs, outputs) in [(1, 1), (64, 96), (257, 40), (300, 133)] {
        let elements = numbers(inputs * outputs, dice);
        let narrow: Vec<u16> = elements.iter().map(|weight| (weight.to_bits() >> 16) as u16).collect();
        let rows = numbers(29 * inputs, dice);
        for weights in [Weights::from_f32(inputs, outputs, &elements), Weights::from_bf16(inputs, outputs, &narrow)] {
            let mut column = vec![0.0; inputs];
            let mut expected = vec![0; 29 * outputs];
            for output in 0..outputs {
                weights.row(output, &mut column);
                for (row, numbers) in rows.chunks_exact(inputs).enumerate() {
                    let chain = numbers.iter().zip(&column).fold(0.0, |sum, (a, b): (&f32, &f32)| a.mul_add(*b, sum));
                    expected[row * outputs + output] = chain.to_bits();
                }
            }
            for level in Level::all() {
                for threads in 1..=3 {
                    let processor = Processor::with_threads(threads).expect("threads").at(level);
                    for (first, end) in [(0, 29), (0, 1), (3, 5), (7, 13), (20, 29)] {
                        let some = product(&processor, &weights, &rows[first * inputs..end * inputs]);
                        let same = some == expected[first * outputs..end * outputs];
                        assert!(same, "{level:?}, {threads} threads, rows {first}..{end}, {inputs} x {outputs}");
                    }
                }
            }
        }
    }
}
