//! Memory of a device that was dropped does not pass for memory of a later one.

use radixkv_cuda::{Compare, GpuError, TokenSequences, View};

use super::driver::{driver, stand_in_driver};

/// Enough devices that one is likely to be allocated at the address of an earlier one.
const DEVICES: usize = 20;

// Holds: GP8.
#[test]
fn a_view_of_a_dropped_device_is_refused() {
    let Some(driver) = driver() else { return };
    let mut dropped: Vec<View<'_, u16>> = Vec::new();
    for _ in 0..DEVICES {
        let device = driver.open();
        for view in &dropped {
            assert_eq!(device.read_all(*view), Err(GpuError::WrongDevice));
        }
        // SAFETY: nothing is queued with it.
        dropped.push(unsafe { View::from_raw(&device, 0x1000, 8) });
    }
}

#[test]
fn sequences_on_a_dropped_device_are_refused() {
    let Some(driver) = driver() else { return };
    let sequences = TokenSequences::new([&[1, 2, 3][..]]);
    let ask = || Compare::new(&driver.open()).min_device_tokens(0).prefix_lengths(&sequences, &sequences, &[(0, 0)]);
    assert_eq!(ask(), Ok(vec![3]));
    for _ in 0..DEVICES {
        assert_eq!(ask(), Err(GpuError::WrongDevice));
    }
}

#[test]
fn a_graph_keeps_its_device_open() {
    let Some(driver) = stand_in_driver() else { return };
    let device = driver.open();
    let modules = driver.live_of("modules");
    let graph = device.capture(|| Ok(())).expect("a graph");
    drop(device);
    assert_eq!(driver.live_of("modules"), modules, "modules whose kernels a graph may start");
    drop(graph);
    driver.assert_nothing_left("a graph");
}
