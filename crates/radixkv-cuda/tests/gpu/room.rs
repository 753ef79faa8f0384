//! Batches that are replaced in place, at the edges of their room.

use fastrand::Rng;
use radixkv_attention::Backend;
use radixkv_cuda::{Attention, Capacity, GpuError};

use super::driver::{driver, stand_in_driver};
use super::steps::{Arrays, CAPACITY, Captured, LAYOUT, Rows, Sequences, Step, storage};

/// The table and the length of each sequence.
type Tables = &'static [(&'static [u32], u32)];

/// From none to full and back: exactly full, one beyond, the first and the last block, ids that no
/// block has.
#[test]
fn a_batch_fills_its_room_and_leaves_it() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (attention, storage) = (Attention::new(&device), storage(4));
    let capacity = Capacity { sequences: 2, blocks: 4, items: 2 };
    let steps: [(Tables, bool); 12] = [
        (&[], true),
        (&[(&[0], 1)], true),
        (&[(&[59, 0, 1], 33), (&[58], 16)], true),
        (&[(&[59, 0, 1], 33), (&[58, 57], 17)], false),
        (&[(&[3, 0, 1, 7], 64)], true),
        (&[(&[3, 0, 1, 7, 8], 65)], false),
        (&[(&[0], 1), (&[1], 1), (&[2], 1)], false),
        (&[], true),
        (&[(&[59], 16), (&[0], 16)], true),
        (&[(&[60], 16)], false),
        (&[(&[u32::MAX], 16)], false),
        (&[(&[0], 16), (&[59], 16)], true),
    ];
    for seed in 0..4 {
        driver.streams(seed);
        let mut captured = Captured::new(&device, &attention, &Arrays::of(&[]), &storage, capacity);
        let mut plain = Step::new(&device, &attention, &storage, capacity.sequences);
        let mut random = Rng::with_seed(7);
        let mut last = Arrays::of(&[]);
        for (tables, fits) in steps {
            let arrays = Arrays::of(tables);
            assert_eq!(captured.batch.update(&arrays.batch()).is_ok(), fits, "{tables:?}");
            // What does not fit changes nothing.
            last = if fits { arrays } else { last };
            let rows = Rows::new(&mut random, capacity.sequences);
            captured.step.write(&rows);
            plain.write(&rows);
            captured.launch();
            plain.queue_reserved(&attention, &last, capacity);
            assert!(captured.step.outputs() == plain.outputs(), "seed {seed}, {tables:?}");
        }
        assert!(captured.step.kv.to_vec() == plain.kv.to_vec(), "seed {seed}: the storages");
    }
}

/// A context that is cut into as many parts as there are items.
#[test]
fn every_item_may_be_a_part() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (attention, storage) = (Attention::new(&device), storage(4));
    let table: Vec<u32> = (0..56).rev().collect();
    let arrays = Arrays::of(&[(&table, 7 * 128)]);
    let capacity = Capacity { sequences: 1, blocks: table.len(), items: 7 };
    let mut captured = Captured::new(&device, &attention, &Arrays::of(&[]), &storage, capacity);
    let mut plain = Step::new(&device, &attention, &storage, 1);
    let rows = Rows::new(&mut Rng::with_seed(3), 1);
    captured.step.write(&rows);
    plain.write(&rows);
    captured.batch.update(&arrays.batch()).expect("updated");
    captured.launch();
    plain.queue(&attention, &attention.prepare(&LAYOUT, &arrays.batch()).expect("a batch")).expect("queued");
    assert!(captured.step.outputs() == plain.outputs());
}

#[test]
fn a_batch_may_have_no_room() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let (none, capacity) = (Arrays::of(&[]), Capacity { sequences: 0, blocks: 0, items: 0 });
    let mut captured = Captured::new(&device, &attention, &none, &storage(4), capacity);
    captured.launch();
    assert_eq!(captured.step.outputs(), (vec![], vec![]));
    assert_eq!(captured.batch.update(&none.batch()), Ok(()));
    let full = GpuError::Capacity { what: "sequences", given: 1, room: 0 };
    assert_eq!(captured.batch.update(&Arrays::of(&[(&[1], 1)]).batch()), Err(full));
    assert!(matches!(attention.items(&LAYOUT, usize::MAX), Err(GpuError::TooMuch { .. })));
    assert!(matches!(attention.items(&LAYOUT, usize::MAX - 200), Err(GpuError::TooMuch { .. })));
}

/// An update is for both, and work is done late: the graphs are dropped before it is done, or after
/// their buffers.
#[test]
fn two_graphs_share_a_batch() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    for seed in 0..6 {
        driver.streams(seed);
        let mut sequences = Sequences::new(u64::from(seed));
        let mut batch = attention.reserve(&LAYOUT, &sequences.step().batch(), CAPACITY).expect("a batch");
        let storages = [storage(4), storage(5)];
        let new = || storages.each_ref().map(|storage| Step::new(&device, &attention, storage, CAPACITY.sequences));
        let (mut steps, mut plain) = (new(), new());
        let graphs = steps.each_mut().map(|step| device.capture(|| step.queue(&attention, &batch)).expect("a graph"));
        let rows = Rows::new(&mut Rng::with_seed(7), CAPACITY.sequences);
        steps.iter_mut().chain(&mut plain).for_each(|step| step.write(&rows));
        // SAFETY: what was captured is dropped after its work is queued, and freed in the order of
        // the stream.
        let launch = || graphs.iter().for_each(|graph| unsafe { graph.launch() }.expect("launched"));
        for _ in 0..10 {
            let arrays = sequences.step();
            batch.update(&arrays.batch()).expect("updated");
            launch();
            plain.iter_mut().for_each(|step| step.queue_reserved(&attention, &arrays, CAPACITY));
        }
        for (step, plain) in steps.iter().zip(&plain) {
            assert!(step.outputs() == plain.outputs(), "seed {seed}");
            assert!(step.kv.to_vec() == plain.kv.to_vec(), "seed {seed}: the storages");
        }
        launch();
        if seed % 2 == 0 {
            drop(graphs);
            drop((batch, steps));
        } else {
            drop((batch, steps));
            drop(graphs);
        }
    }
    drop((attention, device));
    driver.assert_nothing_left("two graphs");
}

/// More than is copied through page-locked memory.
#[test]
fn a_table_of_many_entries_replaces_a_short_one() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (attention, storage) = (Attention::new(&device), storage(4));
    let mut table = vec![3, 9];
    table.resize((16 << 20) / 4, u32::MAX);
    let capacity = Capacity { sequences: 2, blocks: table.len(), items: 8 };
    let (short, long) = (Arrays::of(&[(&[5], 7)]), Arrays::of(&[(&table, 20)]));
    let mut captured = Captured::new(&device, &attention, &short, &storage, capacity);
    let mut plain = Step::new(&device, &attention, &storage, capacity.sequences);
    let rows = Rows::new(&mut Rng::with_seed(3), capacity.sequences);
    for arrays in [&long, &short] {
        captured.batch.update(&arrays.batch()).expect("updated");
        captured.step.write(&rows);
        plain.write(&rows);
        captured.launch();
        plain.queue_reserved(&attention, arrays, capacity);
        assert!(captured.step.outputs() == plain.outputs());
    }
    let refused = device.capture(|| captured.batch.update(&long.batch())).expect_err("an update");
    assert!(matches!(refused, GpuError::NotCaptured { .. }), "{refused}");
}

/// Whatever call of the driver fails, the batch is as it was or as it is to be, and can be replaced
/// again.
#[test]
fn an_update_that_fails_leaves_a_whole_batch() {
    let Some(driver) = stand_in_driver() else { return };
    let device = driver.open();
    let (attention, storage) = (Attention::new(&device), storage(4));
    let rows = Rows::new(&mut Rng::with_seed(3), CAPACITY.sequences);
    let both = [Arrays::of(&[(&[5], 7)]), Arrays::of(&[(&[8, 3], 20), (&[1], 2)])];
    let expected = both.each_ref().map(|arrays| {
        let mut plain = Step::new(&device, &attention, &storage, CAPACITY.sequences);
        plain.write(&rows);
        plain.queue_reserved(&attention, arrays, CAPACITY);
        plain.outputs()
    });
    let mut failed = 0;
    for (seed, n) in (0..12).flat_map(|seed| (1..5).map(move |n| (seed, n))) {
        for fail in [super::driver::Driver::fail_allocation, super::driver::Driver::fail_event] {
            driver.streams(seed);
            let mut captured = Captured::new(&device, &attention, &both[0], &storage, CAPACITY);
            captured.step.write(&rows);
            // As many on their way as there may be.
            (0..9).for_each(|_| captured.batch.update(&both[0].batch()).expect("updated"));
            fail(&driver, n);
            let updated = captured.batch.update(&both[1].batch());
            fail(&driver, 0);
            // What is copied next goes through the same memory.
            let other = Arrays::of(&[(&[2], 9)]);
            (0..9).for_each(|_| drop(attention.prepare(&LAYOUT, &other.batch()).expect("a batch")));
            captured.launch();
            let at = if updated.is_ok() { 1..2 } else { 0..2 };
            assert!(expected[at].contains(&captured.step.outputs()), "seed {seed}, failure {n}");
            failed += u32::from(updated.is_err());
            assert_eq!(captured.batch.update(&both[1].batch()), Ok(()));
        }
    }
    assert!(failed >= 3, "{failed} updates failed");
    drop((attention, device));
    driver.assert_nothing_left("failures");
}
