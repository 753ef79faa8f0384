//! Decode over elements of 8 bits takes two heads of keys and values together, if their number is
//! even and each has at most 8 query heads.

use fastrand::Rng;
use radixkv_attention::plan::{Rule, share};
use radixkv_attention::{Backend, Dtype, Order, Output};
use radixkv_cuda::{Capacity, GpuError};

use super::attention::{EAGER, Outputs, Subject};
use super::bed::{Bed, NAN, Sequence, Shape};
use super::driver::driver;
use super::variants::{OF_8_BITS, PAGES, draw_scores, each_seed};

/// Heads of keys and values, and query heads of each: those of pairs, and the nearest of others.
const HEADS: [(usize, usize); 16] = [
    (2, 1),
    (4, 2),
    (6, 3),
    (2, 4),
    (4, 5),
    (2, 6),
    (4, 7),
    (2, 8),
    (8, 1),
    (4, 8),
    (2, 3),
    (6, 2),
    (1, 8),
    (3, 4),
    (2, 9),
    (2, 16),
];

fn shape(random: &mut Rng, dtype: Dtype, (kv_heads, group): (usize, usize)) -> Shape {
    Shape {
        dtype,
        head_dim: 128,
        kv_heads,
        group,
        block_size: random.choice(PAGES).expect("one of them"),
        order: random.choice([Order::Nhd, Order::Hnd]).expect("one of them"),
        ..Shape::SMALL
    }
}

/// Pages of every size, windows, soft-caps, sinks and slopes; the longest context is cut.
#[test]
fn decode_of_pairs_and_of_single_heads() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    each_seed(&driver, 401..=416, |seed, random| {
        let (at, heads) = (seed as usize - 401, HEADS[seed as usize - 401]);
        let shape = shape(random, OF_8_BITS[at % 4], heads);
        let lengths = [random.usize(300..600), 1, random.usize(15..=17), random.usize(2..100)];
        let bed = Bed::new(seed, shape, &lengths.map(|context| Sequence::one(context - 1)), true);
        let bed = Bed { scoring: draw_scores(random, bed.query_heads), ..bed };
        let what = format!("seed {seed}, {shape:?}, {:?}", bed.scoring);
        let subject = Subject::of(&device, &bed);
        let Outputs { rows, lse } = subject.decode(&bed);
        bed.check(&format!("decode, {what}"), &rows, Some(&lse));
        assert!(subject.kv.to_vec().expect("the storage") == bed.appended(1), "{what}");
        if seed % 4 == 1 {
            let Outputs { rows, lse } = subject.extend(&bed);
            bed.check(&format!("extend, {what}"), &rows, Some(&lse));
        }
    });
}

/// Tiles of a cascade have one head each. One batch is decoded, then cascaded.
#[test]
fn a_cascade_has_single_heads() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    each_seed(&driver, 421..=424, |seed, random| {
        let at = seed as usize - 421;
        let shape = Shape { block_size: [16, 5, 48, 1][at], ..shape(random, OF_8_BITS[at], [(4, 3), (2, 8)][at % 2]) };
        let prefix = 240;
        let lengths = [prefix + 20, prefix + 150, prefix, 30].map(|before| before + random.usize(..20));
        let mut sequences = lengths.map(Sequence::one);
        sequences[1..3].iter_mut().for_each(|sequence| sequence.shared = prefix);
        let bed = Bed::new(seed, shape, &sequences, true);
        let bed = Bed { scoring: draw_scores(random, bed.query_heads), ..bed };
        let rule = Rule { grain_tokens: shape.block_size, ..EAGER };
        let sharing = share(bed.batch().tables, &bed.contexts, shape.block_size, rule);
        assert!(sharing.saved_tokens() > 0, "seed {seed}");
        let what = format!("seed {seed}, {shape:?}, {:?}", bed.scoring);
        let subject = Subject::of(&device, &bed);
        let Outputs { rows, lse } = subject.decode(&bed);
        bed.check(&format!("decode, {what}"), &rows, Some(&lse));
        let Outputs { rows, lse } = subject.cascade(&bed, &sharing);
        bed.check(&format!("cascade, {what}"), &rows, Some(&lse));
    });
}

/// A captured step whose batch is replaced in place: with fewer sequences than it has room for, and
/// with room for few parts. An item is needed for each pair of heads, not for each head.
#[test]
fn a_captured_step_of_pairs_is_replaced_in_place() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    each_seed(&driver, 431..=434, |seed, random| {
        let shape = Shape { block_size: 16, ..shape(random, OF_8_BITS[seed as usize - 431], (4, 5)) };
        let mut lengths = [500, 16, 33];
        let beds: Vec<Bed> = (0..4)
            .map(|turn| {
                random.shuffle(&mut lengths);
                Bed::new(10 * seed + turn, shape, &lengths.map(|context| Sequence::one(context - 1)), true)
            })
            .collect();
        let (layout, rows, heads) = (beds[0].layout, 4, beds[0].query_heads);
        let mut subject = Subject::of(&device, &beds[0]);
        let attention = radixkv_cuda::Attention::new(&device);
        let capacity = Capacity { sequences: rows, blocks: beds[0].blocks.len(), items: 2 * rows + 3 };
        let few = Capacity { items: 2 * rows - 1, ..capacity };
        let refused = GpuError::Capacity { what: "heads of sequences", given: 2 * rows, room: 2 * rows - 1 };
        assert_eq!(attention.reserve(&layout, &beds[0].batch(), few).map(drop), Err(refused));
        let mut batch = attention.reserve(&layout, &beds[0].batch(), capacity).expect("a batch");
        let zeros = |elements| device.zeros::<u16>(elements).expect("memory");
        let (width, kept) = (heads * layout.head_dim, layout.kv_heads * layout.head_dim);
        let [mut queries, mut keys, mut values, mut out] = [width, kept, kept, width].map(|each| zeros(rows * each));
        let mut lse = device.zeros::<f32>(rows * heads).expect("memory");
        let graph = device.capture(|| {
            attention.append(&subject.kv, 1, &batch, keys.view(), values.view())?;
            let into = Output { rows: out.view_mut(), lse: Some(lse.view_mut()) };
            attention.decode(&subject.kv, 1, &batch, queries.view(), into)
        });
        let graph = graph.expect("a graph");
        for (turn, bed) in beds.iter().enumerate() {
            let padded = |elements: &[u16], each: usize| [elements, &vec![NAN; each][..]].concat();
            subject.kv.write(&bed.storage).expect("a copy");
            queries.write(&padded(&bed.queries, width)).expect("a copy");
            keys.write(&padded(&bed.keys, kept)).expect("a copy");
            values.write(&padded(&bed.values, kept)).expect("a copy");
            out.write(&vec![NAN; rows * width]).expect("a copy");
            batch.update(&bed.batch()).expect("updated");
            // SAFETY: storage, batch and buffers stay until the outputs have been read.
            unsafe { graph.launch() }.expect("launched");
            let got = out.to_vec().expect("outputs");
            bed.check(&format!("seed {seed}, turn {turn}"), &got, Some(&lse.to_vec().expect("log-sum-exps")));
            assert!(got[3 * width..].iter().all(|element| *element == NAN), "a row without a sequence");
            assert!(subject.kv.to_vec().expect("the storage") == bed.appended(1), "seed {seed}, turn {turn}");
        }
    });
}
