//! An engine captures its own stream while it uses the crate.

use radixkv_attention::{Backend, Layout};
use radixkv_cuda::{Attention, Buffer, Device, Event, GpuError, HostPool, Kv, Prepared, Swap, Transfer};

use super::bed::{Bed, Sequence, Shape};
use super::driver::{driver, stand_in_driver};
use super::engine::Engine;

#[test]
fn launches_are_captured() {
    let Some(driver) = driver() else { return };
    let engine = Engine::new();
    let device = engine.device();
    let (from, mut to) = (device.upload(&[3_u16; 64]).expect("memory"), device.zeros::<u16>(64).expect("memory"));
    engine.begin_capture();
    assert!(device.capture(|| Ok(())).is_err(), "one capture within another");
    device.copy_all(from.view(), to.view_mut()).expect("captured");
    engine.end_capture();
    assert_eq!(to.to_vec(), Ok(vec![0; 64]), "nothing is copied yet");
    drop((from, to, device));
    engine.leave(&[]);
    driver.assert_nothing_left("the engine left");
}

/// What a graph could not use is refused before the driver is asked, which would end the capture.
// Holds: GP10.
#[test]
fn what_is_refused_leaves_the_capture_whole() {
    let Some(driver) = driver() else { return };
    let engine = Engine::new();
    let device = engine.device();
    let mut owned = Owned::new(&device);
    let attention = Attention::new(&device);
    let Owned { layout, buffer: Some(buffer), kv: Some(kv), host: Some(host), swap: Some(swap), .. } = &mut owned
    else {
        unreachable!("all are there")
    };
    let transfer = swap.swap_out(kv, host, &[(1, 1)]).expect("queued");
    engine.begin_capture();
    let refused = [
        device.zeros::<u16>(8).map(drop),
        device.upload(&[1_u16; 8]).map(drop),
        device.synchronize(),
        device.record_event().map(drop),
        buffer.write(&[1; 8]),
        buffer.to_vec().map(drop),
        kv.write(&[1; 8]),
        kv.to_vec().map(drop),
        attention.allocate(*layout).map(drop),
        attention.copy_blocks(kv, &[(0, 1)]),
        HostPool::new(&device, layout, 1).map(drop),
        swap.swap_out(kv, host, &[(1, 0)]).map(drop),
        transfer.wait_on_device(&device),
    ];
    for (nth, refused) in refused.into_iter().enumerate() {
        assert!(
            matches!(refused, Err(GpuError::NotCaptured { code }) if code.number() == 900),
            "call {nth}: {refused:?}"
        );
    }
    engine.end_capture();
    drop((owned, transfer, attention, device));
    engine.leave(&[]);
    driver.assert_nothing_left("the engine left");
}

/// The driver is asked about events, whose work is not captured: on the thread that captures, and on
/// another one.
// Holds: GP10.
#[test]
fn transfers_and_events_are_waited_for_during_a_capture() {
    let Some(driver) = driver() else { return };
    for seed in 0..4 {
        driver.streams(seed);
        let engine = Engine::new();
        let device = engine.device();
        let owned = Owned::new(&device);
        let (kv, host) = (owned.kv.as_ref().expect("a storage"), owned.host.as_ref().expect("a pool"));
        let swap = owned.swap.as_ref().expect("a stream");
        let mut bytes = vec![0; host.block_bytes()];
        let queue = || swap.swap_out(kv, host, &[(1, 1)]).expect("queued");
        let mut ask = |transfers: [Transfer; 2], marks: [Event; 2]| {
            while !transfers[0].is_done().expect("no capture is in the way") {}
            transfers[1].wait().expect("waited");
            host.read(1, &mut bytes).expect("read");
            host.write(1, &bytes).expect("written");
            marks[0].microseconds_to(&marks[1]).expect("waited");
        };
        let mut during = |mode: i32, is_other_thread: bool| {
            let transfers = [queue(), queue()];
            let marks = [(); 2].map(|()| device.record_event().expect("an event"));
            engine.begin_capture_as(mode);
            if is_other_thread {
                std::thread::scope(|scope| scope.spawn(|| ask(transfers, marks)).join().expect("no panic"));
            } else {
                ask(transfers, marks);
                assert_eq!(engine.capture_mode(), 0);
            }
            engine.end_capture();
        };
        during(0, false);
        during(1, false);
        during(0, true);
        during(1, true);
        drop((owned, device));
        engine.leave(&[]);
        driver.assert_nothing_left("the engine left");
    }
}

/// The binding does not make the call that follows a failed drop, but returns the drop's error.
// Holds: GP10.
#[test]
fn a_capture_is_seen_after_a_failed_drop() {
    let Some(driver) = stand_in_driver() else { return };
    let engine = Engine::new();
    let device = engine.device();
    let buffer = device.upload(&[1_u16; 8]).expect("memory");
    let calls: [&dyn Fn() -> Result<(), GpuError>; 4] =
        [&|| device.zeros::<u16>(8).map(drop), &|| device.synchronize(), &|| buffer.to_vec().map(drop), &|| {
            device.capture(|| Ok(())).map(drop)
        }];
    for (nth, call) in calls.into_iter().enumerate() {
        let mark = device.record_event().expect("an event");
        engine.begin_capture();
        driver.fail_event(1);
        drop(mark);
        let refused = call();
        assert!(
            matches!(refused, Err(GpuError::NotCaptured { code }) if code.number() == 900),
            "call {nth}: {refused:?}"
        );
        engine.end_capture();
        // The next call returns the error of the drop.
        let _ = device.synchronize();
    }
    drop((buffer, device));
    engine.leave(&[]);
    driver.assert_nothing_left("the engine left");
}

/// What an engine may drop during a step that it captures.
struct Owned {
    layout: Layout,
    buffer: Option<Buffer<u16>>,
    batch: Option<Prepared>,
    kv: Option<Kv>,
    host: Option<HostPool>,
    swap: Option<Swap>,
}

impl Owned {
    /// A block is on its way to the host.
    fn new(device: &Device) -> Self {
        let bed = Bed::new(1, Shape::SMALL, &[Sequence::one(40); 2], true);
        let attention = Attention::new(device);
        let kv = attention.allocate(bed.layout).expect("memory");
        let batch = attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        let host = HostPool::new(device, &bed.layout, 2).expect("page-locked memory");
        let swap = Swap::new(device).expect("a stream");
        drop(swap.swap_out(&kv, &host, &[(0, 0)]).expect("queued"));
        let buffer = device.upload(&[1; 64]).expect("memory");
        let layout = bed.layout;
        Self { layout, buffer: Some(buffer), batch: Some(batch), kv: Some(kv), host: Some(host), swap: Some(swap) }
    }

    fn drop_one(&mut self, which: u32) {
        match which % 6 {
            0 => drop(self.buffer.take()),
            1 => drop(self.batch.take()),
            2 => drop(self.kv.take()),
            3 => drop(self.host.take()),
            4 => drop(self.swap.take()),
            _ => *self = Self { buffer: None, batch: None, kv: None, host: None, swap: None, ..*self },
        }
    }
}

/// The capture goes on, and the memory is freed after it.
// Holds: GP10.
#[test]
fn what_is_dropped_while_an_engine_captures_is_freed_after_it() {
    let Some(driver) = driver() else { return };
    for seed in 0..24 {
        driver.streams(seed);
        let engine = Engine::new();
        let device = engine.device();
        let mut owned = Owned::new(&device);
        let (from, mut to) = (device.upload(&[3_u16; 64]).expect("memory"), device.zeros::<u16>(64).expect("memory"));
        engine.begin_capture();
        device.copy_all(from.view(), to.view_mut()).expect("captured");
        let before = driver.live();
        owned.drop_one(seed);
        assert_eq!(driver.live()[..2], before[..2], "seed {seed}: allocations during the capture");
        engine.end_capture();
        if seed % 4 < 2 {
            // What is freed next frees the rest too.
            drop(device.upload(&[1_u16; 8]).expect("memory"));
        }
        drop((owned, from, to, device));
        engine.leave(&[]);
        driver.assert_nothing_left(&format!("seed {seed}"));
    }
}
