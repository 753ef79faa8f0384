//! Memory is touched and freed only after every stream that uses it is done, also after streams
//! that were dropped.

use radixkv_attention::{Backend, Layout};
use radixkv_cuda::{Attention, Device, GpuError, HostPool, Kv, Swap, Transfer};

use super::driver::{Driver, driver, stand_in_driver};
use super::swapping::{layouts, numbered, planes};

/// Number of blocks on their way, each by a swap of its own.
const BLOCKS: u32 = 6;

/// The storage and the host pool of transfers.
struct Ends {
    layout: Layout,
    device: Device,
    storage: Vec<u16>,
    kv: Kv,
    host: HostPool,
}

impl Ends {
    fn new(driver: &Driver, layout: Layout, seed: u32) -> Self {
        driver.streams(seed);
        let device = driver.open();
        let mut kv = Attention::new(&device).allocate(layout).expect("memory");
        let storage = numbered(&layout, seed as usize);
        kv.write(&storage).expect("a copy");
        device.synchronize().expect("a copy");
        let host = HostPool::new(&device, &layout, BLOCKS as usize).expect("page-locked memory");
        Self { layout, device, storage, kv, host }
    }

    fn swap(&self) -> Swap {
        Swap::new(&self.device).expect("a stream")
    }

    fn out(&self, swap: &Swap, block: u32) -> Result<Transfer, GpuError> {
        swap.swap_out(&self.kv, &self.host, &[(block, block)])
    }

    /// Swaps every block out by a swap of its own; every third swap is kept, the others are dropped
    /// at once.
    fn all_out(&self, kept: &mut Vec<Swap>) -> Vec<Transfer> {
        let one = |block| {
            let swap = self.swap();
            let transfer = self.out(&swap, block).expect("queued");
            if block % 3 == 2 {
                kept.push(swap);
            }
            transfer
        };
        (0..BLOCKS).map(one).collect()
    }
}

/// Both layouts, with 24 interleavings of streams each.
fn ends(driver: &Driver, each: impl Fn(Ends, u32)) {
    for layout in layouts() {
        (1..25).for_each(|seed| each(Ends::new(driver, layout, seed), seed));
    }
}

#[test]
fn reading_waits_for_transfers_of_dropped_swaps() {
    let Some(driver) = driver() else { return };
    ends(&driver, |ends, seed| {
        let mut kept = Vec::new();
        drop(ends.all_out(&mut kept));
        let mut bytes = vec![0; ends.host.block_bytes()];
        for block in 0..BLOCKS {
            ends.host.read(block, &mut bytes).expect("read");
            assert!(bytes == planes(&ends.layout, &ends.storage, block), "seed {seed}, block {block}");
        }
    });
}

#[test]
fn writing_waits_for_transfers_of_dropped_swaps() {
    let Some(driver) = driver() else { return };
    ends(&driver, |ends, seed| {
        let mut kept = Vec::new();
        let transfers = ends.all_out(&mut kept);
        let (written, mut bytes) = (vec![7; ends.host.block_bytes()], vec![0; ends.host.block_bytes()]);
        (0..BLOCKS).for_each(|block| ends.host.write(block, &written).expect("written"));
        transfers.iter().for_each(|transfer| transfer.wait().expect("done"));
        for block in 0..BLOCKS {
            ends.host.read(block, &mut bytes).expect("read");
            assert!(bytes == written, "seed {seed}, block {block}");
        }
    });
}

/// A storage is written on the device's stream, while others may still copy out of it.
#[test]
fn writing_a_storage_waits_for_transfers_out_of_it() {
    let Some(driver) = driver() else { return };
    ends(&driver, |mut ends, seed| {
        let mut kept = Vec::new();
        drop(ends.all_out(&mut kept));
        ends.kv.write(&numbered(&ends.layout, 1000)).expect("written");
        ends.device.synchronize().expect("written");
        let mut bytes = vec![0; ends.host.block_bytes()];
        for block in 0..BLOCKS {
            ends.host.read(block, &mut bytes).expect("read");
            assert!(bytes == planes(&ends.layout, &ends.storage, block), "seed {seed}, block {block}");
        }
    });
}

#[test]
fn reading_a_storage_waits_for_transfers_into_it() {
    let Some(driver) = driver() else { return };
    ends(&driver, |ends, seed| {
        let bytes = vec![7; ends.host.block_bytes()];
        (0..BLOCKS).for_each(|block| ends.host.write(block, &bytes).expect("written"));
        let swaps: Vec<Swap> = (0..BLOCKS).map(|_| ends.swap()).collect();
        for (block, swap) in (0..).zip(&swaps) {
            drop(swap.swap_in(&ends.kv, &ends.host, &[(block, block)]).expect("queued"));
        }
        let now = ends.kv.to_vec().expect("the storage");
        for block in 0..BLOCKS {
            assert!(planes(&ends.layout, &now, block) == bytes, "seed {seed}, block {block}");
        }
    });
}

/// A stream that uses the memory again is noted once; the uses of the others stay noted.
#[test]
fn uses_of_several_streams_are_kept_apart() {
    let Some(driver) = driver() else { return };
    ends(&driver, |ends, seed| {
        let swaps = [ends.swap(), ends.swap(), ends.swap()];
        for block in 0..BLOCKS {
            drop(ends.out(&swaps[[0, 1, 2, 0, 0, 1][block as usize]], block).expect("queued"));
        }
        let mut bytes = vec![0; ends.host.block_bytes()];
        for block in 0..BLOCKS {
            ends.host.read(block, &mut bytes).expect("read");
            assert!(bytes == planes(&ends.layout, &ends.storage, block), "seed {seed}, block {block}");
        }
    });
}

#[test]
fn the_host_pool_outlives_transfers_of_dropped_swaps() {
    let Some(driver) = driver() else { return };
    ends(&driver, |ends, seed| {
        drop(ends.all_out(&mut Vec::new()));
        let Ends { kv, host, device, .. } = ends;
        drop(host);
        drop((kv, device));
        driver.assert_nothing_left(&format!("seed {seed}"));
    });
}

// Holds: GP7.
#[test]
fn the_storage_outlives_transfers_of_dropped_swaps() {
    let Some(driver) = driver() else { return };
    ends(&driver, |ends, seed| {
        drop(ends.all_out(&mut Vec::new()));
        let Ends { kv, host, device, .. } = ends;
        drop(kv);
        drop((host, device));
        driver.assert_nothing_left(&format!("seed {seed}"));
    });
}

#[test]
fn uses_that_are_done_are_forgotten() {
    let Some(driver) = stand_in_driver() else { return };
    let ends = Ends::new(&driver, layouts()[0], 1);
    for _ in 0..50 {
        ends.out(&ends.swap(), 0).expect("queued").wait().expect("done");
        assert!(driver.live_of("events") <= 4, "{} events", driver.live_of("events"));
    }
}

/// Whichever call on an event fails, memory stays while transfers use it.
// Holds: GP7.
#[test]
fn memory_outlives_transfers_where_events_fail() {
    let Some(driver) = stand_in_driver() else { return };
    let mut failed = 0;
    for (seed, layout) in (1..9).flat_map(|seed| layouts().map(|layout| (seed, layout))) {
        for n in 1.. {
            let ends = Ends::new(&driver, layout, seed);
            let swap = ends.swap();
            drop(ends.out(&swap, 1).expect("queued"));
            driver.fail_event(n);
            let outcome = ends.out(&swap, 0).map(drop);
            driver.fail_event(0);
            let Ends { kv, host, device, .. } = ends;
            if seed % 2 == 0 {
                drop((kv, host))
            } else {
                drop((host, kv))
            };
            drop((swap, device));
            driver.assert_nothing_left(&format!("failure of event {n}, seed {seed}"));
            if outcome.is_ok() {
                break;
            }
            failed += 1;
        }
    }
    assert!(failed >= 16 * 3, "{failed} calls failed");
}

/// The binding reports a failed drop at its next call of any kind, which may be the one that waits.
#[test]
fn memory_outlives_transfers_where_something_else_failed_to_drop() {
    let Some(driver) = stand_in_driver() else { return };
    ends(&driver, |ends, seed| {
        let swap = ends.swap();
        let mark = ends.device.record_event().expect("an event");
        drop((0..BLOCKS).map(|block| ends.out(&swap, block).expect("queued")).collect::<Vec<_>>());
        driver.fail_event(1);
        drop(mark);
        let Ends { kv, host, device, .. } = ends;
        if seed % 2 == 0 {
            drop((kv, host))
        } else {
            drop((host, kv))
        };
        drop((swap, device));
        driver.assert_nothing_left(&format!("seed {seed}"));
    });
}

/// Threads share a swap: the last use of its stream counts, in whatever order the calls return.
#[test]
fn memory_outlives_transfers_of_many_threads() {
    let Some(driver) = driver() else { return };
    ends(&driver, |ends, seed| {
        let swap = ends.swap();
        std::thread::scope(|scope| {
            for block in 0..BLOCKS {
                let (ends, swap) = (&ends, &swap);
                scope.spawn(move || (0..8).for_each(|_| drop(ends.out(swap, block).expect("queued"))));
            }
        });
        let Ends { kv, host, device, .. } = ends;
        drop(kv);
        drop((host, swap, device));
        driver.assert_nothing_left(&format!("seed {seed}"));
    });
}
