//! A decode step that was captured once, launched for batches that change.

use fastrand::Rng;
use radixkv_attention::{Backend, Batch, Scoring, ShapeError};
use radixkv_cuda::{Attention, Capacity, Device, GpuError};

use super::bed::NAN;
use super::driver::{Counted, driver};
use super::steps::{Arrays, CAPACITY, Captured, KEY, LAYOUT, QUERY, QUERY_HEADS, Rows, Sequences, Step, storage};

/// Runs steps of a captured batch beside calls that are not captured, on storages of their own;
/// every output and, at the end, both storages are the same, bit for bit.
fn replay(device: &Device, seed: u64, steps: usize, capacity: Capacity, as_prepared: bool) -> usize {
    let attention = Attention::new(device);
    let (mut sequences, storage) = (Sequences::new(seed), storage(seed));
    let mut captured = Captured::new(device, &attention, &sequences.arrays(), &storage, capacity);
    let mut plain = Step::new(device, &attention, &storage, capacity.sequences);
    let (mut random, mut merged) = (Rng::with_seed(seed + 1), 0);
    for step in 0..steps {
        let arrays = sequences.step();
        let running = arrays.contexts.len();
        let rows = Rows::new(&mut random, capacity.sequences);
        captured.batch.update(&arrays.batch()).expect("updated");
        captured.step.write(&rows);
        captured.launch();
        let (out, lse) = captured.step.outputs();
        if as_prepared {
            let mut own = Step::new(device, &attention, &[], running);
            std::mem::swap(&mut own.kv, &mut plain.kv);
            own.write(&Rows {
                queries: rows.queries[..running * QUERY].to_vec(),
                keys: rows.keys[..running * KEY].to_vec(),
                values: rows.values[..running * KEY].to_vec(),
            });
            let batch = attention.prepare(&LAYOUT, &arrays.batch()).expect("a batch");
            own.queue(&attention, &batch).expect("queued");
            let expected = own.outputs();
            assert!(out[..running * QUERY] == expected.0, "seed {seed}, step {step}");
            assert!(lse[..running * QUERY_HEADS] == expected.1, "seed {seed}, step {step}");
            std::mem::swap(&mut own.kv, &mut plain.kv);
        } else {
            plain.write(&rows);
            plain.queue_reserved(&attention, &arrays, capacity);
            assert!((&out, &lse) == (&plain.outputs().0, &plain.outputs().1), "seed {seed}, step {step}");
        }
        assert!(out[running * QUERY..].iter().all(|element| *element == NAN), "rows without a sequence, step {step}");
        merged += usize::from(arrays.contexts.iter().any(|context| *context > 128));
    }
    assert!(captured.step.kv.to_vec() == plain.kv.to_vec(), "seed {seed}: the storages");
    merged
}

#[test]
fn a_thousand_steps_of_one_captured_step_give_the_bits_of_calls() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let merged = replay(&device, 1, 1000, CAPACITY, true);
    assert!(merged > 500, "{merged} steps with a context that is cut");
}

/// Work is done late, so that an update which overtakes a launch, or writes over one that was not
/// read, is seen.
#[test]
fn updates_are_ordered_with_launches() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (attention, storage) = (Attention::new(&device), storage(3));
    for seed in 1..6 {
        driver.streams(seed);
        let mut sequences = Sequences::new(u64::from(seed));
        let mut captured = Captured::new(&device, &attention, &sequences.step(), &storage, CAPACITY);
        let mut expected = Step::new(&device, &attention, &storage, CAPACITY.sequences);
        let rows = Rows::new(&mut Rng::with_seed(9), CAPACITY.sequences);
        captured.step.write(&rows);
        expected.write(&rows);
        let steps: Vec<Arrays> = (0..20).map(|_| sequences.step()).collect();
        for arrays in &steps {
            captured.batch.update(&arrays.batch()).expect("updated");
            captured.launch();
        }
        for arrays in &steps {
            expected.queue_reserved(&attention, arrays, CAPACITY);
            device.synchronize().expect("done");
        }
        assert!(captured.step.outputs() == expected.outputs(), "seed {seed}");
        assert!(captured.step.kv.to_vec() == expected.kv.to_vec(), "seed {seed}: the storages");
    }
}

/// Where there are no more items than heads of sequences, contexts are not cut.
#[test]
fn contexts_are_cut_as_far_as_there_is_room() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for items in [5, 6, 9] {
        replay(&device, items as u64, 40, Capacity { items, ..CAPACITY }, false);
    }
}

#[test]
fn an_update_is_one_copy_and_no_allocation() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let mut sequences = Sequences::new(5);
    let mut batch = attention.reserve(&LAYOUT, &sequences.step().batch(), CAPACITY).expect("a batch");
    device.synchronize().expect("done");
    let counts = || (driver.live(), driver.count(Counted::PageableCopies), driver.launches());
    let (before, copies) = (counts(), driver.count(Counted::CopiesToDevice));
    for _ in 0..10 {
        batch.update(&sequences.step().batch()).expect("updated");
    }
    assert_eq!(counts(), before);
    assert!(!driver.is_stand_in() || driver.count(Counted::CopiesToDevice) == copies + 10);
}

/// However far the device is behind, the copies on their way are in a bounded number of pieces of
/// page-locked memory, which are used again.
#[test]
fn updates_on_their_way_are_bounded_and_allocate_nothing() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    for seed in [1, 2, 3, 4, 5, u32::MAX] {
        driver.streams(seed);
        let mut sequences = Sequences::new(5);
        let mut batch = attention.reserve(&LAYOUT, &sequences.step().batch(), CAPACITY).expect("a batch");
        let mut other = device.zeros::<u16>(8).expect("memory");
        (0..8).for_each(|_| batch.update(&sequences.step().batch()).expect("updated"));
        for _ in 0..60 {
            batch.update(&sequences.step().batch()).expect("updated");
            (0..60).for_each(|_| other.write(&[1; 8]).expect("a copy"));
            assert!(driver.live_of("host allocations") <= 8, "seed {seed}");
        }
        assert!(driver.count(Counted::PageLocks) <= 8, "seed {seed}: {}", driver.count(Counted::PageLocks));
        device.synchronize().expect("done");
    }
}

/// Each copy has its own elements, although all chunks are on their way and are used again.
#[test]
fn a_chunk_is_written_again_after_its_copy() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for seed in [1, 2, 3, u32::MAX] {
        driver.streams(seed);
        let mut buffers: Vec<_> = (0..40).map(|_| device.zeros::<u16>(8).expect("memory")).collect();
        for (at, buffer) in buffers.iter_mut().enumerate() {
            buffer.write(&[at as u16; 8]).expect("a copy");
        }
        for (at, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.to_vec().expect("read"), [at as u16; 8], "seed {seed}");
        }
    }
}

#[test]
fn what_there_is_no_room_for_is_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let mut sequences = Sequences::new(6);
    let one = sequences.step();
    let two = Arrays::of(&[(&[1], 16), (&[2, 3], 30)]);
    let capacity = Capacity { sequences: 1, blocks: 2, items: 1 };
    let mut batch = attention.reserve(&LAYOUT, &one.batch(), Capacity { blocks: 40, ..capacity }).expect("a batch");
    let full = |what, given, room| Err(GpuError::Capacity { what, given, room });
    assert_eq!(batch.update(&two.batch()), full("sequences", 2, 1));
    let short = Capacity { sequences: 2, items: 2, ..capacity };
    assert_eq!(attention.reserve(&LAYOUT, &two.batch(), short).map(drop), full("blocks", 3, 2));
    let few = Capacity { sequences: 2, blocks: 9, items: 1 };
    assert_eq!(attention.reserve(&LAYOUT, &two.batch(), few).map(drop), full("heads of sequences", 2, 1));
    for endless in [
        Capacity { items: usize::MAX, ..CAPACITY },
        Capacity { sequences: usize::MAX / 2, ..CAPACITY },
        Capacity { blocks: 1 << 32, ..CAPACITY },
    ] {
        let refused = attention.reserve(&LAYOUT, &one.batch(), endless).expect_err("too much");
        assert!(matches!(refused, GpuError::TooMuch { .. }), "{refused}");
    }
    let heads = GpuError::Shape(ShapeError::Length { what: "query heads", given: 16, needed: 4 });
    assert_eq!(batch.update(&Batch { query_heads: 16, ..one.batch() }), Err(heads));
    let other = GpuError::OtherScale { given: 0.25, reserved: 0.125 };
    assert_eq!(batch.update(&Batch { scale: 0.25, ..one.batch() }), Err(other));
    let scoring = Scoring { window: Some(16), ..Scoring::default() };
    assert_eq!(batch.update(&Batch { scoring, ..one.batch() }), Err(GpuError::OtherScoring));
    let mut windowed = attention.reserve(&LAYOUT, &Batch { scoring, ..one.batch() }, CAPACITY).expect("a batch");
    assert_eq!(windowed.update(&one.batch()), Err(GpuError::OtherScoring));
    assert_eq!(windowed.update(&Batch { scoring, ..one.batch() }), Ok(()));
    let chunk =
        Arrays { rows: vec![0, 2], slots: vec![14, 15], blocks: vec![0], offsets: vec![0, 1], contexts: vec![16] };
    assert!(matches!(batch.update(&chunk.batch()), Err(GpuError::Shape(ShapeError::DecodeRows { .. }))));
    let mut prepared = attention.prepare(&LAYOUT, &one.batch()).expect("a batch");
    assert_eq!(prepared.update(&one.batch()), Err(GpuError::NotReserved));
    let refused = device.capture(|| batch.update(&one.batch())).expect_err("an update");
    assert!(matches!(refused, GpuError::NotCaptured { .. }), "{refused}");
    assert_eq!(batch.update(&one.batch()), Ok(()));
}
