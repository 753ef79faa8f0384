//! Elements of 8 bits, sizes of heads, pages of any size, scorings and trees, against the
//! definition in `f64`.

use fastrand::Rng;
use radixkv_attention::plan::{Rule, share};
use radixkv_attention::{Backend, Batch, Dtype, Half, Layout, Order, Scoring, ShapeError};
use radixkv_cuda::{Attention, Capacity, GpuError, HostPool, Swap};

use super::attention::{EAGER, Outputs, Subject};
use super::bed::{Bed, LAYOUT, Scores, Sequence, Shape, block_bytes};
use super::driver::{Driver, driver};

pub const OF_8_BITS: [Dtype; 4] = [Dtype::I8, Dtype::E4m3, Dtype::I8Static, Dtype::E4m3Static];
const SIZES: [(usize, Option<usize>); 6] =
    [(64, None), (128, None), (96, None), (192, None), (192, Some(128)), (256, None)];
pub const PAGES: [usize; 9] = [1, 2, 5, 7, 16, 32, 48, 64, 100];

/// A shape drawn at random: elements of 8 bits with the sizes of heads that they have.
fn draw_shape(random: &mut Rng) -> Shape {
    let narrow = random.bool();
    let dtypes: &[Dtype] = if narrow { &OF_8_BITS } else { &[Dtype::Bf16, Dtype::F16] };
    let (head_dim, value_dim) = SIZES[random.usize(..if narrow { 2 } else { 6 })];
    Shape {
        dtype: dtypes[random.usize(..dtypes.len())],
        head_dim,
        value_dim,
        kv_heads: random.usize(1..=3),
        group: random.choice([1, 4, 7, 8, 16]).expect("one of them"),
        block_size: random.choice(PAGES).expect("one of them"),
        order: random.choice([Order::Nhd, Order::Hnd]).expect("one of them"),
        ..Shape::SMALL
    }
}

/// No scoring in one case of three; otherwise each part of it in half of the cases.
pub fn draw_scores(random: &mut Rng, heads: usize) -> Scores {
    if random.u8(..3) == 0 {
        return Scores::default();
    }
    let mut sinks: Vec<f32> =
        (0..if random.bool() { 2 * heads } else { 0 }).map(|_| random.f32() * 8.0 - 4.0).collect();
    sinks.iter_mut().step_by(5).for_each(|sink| *sink = f32::NEG_INFINITY);
    Scores {
        window: random.bool().then(|| random.u32(1..=150)),
        soft_cap: random.bool().then(|| random.f32() * 40.0 + 5.0),
        slopes: (0..if random.bool() { heads } else { 0 }).map(|_| random.f32() / 8.0).collect(),
        sinks,
    }
}

fn bed(seed: u64, sequences: &[Sequence], save_kv: bool) -> (Bed, String) {
    let random = &mut Rng::with_seed(seed);
    let shape = draw_shape(random);
    let bed = Bed::new(seed, shape, sequences, save_kv);
    let scoring = draw_scores(random, bed.query_heads);
    let what = format!("seed {seed}, {shape:?}, {scoring:?}");
    (Bed { scoring, ..bed }, what)
}

pub fn each_seed(driver: &Driver, seeds: std::ops::RangeInclusive<u64>, run: impl Fn(u64, &mut Rng)) {
    for seed in seeds {
        driver.schedule(seed as u32 % 5);
        driver.streams(seed as u32 % 3);
        run(seed, &mut Rng::with_seed(seed + 1000));
    }
}

fn decode_seeds(driver: &Driver, seeds: std::ops::RangeInclusive<u64>) {
    let device = driver.open();
    each_seed(driver, seeds, |seed, random| {
        let lengths = [1, 16, random.usize(2..100), random.usize(100..400)];
        let (bed, what) = bed(seed, &lengths.map(|context| Sequence::one(context - 1)), true);
        let subject = Subject::of(&device, &bed);
        let Outputs { rows, lse } = subject.decode(&bed);
        bed.check(&format!("decode, {what}"), &rows, Some(&lse));
        assert!(subject.kv.to_vec().expect("the storage") == bed.appended(1), "{what}");
    });
}

#[test]
fn decode_of_random_variants() {
    let Some(driver) = driver() else { return };
    decode_seeds(&driver, 1..=28);
}

fn extend_seeds(driver: &Driver, seeds: std::ops::RangeInclusive<u64>) {
    let device = driver.open();
    each_seed(driver, seeds, |seed, random| {
        let mut chunk = |most| Sequence { before: random.usize(..most), rows: random.usize(1..=40), shared: 0 };
        let (bed, what) = bed(seed, &[chunk(1), chunk(200), chunk(40)], seed % 3 > 0);
        let subject = Subject::of(&device, &bed);
        let Outputs { rows, lse } = subject.extend(&bed);
        bed.check(&format!("extend, {what}"), &rows, Some(&lse));
        let stored = if bed.save_kv { bed.appended(1) } else { bed.storage.clone() };
        assert!(subject.kv.to_vec().expect("the storage") == stored, "{what}");
    });
}

#[test]
fn extend_of_random_variants() {
    let Some(driver) = driver() else { return };
    extend_seeds(&driver, 101..=118);
}

fn cascade_seeds(driver: &Driver, seeds: std::ops::RangeInclusive<u64>) {
    let device = driver.open();
    each_seed(driver, seeds, |seed, random| {
        let block_size = draw_shape(&mut Rng::with_seed(seed)).block_size;
        let prefix = (random.usize(1..200) / block_size).max(1) * block_size;
        let mut sequences = vec![Sequence::one(prefix + random.usize(..20)), Sequence::one(random.usize(..30))];
        let sharers = random.usize(1..=9);
        sequences
            .extend((0..sharers).map(|_| Sequence { shared: prefix, ..Sequence::one(prefix + random.usize(..40)) }));
        let (bed, what) = bed(seed, &sequences, true);
        let rule = Rule { grain_tokens: block_size, ..EAGER };
        let sharing = share(bed.batch().tables, &bed.contexts, block_size, rule);
        assert!(sharing.saved_tokens() > 0, "{what}");
        let Outputs { rows, lse } = Subject::of(&device, &bed).cascade(&bed, &sharing);
        bed.check(&format!("cascade, {what}"), &rows, Some(&lse));
    });
}

#[test]
fn cascade_of_random_variants() {
    let Some(driver) = driver() else { return };
    cascade_seeds(&driver, 201..=221);
}

#[test]
fn trees_of_drafted_tokens() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    each_seed(&driver, 301..=310, |seed, random| {
        let mut draft = || Sequence { before: random.usize(..200), rows: random.usize(1..=16), shared: 0 };
        let sequences = [draft(), draft(), draft()];
        let (drawn, what) = bed(seed, &sequences, seed % 3 > 0);
        let window = drawn.scoring.window.map(|window| window.max(32));
        let mut trees: Vec<u32> = Vec::new();
        for sequence in sequences {
            let first = trees.len();
            for row in 0..sequence.rows {
                let parent = if row > 0 && random.u8(..5) > 0 { trees[first + random.usize(..row)] } else { 0 };
                trees.push(1 << row | parent);
            }
        }
        let bed = Bed { scoring: Scores { window, slopes: Vec::new(), ..drawn.scoring }, trees, ..drawn };
        let Outputs { rows, lse } = Subject::of(&device, &bed).extend(&bed);
        bed.check(&format!("tree, {what}"), &rows, Some(&lse));
    });
}

/// As `later_devices_run_the_ptx`, for the variants.
#[test]
fn later_devices_run_the_ptx_of_variants() {
    let Some(driver) = driver() else { return };
    driver.device(1, (12, 0), 1 << 33);
    decode_seeds(&driver, 41..=44);
    extend_seeds(&driver, 131..=133);
    cascade_seeds(&driver, 231..=231);
}

/// What is before the window is NaN: it is not read.
#[test]
fn blocks_before_the_window_are_not_read() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (seed, block_size) in (1..).zip([1, 16, 48]) {
        for rows in [1, 20] {
            let shape = Shape { block_size, ..Shape::SMALL };
            let sequences = [Sequence { before: 300, rows, shared: 0 }];
            let mut bed = Bed::new(seed, shape, &sequences, true);
            bed.scoring.window = Some(40);
            let (piece, planes) = (block_bytes(&bed.layout) / 2, 2 * bed.layout.layers);
            for block in &bed.blocks[..(300 + 1 - 40) / block_size] {
                for plane in 0..planes {
                    let at = (plane * bed.layout.blocks + *block as usize) * piece;
                    bed.storage[at..at + piece].fill(super::bed::NAN);
                }
            }
            let subject = Subject::of(&device, &bed);
            let Outputs { rows, lse } = if rows == 1 { subject.decode(&bed) } else { subject.extend(&bed) };
            bed.check(&format!("blocks of {block_size}"), &rows, Some(&lse));
        }
    }
}

/// The bound that the package states for what rounding to 8 bits costs.
#[test]
fn eight_bits_cost_as_much_accuracy_as_is_stated() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for (dtype, bound) in [(Dtype::I8, 0.02), (Dtype::E4m3, 0.06), (Dtype::I8Static, 0.03), (Dtype::E4m3Static, 0.06)] {
        let shape = Shape { dtype, head_dim: 128, ..Shape::SMALL };
        let mut bed = Bed::new(7, shape, &[Sequence::one(500), Sequence::one(60)], true);
        bed.scale /= 8.0; // scores of the size that models have
        let most = if dtype == Dtype::I8Static { 127.0 } else { 448.0 };
        bed.scales = [(); 2].map(|()| vec![5.0 / most; 2]);
        let bed = Bed { storage: Bed::refilled(&bed, 7, shape), ..bed };
        let Outputs { rows, .. } = Subject::of(&device, &bed).decode(&bed);
        bed.check(&format!("{dtype}"), &rows, None);
        let error = bed.error_of_storing(&format!("{dtype}"), &rows);
        assert!(error < bound && error > bound / 20.0, "{dtype}: {error:.2e}");
    }
}

#[test]
fn scales_travel_with_their_blocks() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    for (seed, dtype) in (1..).zip([Dtype::I8, Dtype::E4m3]) {
        let shape = Shape { dtype, kv_heads: 3, block_size: 5, ..Shape::SMALL };
        let bed = Bed::new(seed, shape, &[Sequence::one(9)], true);
        let subject = Subject::of(&device, &bed);
        subject.decode(&bed);
        let (from, to) =
            (bed.blocks[0], (0..bed.layout.blocks as u32).find(|b| !bed.blocks.contains(b)).expect("free"));
        let piece = block_bytes(&bed.layout) / 2;
        let copied = |storage: &[u16]| {
            let mut expected = storage.to_vec();
            for plane in 0..2 * bed.layout.layers {
                let at = |block: u32| (plane * bed.layout.blocks + block as usize) * piece;
                expected.copy_within(at(from)..at(from) + piece, at(to));
            }
            expected
        };
        let expected = copied(&bed.appended(1));
        attention.copy_blocks(&subject.kv, &[(from, to)]).expect("copied");
        assert!(subject.kv.to_vec().expect("the storage") == expected, "{dtype}: a copy");

        let other = Subject::of(&device, &bed);
        let (host, swap) =
            (HostPool::new(&device, &bed.layout, 2).expect("memory"), Swap::new(&device).expect("a stream"));
        subject.decode(&bed);
        swap.swap_out(&subject.kv, &host, &[(from, 1)]).expect("out").wait().expect("out");
        swap.swap_in(&other.kv, &host, &[(1, to)]).expect("in").wait().expect("in");
        let (whole, swapped) = (subject.kv.to_vec().expect("the storage"), other.kv.to_vec().expect("the storage"));
        for plane in 0..2 * bed.layout.layers {
            let at = |block: u32| (plane * bed.layout.blocks + block as usize) * piece;
            assert!(whole[at(from)..][..piece] == swapped[at(to)..][..piece], "{dtype}: swapped");
        }
    }
}

#[test]
fn scales_and_scorings_that_do_not_fit_are_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let layout = Layout { dtype: Dtype::E4m3Static, ..LAYOUT };
    let mut kv = attention.allocate(layout).expect("memory");
    let shape = |error| Err(GpuError::Shape(error));
    assert_eq!(kv.set_scales(0, Half::Keys, &[0.5, 2.0]), Ok(()));
    assert_eq!(kv.set_scales(2, Half::Keys, &[0.5]), shape(ShapeError::Layer { layer: 2, layers: 2 }));
    assert_eq!(kv.set_scales(0, Half::Keys, &[-1.0]), shape(ShapeError::KvScale { scale: -1.0 }));
    let length = ShapeError::Length { what: "scales", given: 3, needed: 2 };
    assert_eq!(kv.set_scales(0, Half::Values, &[1.0; 3]), shape(length));
    let mut computed = attention.allocate(Layout { dtype: Dtype::E4m3, ..LAYOUT }).expect("memory");
    assert_eq!(computed.set_scales(0, Half::Keys, &[1.0]), shape(ShapeError::NotStatic { dtype: Dtype::E4m3 }));
    for layout in [
        Layout { head_dim: 96, value_dim: 96, dtype: Dtype::I8, ..LAYOUT },
        Layout { head_dim: 64, value_dim: 128, ..LAYOUT },
    ] {
        let refused = attention.allocate(layout).expect_err("no kernels");
        let Layout { dtype, head_dim, value_dim, .. } = layout;
        assert_eq!(refused, GpuError::Layout { dtype, head_dim, value_dim });
        assert!(refused.to_string().contains(&format!("{head_dim} elements of keys and {value_dim} of values")));
    }
    let bed = Bed::new(1, Shape::SMALL, &[Sequence { before: 20, rows: 2, shared: 0 }], true);
    let prepare = |scoring| attention.prepare(&bed.layout, &Batch { scoring, ..bed.batch() }).map(drop);
    assert_eq!(prepare(Scoring { trees: &[1, 1], ..Scoring::default() }), shape(ShapeError::Tree { row: 1 }));
    assert_eq!(prepare(Scoring { trees: &[1, 3], ..Scoring::default() }), Ok(()));
}

/// The kernels subtract two numbers as large as the soft-cap, so a large one would leave nothing of
/// a score.
// Holds: GP2.
#[test]
fn soft_caps_are_computed_as_defined_or_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let capped = |dtype, soft_cap| {
        let shape = Shape { dtype, ..Shape::SMALL };
        let bed = Bed::new(9, shape, &[Sequence::one(300), Sequence { shared: 288, ..Sequence::one(290) }], true);
        Bed { scoring: Scores { soft_cap: Some(soft_cap), ..Scores::default() }, ..bed }
    };
    for (dtype, soft_cap) in [Dtype::Bf16, Dtype::F16]
        .into_iter()
        .flat_map(|dtype| [f32::MIN_POSITIVE, 1e-3, 1.0, 300.0, 1024.0].map(|soft_cap| (dtype, soft_cap)))
    {
        let bed = capped(dtype, soft_cap);
        let subject = Subject::of(&device, &bed);
        let sharing = share(bed.batch().tables, &bed.contexts, 16, Rule { grain_tokens: 16, ..EAGER });
        for (how, Outputs { rows, lse }) in [
            ("decode", subject.decode(&bed)),
            ("extend", subject.extend(&bed)),
            ("cascade", subject.cascade(&bed, &sharing)),
        ] {
            bed.check(&format!("{how}, {dtype}, soft-cap {soft_cap}"), &rows, Some(&lse));
        }
    }
    for soft_cap in [1e-45, 1025.0, 1e6, f32::MAX] {
        let bed = capped(Dtype::Bf16, soft_cap);
        let (attention, batch) = (Attention::new(&device), bed.batch());
        let sharing = share(batch.tables, &bed.contexts, 16, Rule { grain_tokens: 16, ..EAGER });
        let capacity = Capacity { sequences: 2, blocks: 99, items: 99 };
        for refused in [
            attention.prepare(&bed.layout, &batch).map(drop),
            attention.prepare_cascade(&bed.layout, &batch, &sharing).map(drop),
            attention.reserve(&bed.layout, &batch, capacity).map(drop),
        ] {
            assert_eq!(
                refused.map_err(|error| error.to_string()),
                Err(format!(
                    "the soft-cap {soft_cap} is not one from {:e} to 1024, which the kernels compute; use none",
                    f32::MIN_POSITIVE,
                ))
            );
        }
    }
}
