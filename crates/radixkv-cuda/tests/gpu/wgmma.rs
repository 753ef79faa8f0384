//! Extend by products of warpgroups, and by those of warps, against the definition in `f64`: enough
//! keys that every stage of shared memory is used several times. Where the device has no such
//! instructions both are the same kernel.

use fastrand::Rng;
use radixkv_attention::{Backend, Dtype, Order, Output, Qkv};

use super::attention::{Outputs, Subject};
use super::bed::{Bed, NAN, Scores, Sequence, Shape};
use super::driver::{driver, stand_in_driver};

const SHAPE: Shape = Shape { head_dim: 128, kv_heads: 1, group: 8, ..Shape::SMALL };

/// Both kinds of products.
fn check(seed: u64, shape: Shape, sequences: &[Sequence], change: impl Fn(&mut Bed)) {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    driver.schedule(seed as u32 % 5);
    let mut bed = Bed::new(seed, shape, sequences, seed.is_multiple_of(2));
    change(&mut bed);
    for wgmma in [false, true] {
        let mut subject = Subject::of(&device, &bed);
        subject.attention = subject.attention.with_wgmma(wgmma);
        let Outputs { rows, lse } = subject.extend(&bed);
        bed.check(&format!("seed {seed}, {shape:?}, wgmma {wgmma}"), &rows, Some(&lse));
    }
}

fn chunk(before: usize, rows: usize) -> Sequence {
    Sequence { before, rows, shared: 0 }
}

// Holds: GP3.
#[test]
fn chunks_after_contexts_of_many_steps() {
    for (seed, (block_size, group)) in (1_u64..).zip([(16, 8), (48, 7), (64, 1), (32, 16)]) {
        let (dtype, order) = if seed.is_multiple_of(2) { (Dtype::F16, Order::Hnd) } else { (Dtype::Bf16, Order::Nhd) };
        let shape = Shape { block_size, group, dtype, order, ..SHAPE };
        check(seed, shape, &[chunk(0, 1), chunk(1000, 20), chunk(380, 4)], |_| {});
    }
}

/// The table of a block size that the kernel of warpgroups is not made for.
// Holds: GP3.
#[test]
fn blocks_of_other_sizes() {
    check(11, Shape { block_size: 24, ..SHAPE }, &[chunk(300, 20)], |_| {});
}

// Holds: GP3.
#[test]
fn scores_of_every_kind() {
    let slopes: Vec<f32> = (0..8).map(|head| 0.02 * head as f32).collect();
    let sinks = vec![0.5; 2 * 8];
    let plain = Scores::default();
    let windows = [1, 100, 300].map(|window| Scores { window: Some(window), ..plain.clone() });
    let others =
        [Scores { soft_cap: Some(8.0), window: Some(200), ..plain.clone() }, Scores { slopes, sinks, ..plain.clone() }];
    for (seed, scores) in (21..).zip(windows.into_iter().chain(others)) {
        check(seed, SHAPE, &[chunk(500, 30)], |bed| bed.scoring = scores.clone());
    }
}

// Holds: GP3.
#[test]
fn trees_after_contexts_of_many_steps() {
    for (seed, window) in (31..).zip([None, Some(90)]) {
        let sequences = [chunk(500, 32), chunk(126, 5)];
        check(seed, SHAPE, &sequences, |bed| {
            let random = &mut Rng::with_seed(seed);
            bed.scoring.window = window;
            for sequence in sequences {
                let first = bed.trees.len();
                for row in 0..sequence.rows {
                    let parent = if row > 0 { bed.trees[first + random.usize(..row)] } else { 0 };
                    bed.trees.push(1 << row | parent);
                }
            }
        });
    }
}

/// The other kernel runs, the same bits come out, also of a graph, and dropped in any order nothing
/// is left.
#[test]
fn a_driver_without_warpgroups_has_one_kernel_for_both() {
    let Some(driver) = stand_in_driver() else { return };
    let bed = Bed::new(41, SHAPE, &[chunk(40, 3)], true);
    for first in [true, false] {
        let device = driver.open();
        let outputs = [first, !first].map(|wgmma| {
            let mut subject = Subject::of(&device, &bed);
            subject.attention = subject.attention.with_wgmma(wgmma);
            let Outputs { rows, lse } = subject.extend(&bed);
            let [queries, keys, values] = bed.upload(&device);
            let batch = subject.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
            let mut out = device.upload(&vec![NAN; bed.queries.len()]).expect("memory");
            let graph = device.capture(|| {
                let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
                subject.attention.extend(&subject.kv, 1, &batch, new, Output { rows: out.view_mut(), lse: None })
            });
            let graph = graph.expect("a graph");
            // SAFETY: storage, batch and buffers stay until the outputs have been read.
            unsafe { graph.launch() }.expect("launched");
            assert!(out.to_vec().expect("outputs") == rows, "captured, wgmma {wgmma}");
            if wgmma {
                drop((subject, graph, batch, out))
            } else {
                drop((graph, out, batch, subject))
            }
            (rows, lse)
        });
        assert!(outputs[0] == outputs[1]);
        drop(device);
        driver.assert_nothing_left("both kinds of products");
    }
}
