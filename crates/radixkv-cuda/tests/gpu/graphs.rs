//! Work captured once and launched again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use radixkv_attention::plan::{Rule, share};
use radixkv_attention::{Backend, Dtype, Order, Output, Qkv};
use radixkv_cuda::{Attention, Buffer, Device, GpuError, HostPool, Swap};

use super::attention::{EAGER, Subject};
use super::bed::{Bed, NAN, Sequence, Shape};
use super::driver::{driver, stand_in_driver};
use super::swapping::layouts;

fn bed(seed: u64) -> Bed {
    let mut random = Rng::with_seed(seed);
    let mut one = |before| Sequence::one(before + random.usize(..9));
    // The first is long enough to be cut and merged.
    let sequences = [one(900), one(0), one(40)];
    Bed::new(seed, Shape::SMALL, &sequences, true)
}

/// The buffers of a captured operation.
struct Buffers {
    queries: Buffer<u16>,
    keys: Buffer<u16>,
    values: Buffer<u16>,
    out: Buffer<u16>,
    lse: Buffer<f32>,
}

impl Buffers {
    fn new(device: &Device, bed: &Bed) -> Self {
        let [queries, keys, values] = bed.upload(device);
        let out = device.upload(&vec![NAN; bed.queries.len()]).expect("memory");
        let lse = device.upload(&vec![f32::NAN; bed.total_rows() * bed.query_heads]).expect("memory");
        Self { queries, keys, values, out, lse }
    }

    /// Checks the outputs, and sets them to NaN for the next launch.
    fn check(&mut self, what: &str, bed: &Bed) {
        bed.check(what, &self.out.to_vec().expect("outputs"), Some(&self.lse.to_vec().expect("log-sum-exps")));
        self.out.write(&vec![NAN; bed.queries.len()]).expect("a copy");
    }
}

/// Appends and decodes; each launch reads the rows that the buffers hold then.
// Holds: GP11.
#[test]
fn a_captured_step_is_done_when_it_is_launched_and_as_often() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for streams in 0..4 {
        driver.streams(streams);
        let mut bed = bed(7);
        let run = Subject::new(&device, bed.layout, &bed.storage);
        let batch = run.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        let mut buffers = Buffers::new(&device, &bed);
        let Buffers { queries, keys, values, out, lse } = &mut buffers;
        let captured = device.capture(|| {
            run.attention.append(&run.kv, 1, &batch, keys.view(), values.view())?;
            let into = Output { rows: out.view_mut(), lse: Some(lse.view_mut()) };
            run.attention.decode(&run.kv, 1, &batch, queries.view(), into)
        });
        let graph = captured.expect("a graph");
        assert_eq!(buffers.out.to_vec(), Ok(vec![NAN; bed.queries.len()]), "nothing is done yet");
        for _ in 0..3 {
            // SAFETY: storage, batch and buffers stay until the outputs have been read.
            unsafe { graph.launch() }.expect("launched");
            buffers.check("replayed", &bed);
            bed.queries.rotate_left(bed.layout.head_dim + 1);
            buffers.queries.write(&bed.queries).expect("a copy");
        }
    }
    drop(device);
    driver.assert_nothing_left("capturing");
}

const LARGE: Shape =
    Shape { dtype: Dtype::F16, head_dim: 128, kv_heads: 1, group: 7, order: Order::Hnd, ..Shape::SMALL };

#[test]
fn chunks_that_are_not_kept_can_be_captured() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let chunks = [(50, 20), (0, 9)].map(|(before, rows)| Sequence { before, rows, shared: 0 });
    let bed = Bed::new(3, LARGE, &chunks, false);
    let run = Subject::new(&device, bed.layout, &bed.storage);
    let batch = run.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
    let mut buffers = Buffers::new(&device, &bed);
    let Buffers { queries, keys, values, out, lse } = &mut buffers;
    let captured = device.capture(|| {
        let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
        let into = Output { rows: out.view_mut(), lse: Some(lse.view_mut()) };
        run.attention.extend(&run.kv, 1, &batch, new, into)
    });
    // SAFETY: storage, batch and buffers stay until the outputs have been read.
    unsafe { captured.expect("a graph").launch() }.expect("launched");
    buffers.check("extend", &bed);
}

#[test]
fn a_cascade_can_be_captured() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let sharers = [(48, 0), (60, 48), (70, 48)].map(|(before, shared)| Sequence { shared, ..Sequence::one(before) });
    let bed = Bed::new(4, LARGE, &sharers, true);
    let sharing = share(bed.batch().tables, &bed.contexts, 16, Rule { grain_tokens: 16, ..EAGER });
    assert_eq!(sharing.saved_tokens(), 2 * 48);
    let run = Subject::new(&device, bed.layout, &bed.storage);
    let batch = run.attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
    let cascade = run.attention.prepare_cascade(&bed.layout, &bed.batch(), &sharing).expect("a cascade");
    let mut buffers = Buffers::new(&device, &bed);
    let Buffers { queries, keys, values, out, lse } = &mut buffers;
    let captured = device.capture(|| {
        run.attention.append(&run.kv, 1, &batch, keys.view(), values.view())?;
        let into = Output { rows: out.view_mut(), lse: Some(lse.view_mut()) };
        run.attention.cascade(&run.kv, 1, &batch, &cascade, queries.view(), into)
    });
    // SAFETY: storage, batch and buffers stay until the outputs have been read.
    unsafe { captured.expect("a graph").launch() }.expect("launched");
    buffers.check("cascade", &bed);
}

/// Checks that the device goes on as if nothing had been captured.
fn works(device: &Device) {
    let bed = bed(9);
    let outputs = Subject::new(device, bed.layout, &bed.storage).decode(&bed);
    bed.check("after a capture", &outputs.rows, Some(&outputs.lse));
}

// Holds: GP11.
#[test]
fn what_cannot_be_captured_is_refused() {
    let Some(driver) = stand_in_driver() else { return };
    let device = driver.open();
    let refused = device.capture(|| device.upload(&[1_u16; 8]).map(drop)).expect_err("an allocation");
    assert!(matches!(refused, GpuError::NotCaptured { code } if code.number() == 900), "{refused}");
    works(&device);
    let buffer = device.upload(&[1_u16; 8]).expect("memory");
    let refused = device.capture(|| buffer.to_vec().map(drop)).expect_err("reading back");
    assert!(matches!(refused, GpuError::NotCaptured { code } if code.number() == 900), "{refused}");
    works(&device);
    // An error that the closure swallows still makes no graph.
    let swallow = || {
        device.upload(&[1_u16; 8]).expect_err("an allocation");
        Ok(())
    };
    let refused = device.capture(swallow).expect_err("no graph");
    assert!(matches!(refused, GpuError::NotCaptured { code } if code.number() == 901), "{refused}");
    let refused = device.capture(|| device.capture(|| Ok(())).map(drop)).expect_err("within another");
    assert!(matches!(refused, GpuError::Driver { code } if code.number() == 401), "{refused}");
    works(&device);
    drop((buffer, device));
    driver.assert_nothing_left("refusals");
}

/// A driver captures an allocation, and a copy from memory that is gone when the graph is launched.
#[test]
fn what_a_driver_captures_and_a_launch_cannot_use_is_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let bed = bed(2);
    let mut run = Subject::new(&device, bed.layout, &bed.storage);
    let mut buffer = device.upload(&[1_u16; 8]).expect("memory");
    let mut refuse = |what: &str, queue: &mut dyn FnMut(&mut Subject<'_>) -> Result<(), GpuError>| {
        let refused = device.capture(|| queue(&mut run)).expect_err(what);
        assert!(matches!(refused, GpuError::NotCaptured { code } if code.number() == 900), "{what}: {refused}");
    };
    refuse("zeros", &mut |_| device.zeros::<u16>(8).map(drop));
    refuse("uploading", &mut |_| device.upload(&[1_u16; 8]).map(drop));
    refuse("writing a buffer", &mut |_| buffer.write(&[2; 8]));
    refuse("reading a buffer", &mut |_| buffer.to_vec().map(drop));
    refuse("writing a storage", &mut |run| run.kv.write(&[2; 8]));
    refuse("reading a storage", &mut |run| run.kv.to_vec().map(drop));
    refuse("preparing", &mut |run| run.attention.prepare(&bed.layout, &bed.batch()).map(drop));
    refuse("copying blocks", &mut |run| run.attention.copy_blocks(&run.kv, &[(0, 1)]));
    refuse("allocating", &mut |run| run.attention.allocate(bed.layout).map(drop));
    refuse("page-locked memory", &mut |_| HostPool::new(&device, &bed.layout, 1).map(drop));
    refuse("waiting", &mut |_| device.synchronize());
    refuse("an event", &mut |_| device.record_event().map(drop));
    let (host, swap) = (HostPool::new(&device, &bed.layout, 1).expect("memory"), Swap::new(&device).expect("a stream"));
    refuse("swapping", &mut |run| swap.swap_out(&run.kv, &host, &[(0, 0)]).map(drop));
    let [_, large] = layouts();
    let (kv, pool) =
        (Attention::new(&device).allocate(large).expect("memory"), HostPool::new(&device, &large, 1).expect("memory"));
    refuse("swapping by the copy engine", &mut |_| swap.swap_out(&kv, &pool, &[(0, 0)]).map(drop));
    let transfer = swap.swap_out(&run.kv, &host, &[(0, 0)]).expect("queued");
    let refused = device.capture(|| transfer.wait_on_device(&device)).expect_err("a transfer");
    assert!(matches!(refused, GpuError::NotCaptured { .. }), "{refused}");
    works(&device);
    drop((run, buffer, host, swap, transfer, kv, pool));
    drop(device);
    driver.assert_nothing_left("refusals");
}

#[test]
fn what_is_dropped_during_a_capture_ends_it_and_is_freed_after_it() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (buffer, bed) = (device.upload(&[1_u16; 8]).expect("memory"), bed(2));
    let run = Subject::new(&device, bed.layout, &bed.storage);
    let swap = Swap::new(&device).expect("a stream");
    let host = HostPool::new(&device, &bed.layout, 1).expect("memory");
    drop(swap.swap_out(&run.kv, &host, &[(0, 0)]).expect("queued"));
    let drop_them = || {
        drop((buffer, run));
        Ok(())
    };
    let refused = device.capture(drop_them).expect_err("no graph");
    assert!(matches!(refused, GpuError::NotCaptured { code } if code.number() == 901), "{refused}");
    works(&device);
    drop((swap, host, device));
    driver.assert_nothing_left("drops");
}

#[test]
fn a_panic_during_a_capture_ends_it() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let panicked = catch_unwind(AssertUnwindSafe(|| device.capture(|| panic!("of the caller"))));
    assert!(panicked.is_err());
    works(&device);
    drop(device);
    driver.assert_nothing_left("a panic");
}

/// Page-locked memory cannot be freed during a capture, whichever device it is of.
#[test]
fn page_locked_memory_that_is_dropped_during_a_capture_is_freed_after_it() {
    let Some(driver) = driver() else { return };
    for which in 0..4 {
        let (device, other) = (driver.open(), driver.open());
        let bed = bed(2);
        let of = if which % 2 == 0 { &device } else { &other };
        let (host, swap) = (HostPool::new(of, &bed.layout, 1).expect("memory"), Swap::new(of).expect("a stream"));
        let run = Subject::new(of, bed.layout, &bed.storage);
        drop(swap.swap_out(&run.kv, &host, &[(0, 0)]).expect("queued"));
        drop(run);
        let drop_them = || {
            if which < 2 {
                drop(swap);
                drop(host);
            } else {
                drop((host, swap));
            }
            drop(other);
            Ok(())
        };
        // What is of another device takes no part in the capture.
        assert_eq!(device.capture(drop_them).is_ok(), which % 2 == 1);
        works(&device);
        drop(device);
        driver.assert_nothing_left("drops");
    }
}

/// The binding reports a failed drop at its next call, which is the one that ends the capture.
#[test]
fn a_capture_ends_where_something_failed_to_drop() {
    let Some(driver) = stand_in_driver() else { return };
    let device = driver.open();
    for is_error in [false, true] {
        let mark = device.record_event().expect("an event");
        let queue = || {
            driver.fail_event(1);
            drop(mark);
            if is_error { device.synchronize() } else { Ok(()) }
        };
        assert!(device.capture(queue).is_err());
        works(&device);
    }
    drop(device);
    driver.assert_nothing_left("a failed drop");
}
