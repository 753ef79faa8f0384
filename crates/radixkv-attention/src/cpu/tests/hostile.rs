//! Shapes that no model has, arrays that no scheduler makes, and numbers at the ends of their
//! ranges.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::bed::DTYPES;
use super::*;
use crate::plan::{Group, Rule, Sharing};

/// Sizes of heads that are not a multiple of a vector, and blocks of any size: compares all
/// processors with the first, and the first with the definition.
// Holds: AT1.
#[test]
fn shapes_that_no_model_has_are_computed_as_defined() {
    for seed in 1..=16 {
        let dice = &mut Rng::with_seed(seed);
        let dtype = DTYPES[seed as usize % 7];
        let multiple = if dtype.has_scales() { 8 } else { 4 };
        let mut dim = || dice.usize(1..=[2, 12, 75][seed as usize % 3]) * multiple;
        let (head_dim, value_dim) = (dim(), dim());
        let kv_heads = dice.usize(1..=5);
        let model = Model { value_dim, ..Model::small(kv_heads * dice.usize(1..=16), kv_heads, head_dim, dtype) };
        let model = Model { window: dice.bool().then(|| dice.u32(1..=130)), ..model };
        let lengths: Vec<usize> = (0..dice.usize(1..=3)).map(|_| dice.usize(1..=140)).collect();
        let texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let bed = Bed::new(model.clone(), dice.usize(1..=1000), order, &lengths, dice);
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        let prompts: Chunks = lengths.iter().map(|tokens| 0..*tokens).enumerate().collect();
        bed.step(any(dice), &prompts, &texts, How::Extend);
        let (rows, lse) = bed.step(plain(), &last, &texts, How::Decode);
        for processor in PROCESSORS.iter() {
            let again = bed.step(processor, &last, &texts, How::Cascade);
            assert_eq!((bits(&rows), bits(&lse)), (bits(&again.0), bits(&again.1)), "seed {seed}: {model:?}");
        }
        for (sequence, tokens) in lengths.iter().enumerate() {
            let head = dice.usize(..model.query_heads);
            let (out, _) = model.defined(&texts[sequence], bed.layer, tokens - 1, head);
            let place = (sequence * model.query_heads + head) * value_dim;
            for (defined, computed) in out.iter().zip(&rows[place..]) {
                assert!(close(*defined, *computed, 4e-6), "seed {seed}, {model:?}: {defined} {computed}");
            }
        }
    }
}

// Holds: AT10.
#[test]
fn numbers_at_the_ends_of_their_ranges_have_the_same_bits_everywhere() {
    let ends =
        [0.0, -0.0, f32::MIN_POSITIVE, 1e-45, -1.0, f32::MAX, f32::MIN, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for seed in 1..=40 {
        let dice = &mut Rng::with_seed(seed);
        let end = |dice: &mut Rng| dice.choice(ends).expect("one of them");
        let dtype = dice.choice(DTYPES).expect("one of them");
        let sinks = if dice.bool() { (0..2 * 6).map(|_| end(dice)).collect() } else { Vec::new() };
        let soft_cap = dice.choice([None, Some(1e-45), Some(f32::MIN_POSITIVE), Some(1.0), Some(f32::MAX)]);
        let window = dice.choice([None, Some(1), Some(2), Some(u32::MAX)]).expect("one of them");
        let model = Model { sinks, window, soft_cap: soft_cap.flatten(), ..Model::small(6, 2, 16, dtype) };
        let mut text = model.text(70, dice);
        for rows in [&mut text.queries, &mut text.keys, &mut text.values] {
            for _ in 0..dice.usize(..4) {
                let at = dice.usize(..rows.len());
                rows[at] = end(dice);
            }
        }
        let texts = [text];
        let bed = Bed::new(model.clone(), 16, Order::Nhd, &[70], dice);
        let whole = bed.step(plain(), &vec![(0, 0..70)], &texts, How::Extend);
        let mut nothing = whole.0.iter().chain(&whole.1).filter(|number| number.is_nan());
        assert!(nothing.all(|number| number.to_bits() == f32::NAN.to_bits()), "seed {seed}: one NaN of many");
        for processor in PROCESSORS.iter() {
            for (how, tokens) in [(How::Discard, 0..70), (How::Extend, 30..70), (How::Decode, 69..70)] {
                let first = tokens.start;
                let (rows, lse) = bed.step(processor, &vec![(0, tokens)], &texts, how);
                let same = bits(&rows) == bits(&whole.0[first * 6 * 16..]) && bits(&lse) == bits(&whole.1[first * 6..]);
                assert!(same, "seed {seed}, {how:?}: {model:?}");
            }
        }
    }
}

/// Arrays of a batch that may be wrong: each batch is refused, or its step runs.
// Holds: AT15.
#[test]
fn arrays_that_no_scheduler_makes_are_refused_or_run() {
    let model = Model::small(2, 1, 4, Dtype::F32);
    let layout = model.layout(2, 10, Order::Nhd);
    let kv = Cpu.allocate(layout).expect("a small layout");
    let dice = &mut Rng::with_seed(1);
    let (mut refused, mut ran) = (0, 0);
    for round in 0..10_000 {
        // A good batch; a few of its numbers are then changed.
        let lengths: Vec<usize> = (0..dice.usize(..=2)).map(|_| dice.usize(1..=5)).collect();
        let bed = Bed {
            tables: lengths.iter().map(|tokens| vec![0, 3, 1][..tokens.div_ceil(2)].to_vec()).collect(),
            ..Bed::new(model.clone(), 2, Order::Nhd, &[], dice)
        };
        let chunks = lengths.iter().map(|tokens| dice.usize(..=*tokens)..*tokens).enumerate().collect();
        let Flat { mut blocks, mut offsets, mut contexts, mut rows, mut slots, .. } = bed.flat(&chunks);
        for _ in 0..dice.usize(..=2) {
            let number = if dice.u8(..3) == 0 { dice.u32(..) } else { dice.u32(..6) };
            let arrays = [&mut blocks, &mut offsets, &mut contexts, &mut rows];
            let array = arrays.into_iter().nth(dice.usize(..4)).expect("one of them");
            let at = dice.usize(..=array.len());
            match dice.u8(..3) {
                0 => array.insert(at, number),
                1 => drop(array.pop()),
                _ => array.iter_mut().skip(at).take(1).for_each(|to| *to = number),
            }
            slots.iter_mut().take(dice.usize(..=1)).for_each(|slot| *slot = number.into());
        }
        let save_kv = dice.u8(..4) > 0;
        let batch = Batch {
            query_heads: if dice.u8(..20) > 0 { 2 } else { dice.choice([0, 17, usize::MAX]).expect("one of them") },
            scale: if dice.u8(..20) > 0 { 0.5 } else { f32::NAN },
            scoring: Scoring::default(),
            tables: Tables { blocks: &blocks, offsets: &offsets },
            contexts: &contexts,
            rows: &rows,
            save_kv,
            slots: if save_kv { &slots } else { &[] },
        };
        let run = || {
            let Ok(prepared) = Cpu.prepare(&layout, &batch) else { return false };
            let total = batch.total_rows();
            let (queries, keys, mut out) = (vec![0.5; total * 8], vec![0.5; total * 4], vec![0.0; total * 8]);
            let new = Qkv { queries: &queries[..], keys: &keys, values: &keys };
            Cpu.extend(&kv, 0, &prepared, new, Output { rows: &mut out, lse: None }).expect("it was prepared");
            true
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(true) => ran += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("round {round}: {batch:?}"),
        }
    }
    assert!(ran > 300 && refused > 300, "{ran} ran, {refused} were refused");
}

// Holds: AT15.
#[test]
fn plans_that_nobody_found_are_refused_or_change_no_bit() {
    let dice = &mut Rng::with_seed(2);
    let model = Model::small(2, 1, 4, Dtype::F32);
    let lengths = [200, 200, 70];
    let mut bed = Bed::new(model.clone(), 16, Order::Nhd, &lengths, dice);
    let prefix = bed.tables[0][..9].to_vec();
    bed.tables[1][..9].copy_from_slice(&prefix);
    bed.tables[2][..4].copy_from_slice(&prefix[..4]);
    let texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
    for (sequence, tokens) in lengths.iter().enumerate() {
        bed.step(plain(), &vec![(sequence, 0..*tokens)], &texts, How::Extend);
    }
    let flat = bed.flat(&lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect());
    let (batch, layout) = (bed.batch(&flat, true), *bed.kv.layout());
    let prepared = Cpu.prepare(&layout, &batch).expect("a good batch");
    let (queries, mut expected) = (rows(3, 8, dice), [0.0; 24]);
    Cpu.decode(&bed.kv, bed.layer, &prepared, &queries, Output { rows: &mut expected, lse: None })
        .expect("a good step");
    let mut ran = 0;
    for _ in 0..3000 {
        let count = dice.usize(1..=3);
        let mut group = || Group {
            sequences: (0..dice.usize(..=3)).map(|_| dice.u32(..4)).collect(),
            shared_tokens: dice.choice([0, 0, 0, 64, 128, 192, 63, usize::MAX]).expect("one of them"),
        };
        let sharing = Sharing { groups: (0..count).map(|_| group()).collect() };
        let Ok(cascade) = Cpu.prepare_cascade(&layout, &batch, &sharing) else { continue };
        let mut out = [0.0; 24];
        let to = Output { rows: &mut out[..], lse: None };
        Cpu.cascade(&bed.kv, bed.layer, &prepared, &cascade, &queries, to).expect("a good step");
        assert_eq!(bits(&out), bits(&expected), "{sharing:?}");
        ran += 1;
    }
    assert!(ran > 20, "{ran} ran");
}

// Holds: AT15.
#[test]
fn a_layout_of_any_size_is_allocated_or_refused() {
    let good = Model::small(2, 1, 8, Dtype::F16).layout(4, 8, Order::Nhd);
    let sizes = [0, 1, 7, 8, 1 << 31, 1 << 32, 1 << 33, usize::MAX / 2, usize::MAX - 8, usize::MAX];
    let fields: [fn(&mut Layout) -> &mut usize; 6] = [
        |layout| &mut layout.layers,
        |layout| &mut layout.blocks,
        |layout| &mut layout.block_size,
        |layout| &mut layout.kv_heads,
        |layout| &mut layout.head_dim,
        |layout| &mut layout.value_dim,
    ];
    for (first, second) in (0..6).flat_map(|first| (0..6).map(move |second| (first, second))) {
        for (a, b) in sizes.into_iter().flat_map(|a| sizes.map(|b| (a, b))) {
            let mut layout = good;
            *fields[first](&mut layout) = a;
            *fields[second](&mut layout) = b;
            let small = layout.check().is_ok_and(|()| layout.bytes() < 1 << 20);
            if small {
                assert!(Cpu.allocate(layout).is_ok(), "{layout:?}");
            } else if layout.check().is_err() || layout.bytes() > 1 << 45 {
                assert!(Cpu.allocate(layout).is_err(), "{layout:?}");
            }
        }
    }
}

/// Layouts whose rows of a batch have more elements than there are addresses: nothing is computed.
// Holds: AT15.
#[test]
fn a_step_over_a_layout_of_another_size_is_refused() {
    let good = Model::small(2, 1, 8, Dtype::I8).layout(4, 8, Order::Nhd);
    let kv = Cpu.allocate(good).expect("a small layout");
    let one = |query_heads| Batch {
        query_heads,
        scale: 0.5,
        scoring: Scoring::default(),
        tables: Tables { blocks: &[0], offsets: &[0, 1] },
        contexts: &[1],
        rows: &[0, 1],
        save_kv: true,
        slots: &[0],
    };
    let huge = 1 << (usize::BITS - 3);
    for (head_dim, value_dim) in [(huge, 8), (8, huge), (huge, huge)] {
        let layout = Layout { layers: 1, blocks: 1, block_size: 1, kv_heads: 1, head_dim, value_dim, ..good };
        let prepared = Cpu.prepare(&layout, &one(16)).expect("a batch for a layout that could be");
        let (queries, mut rows) = ([0.5; 16], [7.0; 16]);
        let refused = Cpu.decode(&kv, 0, &prepared, &queries, Output { rows: &mut rows, lse: None });
        assert_eq!((refused, rows), (Err(ShapeError::Foreign.into()), [7.0; 16]));
    }
}

/// More rows than fit any memory, none of them kept: the batch has only their number, and what is
/// made from it is as small.
// Holds: AT15.
#[test]
fn rows_that_no_buffer_has_cost_nothing_until_they_are_refused() {
    let model = Model::small(16, 1, 4, Dtype::F32);
    let layout = model.layout(2, 2, Order::Nhd);
    let kv = Cpu.allocate(layout).expect("a small layout");
    let batch = Batch {
        query_heads: 16,
        scale: 0.5,
        scoring: Scoring::default(),
        tables: Tables { blocks: &[], offsets: &[0, 0] },
        contexts: &[u32::MAX],
        rows: &[0, u32::MAX],
        save_kv: false,
        slots: &[],
    };
    let prepared = Cpu.prepare(&layout, &batch).expect("a batch of many rows");
    assert!(prepared.alone.pieces.capacity() < 100, "{} pieces", prepared.alone.pieces.len());
    let new = Qkv { queries: &[0.5; 64][..], keys: &[0.5; 4], values: &[0.5; 4] };
    let refused = Cpu.extend(&kv, 0, &prepared, new, Output { rows: &mut [0.0; 64], lse: None });
    let needed = (u32::MAX as usize).saturating_mul(64);
    assert_eq!(refused, Err(ShapeError::Length { what: "queries", given: 64, needed }.into()));
}

// Holds: AT15.
#[test]
fn a_plan_may_save_more_tokens_than_there_are() {
    let group = Group { sequences: vec![0, 1, 2], shared_tokens: usize::MAX };
    assert_eq!(group.saved_tokens(), usize::MAX);
    assert_eq!(Sharing { groups: vec![group.clone(), group] }.saved_tokens(), usize::MAX);
}

// Holds: AT15.
#[test]
fn a_group_may_cost_more_than_there_are_tokens() {
    let tables = Tables { blocks: &[7, 1, 7, 2], offsets: &[0, 2, 4] };
    for cost in [usize::MAX, usize::MAX / 2, isize::MAX as usize, 17] {
        let sharing = plan::share(tables, &[20, 20], 16, Rule { grain_tokens: 16, group_cost_tokens: cost });
        assert_eq!((sharing.groups.len(), sharing.saved_tokens()), (2, 0), "{cost}");
    }
}

/// Calls from threads of the pool, from another pool, and while other work of the caller panics.
// Holds: AT16.
#[test]
fn a_pool_that_does_other_work_computes_the_same() {
    let dice = &mut Rng::with_seed(4);
    let model = Model::small(8, 4, 16, Dtype::Bf16);
    let bed = Bed::new(model.clone(), 16, Order::Nhd, &[150], dice);
    let texts = [model.text(150, dice)];
    let chunk: Chunks = vec![(0, 0..150)];
    let expected = bed.step(plain(), &chunk, &texts, How::Discard);
    let check = |on: &Processor| assert_eq!(bits(&bed.step(on, &chunk, &texts, How::Discard).0), bits(&expected.0));
    for threads in [1, 2, 3, 5, 7, 64] {
        let pool =
            |threads| Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads"));
        let (ours, other) = (pool(threads), pool(2));
        let processor = Processor::with_pool(ours.clone());
        assert_eq!(processor.threads(), threads);
        ours.install(|| check(&processor));
        other.install(|| check(&processor));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            ours.scope(|scope| {
                scope.spawn(|_| panic!("work of the caller's"));
                scope.spawn(|_| check(&processor));
                check(&processor);
            });
        }));
        assert!(panicked.is_err());
        check(&processor);
        // Threads that share the pool; each drops its own clone at its end.
        std::thread::scope(|scope| {
            for own in std::iter::repeat_n(processor.clone(), 4) {
                scope.spawn(|| check(&{ own }));
            }
        });
        // The last processor drops the pool, on one of the pool's own threads.
        drop(ours);
        let own = processor.clone();
        processor.threads.run(|| check(&own));
    }
}

/// A call from a destructor of a thread's own values, before and after the memory that the thread
/// computes in is gone.
// Holds: AT16.
#[test]
fn a_thread_that_ends_computes_the_same() {
    struct AtEnd(std::cell::RefCell<Option<Box<dyn FnOnce()>>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|last| last());
        }
    }
    thread_local! {
        static EARLY: AtEnd = const { AtEnd(std::cell::RefCell::new(None)) };
        static LATE: AtEnd = const { AtEnd(std::cell::RefCell::new(None)) };
    }
    let (done, ended) = std::sync::mpsc::channel();
    let product = || {
        let (weights, mut product) = (crate::cpu::Weights::from_f32(2, 1, &[1.0, 2.0]), [0.0]);
        Processor::<f32>::new().multiply(&weights, &[3.0, 4.0], &mut product);
        product[0]
    };
    std::thread::spawn(move || {
        let again = done.clone();
        EARLY.with(|end| *end.0.borrow_mut() = Some(Box::new(move || again.send(product()).expect("a receiver"))));
        assert_eq!(product(), 11.0);
        LATE.with(|end| *end.0.borrow_mut() = Some(Box::new(move || done.send(product()).expect("a receiver"))));
    });
    assert_eq!(ended.into_iter().collect::<Vec<f32>>(), [11.0, 11.0]);
}
