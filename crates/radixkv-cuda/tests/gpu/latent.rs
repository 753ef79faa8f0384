//! Latent vectors (MLA): decode, appending, copies and swaps, and what is refused.

use fastrand::Rng;
use radixkv_attention::plan::share;
use radixkv_attention::{Backend, Dtype, Layout, Order, Output, ShapeError};
use radixkv_cuda::{Attention, Capacity, GpuError, HostPool, Kv, Planes, Swap};

use super::attention::{EAGER, Outputs, Subject};
use super::bed::{Bed, LAYOUT, NAN, Scores, Sequence, Shape, block_bytes};
use super::driver::{Driver, driver};
use super::engine::Engine;

const SHAPE: Shape = Shape {
    dtype: Dtype::Bf16,
    head_dim: 576,
    value_dim: Some(512),
    kv_heads: 1,
    group: 16,
    block_size: 16,
    order: Order::Latent,
    layers: 2,
    layer: 1,
};

fn bed(seed: u64, shape: Shape, contexts: &[usize]) -> Bed {
    Bed::new(seed, shape, &contexts.iter().map(|context| Sequence::one(context - 1)).collect::<Vec<_>>(), true)
}

/// Some scoring in half of the cases.
fn draw_scores(random: &mut Rng, heads: usize) -> Scores {
    let some = random.bool();
    let has = |random: &mut Rng| some && random.bool();
    Scores {
        window: has(random).then(|| random.u32(1..=150)),
        soft_cap: has(random).then(|| random.f32() * 40.0 + 5.0),
        slopes: (0..if has(random) { heads } else { 0 }).map(|_| random.f32() / 8.0).collect(),
        sinks: (0..if has(random) { 2 * heads } else { 0 }).map(|_| random.f32() * 8.0 - 4.0).collect(),
    }
}

fn decode_seeds(driver: &Driver, seeds: std::ops::RangeInclusive<u64>) {
    let device = driver.open();
    for seed in seeds {
        driver.schedule(seed as u32 % 5);
        driver.streams(seed as u32 % 3);
        let random = &mut Rng::with_seed(seed);
        let shape = Shape {
            dtype: random.choice([Dtype::Bf16, Dtype::F16]).expect("one of them"),
            group: random.choice([1, 16, 20, 32, 40, 64]).expect("one of them"),
            block_size: random.choice([1, 5, 16, 64]).expect("one of them"),
            ..SHAPE
        };
        let bed = bed(seed, shape, &[1, random.usize(30..=34), random.usize(100..300)]);
        let bed = Bed { scoring: draw_scores(random, shape.group), ..bed };
        let what = format!("seed {seed}, {shape:?}, {:?}", bed.scoring);
        let subject = Subject::of(&device, &bed);
        let Outputs { rows, lse } = subject.decode(&bed);
        bed.check(&what, &rows, Some(&lse));
        assert!(subject.kv.to_vec().expect("the storage") == bed.appended(1), "{what}");
    }
}

// Holds: GP4.
#[test]
fn decode_over_latent_vectors() {
    let Some(driver) = driver() else { return };
    decode_seeds(&driver, 1..=8);
}

#[test]
fn later_devices_run_the_ptx_over_latent_vectors() {
    let Some(driver) = driver() else { return };
    driver.device(1, (12, 0), 1 << 33);
    decode_seeds(&driver, 21..=22);
}

#[test]
fn all_heads_of_a_model_over_latent_vectors() {
    let Some(driver) = driver() else { return };
    let bed = bed(1, Shape { group: 128, ..SHAPE }, &[70]);
    let Outputs { rows, lse } = Subject::of(&driver.open(), &bed).decode(&bed);
    bed.check("128 heads", &rows, Some(&lse));
}

/// The table is looked up for each token, so the page size is in no sum.
// Holds: GP4.
#[test]
fn latent_outputs_have_the_same_bits_in_pages_of_any_size() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for group in [16, 32] {
        let bed = bed(5, Shape { group, block_size: 1, ..SHAPE }, &[1, 33, 200]);
        let outputs = Subject::of(&device, &bed).decode(&bed).rows;
        for block_size in [7, 16, 64] {
            let other = bed.in_blocks_of(block_size, 1);
            assert!(Subject::of(&device, &other).decode(&other).rows == outputs, "{group} heads, {block_size}");
        }
    }
}

/// Rows of a chunk, each over the tokens up to itself.
// Holds: GP4.
#[test]
fn extend_over_latent_vectors() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, group) in (1..).zip([16, 40]) {
        driver.schedule(seed as u32);
        let chunks = [Sequence { before: 13, rows: 20, shared: 0 }, Sequence { before: 0, rows: 3, shared: 0 }];
        let bed = Bed::new(seed, Shape { group, block_size: 5, ..SHAPE }, &chunks, true);
        let subject = Subject::of(&device, &bed);
        let Outputs { rows, lse } = subject.extend(&bed);
        bed.check(&format!("{group} heads"), &rows, Some(&lse));
        assert!(subject.kv.to_vec().expect("the storage") == bed.appended(1), "{group} heads");
    }
}

// Holds: GP4.
#[test]
fn what_has_no_kernel_over_latent_vectors_is_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let chunk = [Sequence { before: 13, rows: 3, shared: 0 }];
    let refused = |bed: &Bed, what| match attention.prepare(&bed.layout, &bed.batch()).map(drop) {
        Err(error @ GpuError::Latent { what: given, .. }) => {
            assert_eq!(given, what);
            assert!(error.to_string().starts_with(&format!("no kernels for {what} over latent vectors; ")));
        }
        other => panic!("{what}: {other:?}"),
    };
    refused(&Bed::new(3, SHAPE, &chunk, false), "rows that are not kept");
    refused(&Bed { trees: vec![1, 2, 5], ..Bed::new(3, SHAPE, &chunk, true) }, "trees");
    let last = bed(4, SHAPE, &[40, 50]);
    let sharing = share(last.batch().tables, &last.contexts, 16, EAGER);
    let cascade = attention.prepare_cascade(&last.layout, &last.batch(), &sharing).map(drop);
    assert_eq!(cascade, Err(GpuError::Latent { what: "shared prefixes", instead: "decode" }));
    // A tree that is a path is a chunk.
    let path = Bed { trees: vec![1, 3, 7], ..Bed::new(3, SHAPE, &chunk, true) };
    let Outputs { rows, lse } = Subject::of(&device, &path).extend(&path);
    path.check("a path", &rows, Some(&lse));
    // Only `extend` takes several rows of a sequence.
    let (subject, queries) = (Subject::of(&device, &path), device.upload(&path.queries).expect("memory"));
    let batch = attention.prepare(&path.layout, &path.batch()).expect("a batch");
    let mut out = device.upload(&vec![NAN; 3 * 16 * 512]).expect("memory");
    let decoded = attention.decode(&subject.kv, 1, &batch, queries.view(), Output { rows: out.view_mut(), lse: None });
    assert_eq!(decoded, Err(ShapeError::DecodeRows { sequence: 0, rows: 3 }.into()));
}

#[test]
fn layouts_of_latent_vectors_without_kernels_are_refused() {
    let Some(driver) = driver() else { return };
    let attention = Attention::new(&driver.open());
    let good = Layout { kv_heads: 1, head_dim: 576, value_dim: 512, order: Order::Latent, ..LAYOUT };
    assert!(attention.allocate(good).is_ok());
    for layout in [
        Layout { dtype: Dtype::E4m3, ..good },
        Layout { head_dim: 128, value_dim: 128, ..good },
        Layout { order: Order::Nhd, ..good },
    ] {
        let Layout { dtype, head_dim, value_dim, .. } = layout;
        let refused = attention.allocate(layout).map(drop);
        assert_eq!(refused, Err(GpuError::Layout { dtype, head_dim, value_dim }), "{layout:?}");
    }
    let refused = attention.allocate(Layout { kv_heads: 2, ..good }).map(drop);
    let two = ShapeError::Latent { kv_heads: 2, head_dim: 576, value_dim: 512 };
    assert_eq!(refused, Err(GpuError::Shape(two)));
}

#[test]
fn blocks_of_latent_vectors_are_copied_and_swapped() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let bed = bed(6, Shape { block_size: 5, ..SHAPE }, &[9]);
    let subject = Subject::of(&device, &bed);
    subject.decode(&bed);
    let from = bed.blocks[0];
    let to = (0..bed.layout.blocks as u32).find(|block| !bed.blocks.contains(block)).expect("a free block");
    attention.copy_blocks(&subject.kv, &[(from, to)]).expect("copied");
    let (host, swap) = (HostPool::new(&device, &bed.layout, 1).expect("memory"), Swap::new(&device).expect("a stream"));
    assert_eq!(host.block_bytes(), 2 * 5 * 1152); // two layers
    let other = Subject::of(&device, &bed);
    swap.swap_out(&subject.kv, &host, &[(from, 0)]).expect("out").wait().expect("out");
    swap.swap_in(&other.kv, &host, &[(0, to)]).expect("in").wait().expect("in");
    let (here, there) = (subject.kv.to_vec().expect("the storage"), other.kv.to_vec().expect("the storage"));
    let piece = block_bytes(&bed.layout) / 2;
    for layer in 0..2 {
        let at = |block: u32| (layer * bed.layout.blocks + block as usize) * piece;
        let block = &here[at(from)..][..piece];
        assert!(here[at(to)..][..piece] == *block, "layer {layer}: copied");
        assert!(there[at(to)..][..piece] == *block, "layer {layer}: swapped");
    }
}

/// A pool of an engine, and a batch that is replaced in place.
#[test]
fn latent_batches_are_replaced_in_an_engines_pool() {
    let Some(_driver) = driver() else { return };
    for heads in [16, 64] {
        let shape = Shape { group: heads, layers: 1, layer: 0, ..SHAPE };
        let beds = [bed(7, shape, &[40, 300]), bed(8, shape, &[80, 1])];
        let blocks = beds.iter().map(|bed| bed.layout.blocks).max().expect("two");
        let layout = Layout { blocks, ..beds[0].layout };
        let engine = Engine::new();
        let pool = engine.allocate(2 * layout.elements());
        {
            let device = engine.device();
            let attention = Attention::new(&device);
            let planes = Planes { keys: &[pool], values: &[], block_stride: layout.block_elements() };
            // SAFETY: the pool is freed after the storage.
            let kv = unsafe { Kv::from_raw(&device, layout, planes) }.expect("a pool");
            let with_values = Planes { values: &[pool], ..planes };
            // SAFETY: as above.
            let refused = unsafe { Kv::from_raw(&device, layout, with_values) }.map(drop);
            let length = ShapeError::Length { what: "addresses of values", given: 1, needed: 0 };
            assert_eq!(refused, Err(GpuError::Shape(length)));
            let items = attention.items(&layout, 3).expect("a number");
            let capacity = Capacity { sequences: 3, blocks: 64, items };
            let few = Capacity { items: 3 * heads.div_ceil(32) - 1, ..capacity };
            let refused = attention.reserve(&layout, &beds[0].batch(), few).map(drop);
            let (given, room) = (few.items + 1, few.items);
            assert_eq!(refused, Err(GpuError::Capacity { what: "heads of sequences", given, room }));
            let mut batch = attention.reserve(&layout, &beds[0].batch(), capacity).expect("room");
            for bed in &beds {
                engine.write(pool, &bed.storage);
                batch.update(&bed.batch()).expect("a batch");
                let padded = |elements: &[u16], row: usize| {
                    let mut rows = elements.to_vec();
                    rows.resize(3 * row, NAN);
                    device.upload(&rows).expect("memory")
                };
                let (queries, keys) = (padded(&bed.queries, heads * 576), padded(&bed.keys, 576));
                let none = device.zeros::<u16>(0).expect("memory");
                let mut out = device.upload(&vec![NAN; 3 * heads * 512]).expect("memory");
                attention.append(&kv, 0, &batch, keys.view(), none.view()).expect("appended");
                let to = Output { rows: out.view_mut(), lse: None };
                attention.decode(&kv, 0, &batch, queries.view(), to).expect("decoded");
                let rows = out.to_vec().expect("outputs");
                bed.check(&format!("{heads} heads"), &rows[..2 * heads * 512], None);
                assert!(rows[2 * heads * 512..].iter().all(|element| *element == NAN), "a row that no sequence has");
            }
        }
        engine.leave(&[pool]);
    }
}
